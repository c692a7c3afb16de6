"""The curve over numbers of samples, and the comparison of class rules."""

import numpy as np
import pytest

from calmtune.metrics import (
    class_rule_sensitivity,
    expected_calibration_error,
    paired_difference,
    semantic_confidence,
    semantic_curve,
    semantic_ece,
    semantic_entropy,
    semantic_summary,
)


def known_answers(seed, questions, samples, p=(0.6, 0.3, 0.1)):
    """Every question has the answers' probabilities p; the main answer is right in half of them."""
    rng = np.random.default_rng(seed)
    table = rng.choice(len(p), (questions, samples), p=p)
    return table, (table == 0) & (np.arange(questions) % 2 == 0)[:, None]


def test_one_sample_is_always_sure_of_itself():
    table, right = known_answers(0, 200, 6)
    [point] = semantic_curve(table, right, [1], repeats=40, n_resamples=20)
    assert point.confidence == (1.0, 1.0, 1.0)
    # the share of right samples, drawn one at a time: 200 questions x 40 draws
    assert point.accuracy.estimate == pytest.approx(right.mean(), abs=0.02)
    assert point.ece.estimate == pytest.approx(1 - point.accuracy.estimate)
    assert point.tie_share == 0.0


def test_all_samples_are_the_pool_itself():
    table = [[0, 0, 1, 2], [3, 3, 3, 1], [5, 5, 5, 5]]
    right = [[1, 1, 0, 0], [0, 0, 0, 1], [1, 1, 1, 1]]
    [point] = semantic_curve(table, right, [4], n_resamples=20)
    assert point.ece.estimate == pytest.approx(semantic_ece(table, right))
    assert point.accuracy.estimate == pytest.approx(2 / 3)


def test_two_samples_by_hand():
    # of a, a, b two are drawn: aa once in three (sure), else a tie at 1/2, which the right a wins half of the time
    questions = 300
    [point] = semantic_curve([["a", "a", "b"]] * questions, [[1, 1, 0]] * questions, [2], n_resamples=2)
    assert point.confidence.estimate == pytest.approx(1 / 3 + 2 / 3 * 0.5, abs=0.02)
    assert point.accuracy.estimate == pytest.approx(1 / 3 + 2 / 3 * 0.5, abs=0.02)
    assert point.tie_share == pytest.approx(2 / 3, abs=0.03)


def test_the_curve_is_what_fewer_samples_would_have_shown():
    # 50 stored samples cut to n against fresh pools of n: the same expectation
    table, right = known_answers(1, 400, 50)
    for estimator in ("sem1", "sem2"):
        curve = semantic_curve(table, right, estimator=estimator, repeats=5, n_resamples=5)
        assert [point.n_samples for point in curve] == [5, 10, 20, 30, 50]
        for point in curve:
            fresh = semantic_confidence(*known_answers(2, 4000, point.n_samples), estimator)
            assert point.confidence.estimate == pytest.approx(fresh.confidence.mean(), abs=0.015)
            assert point.accuracy.estimate == pytest.approx(fresh.correct.mean(), abs=0.03)
            assert point.tie_share == pytest.approx((fresh.tied > 1).mean(), abs=0.03)
        if estimator == "sem1":  # the bias falls with n
            means = [point.confidence.estimate for point in curve]
            assert means == sorted(means, reverse=True)


def test_repeats_average_errors_not_confidences():
    # two of a, a, b with a right: aa is sure and right (error 0), a tie is off by 1/2 however it falls; the mean
    # confidence and the mean accuracy are both 2/3, so averaging them first would show no error
    [point] = semantic_curve([["a", "a", "b"]], [[1, 1, 0]], [2], repeats=400, n_resamples=1)
    assert point.ece.estimate == pytest.approx(2 / 3 * 0.5, abs=0.05)
    assert point.confidence.estimate == pytest.approx(point.accuracy.estimate, abs=0.1)


