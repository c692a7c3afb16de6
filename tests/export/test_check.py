"""What two models say is compared item by item; every limit can be broken."""

import json

import numpy as np
import pytest

from calmtune.export.check import Limits, compare
from calmtune.predictions import Prediction, Predictions

SCORES = np.random.default_rng(0).normal(size=(40, 4)) * 2


def predictions(scores, ids=None):
    names = ids or [f"q/{n}" for n in range(len(scores))]
    # items of three and of four options
    return Predictions(tuple(Prediction(name, "d", n % 3, tuple(map(float, row[: 3 + n % 2])))
                             for n, (name, row) in enumerate(zip(names, scores, strict=True))))  # fmt: skip


def agreement(other):
    return compare(predictions(SCORES), predictions(other), ("run", "other"), n_resamples=20)


def test_a_shift_of_an_item_is_no_difference():
    found = agreement(SCORES + np.arange(40)[:, None])
    assert found.logit[0] < 1e-9
    assert found.probability[0] < 1e-9
    assert found.changed == 0
    assert found.faults(Limits(1e-6, 0.0001, 0.0)) == []


def test_the_largest_difference_is_found_where_it_is():
    other = SCORES.copy()
    other[7, 1] += 0.4  # of four options: 0.3 after the mean is taken out
    found = agreement(other)
    assert found.logit == (pytest.approx(0.3), "q/7")
    assert found.probability[1] == "q/7"
    assert len(found.faults(Limits(0.29, 1, 1))) == 1
    assert found.faults(Limits(0.31, 1, 1)) == []


def test_probabilities_by_hand():
    one, two = (
        Predictions((Prediction("a", "d", 0, s), Prediction("b", "d", 0, s))) for s in ((0.0, 0.0), (np.log(3), 0.0))
    )
    assert compare(one, two, ("1", "2"), n_resamples=5).probability[0] == pytest.approx(0.25)


def test_each_figure_has_its_limit():
    found = agreement(SCORES * 4)
    accuracy, ece = found.figures["accuracy"], found.figures["conf_ece"]
    assert accuracy[0].value == accuracy[1].value  # a temperature changes no answer
    gap = abs(ece[1].value - ece[0].value)
    assert [fault.split()[0] for fault in found.faults(Limits(None, gap * 0.99, 0))] == ["conf-ECE"]
    assert found.faults(Limits(None, gap * 1.01, 0)) == []
    flipped = agreement(-SCORES)
    assert any(fault.startswith("accuracy went from") for fault in flipped.faults(Limits(None, 1, 0.01)))
    assert flipped.changed == 40


def test_table_and_record_hold_the_same_figures():
    found = agreement(SCORES * 2)
    limits = Limits(0.5)
    record = json.loads(json.dumps(found.to_record(limits)))
    lines = found.lines(limits)
    assert record["n"] == 40
    assert f"{record['figures']['conf_ece']['model']['value']:.3f}" in lines[2]
    assert record["faults"] == found.faults(limits)
    assert "n = 40" in lines[-1]


def test_other_items_are_refused():
    with pytest.raises(ValueError, match="expected the same items"):
        compare(predictions(SCORES), predictions(SCORES, [f"x{n}" for n in range(40)]), ("1", "2"))


def test_a_limit_below_zero():
    with pytest.raises(ValueError, match="limit of conf_ece"):
        Limits(0.1, conf_ece=-1)
