"""Intervals over questions, and refusals counted apart."""

import math

import numpy as np
import pytest

from calmtune.metrics import (
    bootstrap_interval,
    expected_calibration_error,
    semantic_abstention,
    semantic_confidence,
    semantic_ece,
    semantic_entropy,
    semantic_summary,
)

# five questions, four samples each; "-" and "?" refuse
TABLE = [list("aaab"), list("-?-c"), list("----"), list("dd?-"), list("eeff")]
REFUSED = [[name in "-?" for name in row] for row in TABLE]
GRADES = [[name in "ac" for name in row] for row in TABLE]


def random_table(seed, questions=60, samples=8):
    rng = np.random.default_rng(seed)
    table = rng.choice(5, (questions, samples), p=[0.4, 0.3, 0.1, 0.1, 0.1])
    main_right = rng.random(questions) < 0.5
    return table, (table == 0) & main_right[:, None]


def test_abstention_by_hand():
    # a 3/4 right; refusals 3/4; refusals 1; d and the refusals tie at 2/4; e and f tie at 2/4, both wrong
    found = semantic_abstention(TABLE, GRADES, REFUSED, n_resamples=50)
    tie_answered = semantic_confidence(TABLE, GRADES, refused=REFUSED).answered[3]
    answered = 2 + int(tie_answered)
    assert (found.n, found.n_answered) == (5, answered)
    assert found.coverage.estimate == pytest.approx(answered / 5)
    assert found.refusal_share.estimate == pytest.approx((0 + 3 / 4 + 1 + 2 / 4 + 0) / 5)
    assert found.accuracy.estimate == pytest.approx(1 / 5)
    assert found.accuracy_answered.estimate == pytest.approx(1 / answered)
    # bins .7-.8: .75 right, .75 refusal; 1.0: refusal; .5-.6: two wrong
    assert found.ece_refusal_wrong.estimate == pytest.approx((abs(1 - 1.5) + 1.0 + 2 * 0.5) / 5)
    assert found.ece_answered.estimate == pytest.approx((0.25 + (answered - 1) * 0.5) / answered)
    # the paper's view is semantic_ece with the refusals as a class; without it, "-" and "?" would be two classes
    assert semantic_ece(TABLE, GRADES, refused=REFUSED) == pytest.approx(found.ece_refusal_wrong.estimate)
    assert semantic_confidence(TABLE, GRADES).confidence[1] == 0.5
    assert semantic_confidence(TABLE, GRADES, refused=REFUSED).confidence[1] == 0.75
    assert semantic_confidence(TABLE, GRADES, refused=REFUSED).modal_class[:3] == ("a", None, None)


def test_a_tie_with_the_refusals_is_answered_half_of_the_time():
    found = semantic_abstention([["a", "-"]] * 4000, [[1, 0]] * 4000, [[0, 1]] * 4000, n_resamples=2)
    assert found.coverage.estimate == pytest.approx(0.5, abs=0.03)
    assert found.accuracy.estimate == found.coverage.estimate
    assert found.accuracy_answered.estimate == 1.0
    assert found.ece_answered.estimate == pytest.approx(0.5)


def test_nothing_answered_is_not_a_number():
    found = semantic_abstention([["-"]] * 3, [[0]] * 3, [[1]] * 3, n_resamples=20)
    assert found.coverage.estimate == 0.0
    assert found.ece_refusal_wrong.estimate == 1.0
    for interval in (found.accuracy_answered, found.ece_answered):
        assert all(math.isnan(value) for value in interval)
    # some resamples of one answered question in three hold none
    some = semantic_abstention([["-"], ["-"], ["a"]], [[0], [0], [1]], [[1], [1], [0]], n_resamples=200)
    assert some.accuracy_answered.estimate == 1.0
    assert math.isnan(some.accuracy_answered.low)


def test_summary_is_made_of_the_metrics():
    table, right = random_table(0)
    found = semantic_summary(table, right, n_bins=8, seed=2, n_splits=5, n_resamples=80)
    settings = {"seed": 2, "n_resamples": 80}
    for name, confidence, error in (
        ("sem1", found.sem1_confidence, found.sem1_ece),
        ("sem2", found.sem2_confidence, found.sem2_ece),
    ):
        single = semantic_confidence(table, right, name, 2, n_splits=5)
        assert error.estimate == semantic_ece(table, right, name, 8, 2, n_splits=5)
        arrays = single.confidence, single.correct
        assert error == bootstrap_interval(lambda c, y: expected_calibration_error(c, y, 8), *arrays, **settings)
        assert confidence == bootstrap_interval(np.mean, single.confidence, **settings)
        assert found.accuracy == bootstrap_interval(np.mean, single.correct, **settings)
        assert found.n_ties == single.n_ties > 0
    assert found.entropy == bootstrap_interval(np.mean, semantic_entropy(table), **settings)
    assert found.n == 60


def test_intervals_cover_over_questions():
    # Sem1's accuracy is a plain proportion of questions: 95 % intervals miss its mean about one time in twenty
    p = np.mean([semantic_summary(*random_table(s, 400), n_resamples=1).accuracy.estimate for s in range(1000, 1015)])
    hits = 0
    for seed in range(60):
        table, right = random_table(seed)
        interval = semantic_summary(table, right, n_resamples=100).accuracy
        hits += interval.low <= p <= interval.high
    assert 50 <= hits <= 60


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: semantic_summary(TABLE, None), "correct: expected grades"),
        (lambda: semantic_summary([["a"]], [[1]]), r"class_ids\[0\] has one sample"),
        (lambda: semantic_abstention(TABLE, GRADES, None), "refused: expected"),
        (lambda: semantic_abstention(TABLE, None, REFUSED), "correct: expected grades"),
        (lambda: semantic_abstention(TABLE, [1, 0, 0, 0, 0], REFUSED), "refusals need a grade for each sample"),
        (lambda: semantic_abstention(TABLE, GRADES, [[0, 0, 0, 2]] * 5), r"refused\[0\]\[3\] is 2"),
        (lambda: semantic_abstention([["-"]], None, [[1]]), "correct: expected grades"),
    ],
)
def test_faults(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_refusals_and_ids_reach_every_figure():
    ids = [f"q{i}" for i in range(5)]
    found = semantic_summary(TABLE, GRADES, refused=REFUSED, ids=ids, n_resamples=1)
    table, right = random_table(3, 30, 6)
    nobody = np.zeros((30, 6), dtype=bool)
    names = [f"q{i}" for i in range(30)]
    for name, error in (("sem1", found.sem1_ece), ("sem2", found.sem2_ece)):
        assert error.estimate == semantic_ece(TABLE, GRADES, name, refused=REFUSED, ids=ids)
        by_name = semantic_ece(table, right, name, ids=names)
        assert name == "sem1" or by_name != semantic_ece(table, right, name)
        views = semantic_abstention(table, right, nobody, name, ids=names, n_resamples=1)
        assert views.ece_answered.estimate == views.ece_refusal_wrong.estimate == by_name
        whole = semantic_summary(table, right, ids=names, n_resamples=1)
        assert by_name == (whole.sem1_ece if name == "sem1" else whole.sem2_ece).estimate
    assert found.sem1_confidence.estimate == pytest.approx((0.75 + 0.75 + 1 + 0.5 + 0.5) / 5)