def test_every_repeat_has_its_own_splits():
    # the pool itself each time: only the half splits differ, and their mean over all of them is .8
    [point] = semantic_curve([list("aaaab")], [[1, 1, 1, 1, 0]], [5], "sem2", repeats=400, n_splits=1, n_resamples=1)
    assert point.confidence.estimate == pytest.approx(0.8, abs=0.05)


def test_the_seed_decides():
    table, right = known_answers(3, 50, 12)
    first = semantic_curve(table, right, [4], repeats=3, seed=1, n_resamples=50)
    assert first == semantic_curve(table, right, [4], repeats=3, seed=1, n_resamples=50)
    other = semantic_curve(table, right, [4], repeats=3, seed=2, n_resamples=50)
    assert first[0].confidence.estimate != other[0].confidence.estimate
    assert first[0].ece.low < first[0].ece.high


def test_order_and_names_do_not_move_the_curve():
    table, right = known_answers(4, 30, 10)
    ids = [f"q{i}" for i in range(30)]
    rng = np.random.default_rng(0)
    shuffled = [rng.permutation(10) for _ in range(30)]
    new = [[f"c{9 - table[i, k]}" for k in shuffled[i]] for i in range(30)][::-1]
    new_right = [right[i, shuffled[i]].tolist() for i in range(30)][::-1]
    for estimator in ("sem1", "sem2"):
        for a, b in zip(
            semantic_curve(table, right, [3, 10], estimator, ids=ids, n_resamples=1),
            semantic_curve(new, new_right, [3, 10], estimator, ids=ids[::-1], n_resamples=1),
            strict=True,
        ):
            assert a.ece.estimate == pytest.approx(b.ece.estimate, abs=1e-12)
            assert a.tie_share == b.tie_share


def test_default_budgets_are_those_every_question_has():
    rows = [[0] * 12, [1] * 10]
    assert [p.n_samples for p in semantic_curve(rows, [[1] * 12, [0] * 10], n_resamples=1)] == [5, 10]


