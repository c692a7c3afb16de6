"""Readings agree with the predictions they come from."""

import numpy as np
import pytest

from calmtune.metrics import softmax
from calmtune.posthoc import VectorScaler
from calmtune.predictions import Prediction, Predictions
from calmtune.report.readings import concatenate, read, take
from calmtune.report.scaling import Vector
from report.cases import predictions


def test_a_reading_is_what_the_predictions_say():
    given = predictions("d", 20, scale=3.0, adjusted=0.5)
    for adjusted, temperature in ((False, 1.0), (True, 1.7)):
        reading = read(given, adjusted=adjusted, temperature=temperature)
        confidence, correct = given.confidence_and_correct(adjusted=adjusted, temperature=temperature)
        np.testing.assert_array_equal(reading.confidence, confidence)
        np.testing.assert_array_equal(reading.correct, correct)


def test_a_vector_changes_the_scores_of_each_items_own_options():
    given = Predictions((Prediction("a", "d", 0, (1.0, 3.0), (5.0, 0.0)), Prediction("b", "d", 2, (0.0, 0.0, 0.0))))
    reading = read(given, adjusted=False, vector=Vector((1.0, 0.0, 2.0), (0.0, 1.0, 0.5)))
    p = np.exp([1.0, 3.0]) / np.exp([1.0, 3.0]).sum()
    first = np.array([p[0], np.e])
    second = np.array([1 / 3, np.e, np.exp(0.5) / 9])
    np.testing.assert_allclose(reading.probabilities[0], [*(first / first.sum()), 0.0])
    np.testing.assert_allclose(reading.probabilities[1], second / second.sum())
    assert reading.choices.tolist() == [1, 1]
    assert reading.ties == 0  # the second item's scores were tied before the shift
    with pytest.raises(ValueError, match="fitted for up to 2 options, but an item has 3"):
        read(given, adjusted=False, vector=Vector((1.0, 1.0), (0.0, 0.0)))


def test_a_vector_reads_the_adjusted_scores_where_these_are_asked_for():
    given = predictions("d", 20, scale=3.0, adjusted=0.5)
    same = Vector((1.0,) * 4, (0.0,) * 4)
    for adjusted in (False, True):
        plain, moved = read(given, adjusted=adjusted), read(given, adjusted=adjusted, vector=same)
        np.testing.assert_allclose(moved.probabilities, plain.probabilities, atol=1e-12)


def test_the_reports_vector_is_the_fits_transform():
    given = predictions("d", 60, scale=3.0)
    scaler = VectorScaler().fit(given.logits(), given.labels)
    reading = read(given, adjusted=False, vector=Vector(tuple(scaler.scale), tuple(scaler.shift)))
    np.testing.assert_allclose(reading.probabilities, softmax(scaler.transform(given.logits())), atol=1e-12)


def test_taking_items_keeps_their_order():
    reading = read(predictions("d", 6, scale=3.0), adjusted=False)
    some = take(reading, np.array([4, 1]))
    np.testing.assert_array_equal(some.probabilities, reading.probabilities[[4, 1]])
    np.testing.assert_array_equal(some.correct, reading.correct[[4, 1]])
    assert len(some) == 2


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
