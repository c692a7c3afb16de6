"""Readings agree with the predictions they come from."""

import numpy as np

from calmtune.predictions import Prediction, Predictions
from calmtune.report.readings import concatenate, read
from report.cases import predictions


def test_a_reading_is_what_the_predictions_say():
    given = predictions("d", 20, scale=3.0, adjusted=0.5)
    for adjusted, temperature in ((False, 1.0), (True, 1.7)):
        reading = read(given, adjusted=adjusted, temperature=temperature)
        confidence, correct = given.confidence_and_correct(adjusted=adjusted, temperature=temperature)
        np.testing.assert_array_equal(reading.confidence, confidence)
        np.testing.assert_array_equal(reading.correct, correct)


def test_joining_keeps_every_item_and_its_choice():
    # the tie is broken by the item's id, so a joined set must not break it anew
    tie = Predictions((Prediction("same", "a", 0, (1.0, 1.0)),))
    wide = Predictions((Prediction("other", "b", 3, (0.0, 0.0, 0.0, 5.0)),))
    parts = [read(part, adjusted=False, temperature=1.0) for part in (tie, wide)]
    joined = concatenate(parts)
    assert joined.probabilities.shape == (2, 4)
    assert joined.choices.tolist() == [int(parts[0].choices[0]), 3]
    assert joined.ties == 1
    assert joined.n_options.tolist() == [2, 4]
    np.testing.assert_allclose(joined.probabilities.sum(axis=1), 1.0)