def test_class_rules_by_hand():
    exact = [["NYC", "New York", "NYC", "Rome"], ["1", "1", "one", "two"], ["x", "x", "x", "x"]]
    meaning = [[0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0]]
    grades = [[1, 1, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]]
    found = class_rule_sensitivity({"exact": exact, "meaning": meaning}, grades, n_resamples=100)
    # exact: .5 right, .5 wrong, 1 wrong; by meaning .75 right, .75 wrong, 1 wrong
    assert found.rules["exact"].sem1_ece.estimate == pytest.approx((0.0 + 1.0) / 3)
    assert found.rules["meaning"].sem1_ece.estimate == pytest.approx((0.5 + 1.0) / 3)
    difference = found.differences["exact", "meaning"]
    assert difference["ece"].estimate == pytest.approx(-0.5 / 3)
    assert difference["confidence"].estimate == pytest.approx(-0.5 / 3)
    assert difference["accuracy"] == (0.0, 0.0, 0.0, 1.0)
    entropy = semantic_entropy(exact).mean() - semantic_entropy(meaning).mean()
    assert difference["entropy"].estimate == pytest.approx(entropy)
    # "one" alone is right for a rule that lets one right sample decide
    mixed = [[1, 1, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    wide = class_rule_sensitivity({"e": exact, "m": meaning}, mixed, within_class="any", n_resamples=10)
    assert wide.differences["e", "m"]["accuracy"].estimate == pytest.approx(-1 / 3)


def test_class_rules_are_made_of_the_metrics():
    table, right = known_answers(5, 60, 8, (0.4, 0.3, 0.2, 0.1))
    rules = {"four": table, "three": np.minimum(table, 2), "two": np.minimum(table, 1)}
    found = class_rule_sensitivity(rules, right, "sem2", 7, 3, n_splits=4, n_resamples=60)
    assert list(found.differences) == [("four", "three"), ("four", "two"), ("three", "two")]
    sides = {}
    for name, classes in rules.items():
        assert found.rules[name] == semantic_summary(classes, right, 7, 3, n_splits=4, n_resamples=60)
        single = semantic_confidence(classes, right, "sem2", 3, n_splits=4)
        sides[name] = (single.confidence, single.correct)
    assert found.differences["four", "two"]["ece"] == paired_difference(
        lambda c, y: expected_calibration_error(c, y, 7), sides["four"], sides["two"], seed=3, n_resamples=60
    )
    # grades by rule
    same = class_rule_sensitivity(rules, dict.fromkeys(rules, right), "sem2", 7, 3, n_splits=4, n_resamples=60)
    assert same == found
    by_question = {name: y for name, (_, y) in sides.items()}
    assert class_rule_sensitivity(rules, by_question, "sem2", 7, 3, n_splits=4, n_resamples=60) == found


OK = [["a", "a"], ["b", "c"]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: semantic_curve(OK, [1, 0], [2]), "needs a grade for each sample"),
        (lambda: semantic_curve(OK, None, [2]), "needs a grade for each sample"),
        (lambda: semantic_curve(OK, [[1, 1], [0, 0]]), "budgets: expected at least one, got none; .* 2 samples"),
        (lambda: semantic_curve(OK, [[1, 1], [0, 0]], [3]), r"class_ids\[0\] has 2 samples; a budget of 3"),
        (lambda: semantic_curve(OK, [[1, 1], [0, 0]], [0]), "budget: expected an integer >= 1"),
        (lambda: semantic_curve(OK, [[1, 1], [0, 0]], [1], "sem2"), "sem2 splits samples in halves"),
        (lambda: semantic_curve(OK, [[1, 1], [0, 0]], [2], repeats=0), "repeats"),
        (lambda: class_rule_sensitivity({"a": OK}, [[1, 1], [0, 0]]), "at least two rules"),
        (lambda: class_rule_sensitivity({"a": OK, "b": OK[:1]}, {"a": [1, 1], "b": [1]}), "'b' has 1 questions"),
        (
            lambda: class_rule_sensitivity({"a": OK, "b": [["a"], ["b", "c"]]}, {"a": [1, 1], "b": [1, 0]}),
            "question 0 has 1 samples under 'b' and 2 under 'a'",
        ),
        (lambda: class_rule_sensitivity({"a": OK, "b": OK}, [1, 0]), "rules differ in their modal classes"),
        (lambda: class_rule_sensitivity({"a": OK, "b": OK}, {"a": [1, 0]}), "expected grades for the rules"),
        (lambda: class_rule_sensitivity({"a": OK, "b": OK}, None), "correct: expected grades"),
    ],
)
def test_faults(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_refusals_and_ids_reach_the_curve_and_the_rules():
    # "-" and "?" are one class only as refusals: confidence 3/4 and not 1/2
    table, refused = [list("-?-c")] * 8, [[1, 1, 1, 0]] * 8
    right = [[0, 0, 0, 1]] * 8
    [point] = semantic_curve(table, right, [4], refused=refused, repeats=2, n_resamples=1)
    assert point.confidence.estimate == 0.75
    rules = class_rule_sensitivity({"a": table, "b": table}, right, refused=refused, n_resamples=1)
    assert rules.differences["a", "b"]["confidence"].estimate == 0.0
    assert rules.rules["a"].sem1_confidence.estimate == 0.75
    table, right = known_answers(6, 30, 7)
    ids = [f"q{i}" for i in range(30)]
    rules = class_rule_sensitivity({"a": table, "b": table}, right, "sem2", ids=ids, n_resamples=1)
    expected = semantic_confidence(table, right, "sem2", ids=ids).confidence.mean()
    assert expected != semantic_confidence(table, right, "sem2").confidence.mean()
    assert rules.rules["a"].sem2_confidence.estimate == expected
