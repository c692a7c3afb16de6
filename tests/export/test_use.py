"""A use is what the tables call it, and does to scores what its record says."""

import numpy as np
import pytest

from calmtune.export.use import LABELS, Use, parse_label
from calmtune.predictions import Prediction, Predictions
from calmtune.report.scaling import Vector

ITEMS = Predictions(
    (Prediction("a", "d", 0, (2.0, 0.0, -1.0), (1.0, 0.5, 0.0)), Prediction("b", "d", 1, (0.0, 3.0), (0.0, 1.0)))
)


@pytest.mark.parametrize("label", LABELS)
def test_every_label_is_read_back(label):
    adjusted, scaling = parse_label(label.replace(" ", "").upper())
    vector = Vector((1.0,) * 3, (0.0,) * 3) if scaling == "VS" else None
    use = Use(adjusted, scaling, 2.0 if scaling == "TS" else 1.0, vector)
    assert use.label == label
    assert Use.from_record(use.to_record()) == use


def test_a_label_that_is_none():
    with pytest.raises(ValueError, match="expected one of raw, raw \\+ TS"):
        parse_label("tempered")


def test_a_temperature_divides_the_chosen_scores():
    assert Use(False, "TS", 2.0).apply(ITEMS)[0].scores == (1.0, 0.0, -0.5)
    assert Use(True, "TS", 0.5).apply(ITEMS)[1].scores == (0.0, 2.0)


def test_a_vector_acts_on_log_probabilities():
    scores = Use(False, "VS", vector=Vector((2.0, 1.0, 1.0), (0.0, 0.5, 0.0))).apply(ITEMS)[1].scores
    log_p = np.log([1 / (1 + np.e**3), np.e**3 / (1 + np.e**3)])
    np.testing.assert_allclose(scores, [2 * log_p[0], log_p[1] + 0.5])


def test_adjusted_scores_that_are_not_there():
    bare = Predictions((Prediction("a", "d", 0, (2.0, 0.0)),))
    with pytest.raises(ValueError, match="'a' has no adjusted scores"):
        Use(True, "none").apply(bare)


@pytest.mark.parametrize(("record", "label"), [
    ({"distribution": "raw", "temperature": 1.0}, "raw"),
    ({"distribution": "adjusted", "temperature": 0.6}, "adjusted + TS"),
])  # fmt: skip
def test_records_from_before_vector_scaling(record, label):
    assert Use.from_record(record).label == label


@pytest.mark.parametrize("fault", [{"temperature": 0.0}, {"scaling": "VS"}, {"vector": Vector((1.0,), (0.0,))}])
def test_what_cannot_be_meant_is_refused(fault):
    with pytest.raises(ValueError):
        Use(**{"adjusted": False, "scaling": "TS", **fault})
