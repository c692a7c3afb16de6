"""Thresholds: by hand, against scipy's exact test, and the guarantee by simulation, which a naive rule breaks."""

import numpy as np
import pytest
from scipy.stats import binomtest

from calmtune.posthoc.abstention import (
    answer_or_abstain,
    conformal_threshold,
    exact_interval,
    halves,
    plan_thresholds,
    risk_coverage,
    risk_p_value,
    select_threshold,
)

# a population in closed form: 20 confidences, equally likely; the accuracy is no monotone function of them
LEVELS = np.linspace(0.05, 1.0, 20)
ACCURACY = np.clip(LEVELS + 0.12 * np.cos(9 * LEVELS), 0.0, 0.97)


def draw(rng, n, accuracy=ACCURACY):
    """Confidences and outcomes of n items of the population."""
    place = rng.integers(0, len(LEVELS), n)
    return LEVELS[place], rng.random(n) < accuracy[place]


def true_risk(threshold, accuracy=ACCURACY):
    """P(wrong | confidence >= threshold) in the population; 0 where nothing is answered."""
    answered = threshold <= LEVELS
    return float((1 - accuracy[answered]).mean()) if answered.any() else 0.0


def learn(rng, n, target, level):
    """The whole procedure: one half of n items plans, the other half decides."""
    first, second = draw(rng, n // 2), draw(rng, n - n // 2)
    return select_threshold(*second, plan_thresholds(*first, target, n_items=n - n // 2, level=level), target, level)


def naive(rng, n, target):
    """The lowest threshold at which the observed error rate is at most the target."""
    confidence, correct = draw(rng, n)
    fine = [t for t in LEVELS if (confidence >= t).any() and (~correct[confidence >= t]).mean() <= target]
    return min(fine, default=np.inf)


def test_the_guarantee_holds_at_the_stated_rate_and_a_naive_rule_breaks_it():
    rng, target, level, repeats = np.random.default_rng(0), 0.2, 0.9, 1500
    broken = np.mean([true_risk(learn(rng, 300, target, level).threshold) > target for _ in range(repeats)])
    assert broken <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / repeats)
    assert np.mean([true_risk(naive(rng, 300, target)) > target for _ in range(500)]) > 0.2


@pytest.mark.parametrize(("n", "excess"), [(40, 1e-9), (150, 1e-9), (600, 1e-9), (600, 0.02)])
def test_the_bound_is_exact_where_every_threshold_is_just_too_bad(n, excess):
    """At the edge of the hypothesis the rate of failure is the binomial test's own size: under 1 - level, and near."""
    rng, target, level, repeats = np.random.default_rng(1), 0.25, 0.9, 3000
    flat = np.full(len(LEVELS), 1 - target - excess)
    chosen = [select_threshold(*draw(rng, n, flat), [0.5, 0.25, 0.0], target, level) for _ in range(repeats)]
    broken = np.mean([not rule.answers_nothing for rule in chosen])
    assert broken <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / repeats)
    if excess < 0.01:
        assert broken > 0.04


def test_it_is_not_vacuous_coverage_comes_near_the_oracle_s():
    rng, target = np.random.default_rng(2), 0.21
    # the lowest threshold above which no threshold breaks the target
    oracle = min(t for t in LEVELS if all(true_risk(u) <= target for u in LEVELS[t <= LEVELS]))
    best = (oracle <= LEVELS).mean()
    coverage = {n: np.mean([(learn(rng, n, target, 0.95).threshold <= LEVELS).mean() for _ in range(40)]) for n in
                (100, 1000, 20_000)}  # fmt: skip
    assert 0.0 < coverage[100] < coverage[1000] < coverage[20_000] <= best
    assert coverage[20_000] > best - 0.02


def test_choosing_the_confidence_on_the_same_items_breaks_the_guarantee_and_a_half_kept_apart_does_not():
    """Why the calibration split is halved: the best of many useless confidences looks good where it was chosen."""
    rng, target, level, n, repeats = np.random.default_rng(3), 0.45, 0.9, 120, 300
    same = apart = 0
    for _ in range(repeats):
        correct = rng.random(n) < 0.5  # every threshold of every confidence has an error rate of .5
        scores = rng.random((200, n))
        fits, tests = slice(0, n // 2), slice(n // 2, n)

        def right_when_sure(part, scores=scores, correct=correct):
            sure = scores[:, part] > 0.5
            return ((sure & correct[part]).sum(axis=1) / sure.sum(axis=1)).argmax()

        whole, half = scores[right_when_sure(slice(0, n))], scores[right_when_sure(fits)]
        same += not select_threshold(whole, correct, [0.5], target, level).answers_nothing
        apart += not select_threshold(half[tests], correct[tests], [0.5], target, level).answers_nothing
    assert same / repeats > 0.3
    assert apart / repeats <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / repeats)


@pytest.mark.parametrize("n", [30, 100])
def test_conformal_risk_control_holds_the_expected_share_of_wrong_answers_and_nearly_uses_it_up(n):
    rng, target, repeats = np.random.default_rng(4), 0.15, 4000
    losses = np.empty(repeats)
    for index in range(repeats):
        # continuous confidences: the right one of accuracy c has P(answered and wrong) = integral of 1 - c
        confidence = rng.random(n)
        found = conformal_threshold(confidence, rng.random(n) < confidence, target)
        t = min(found.threshold, 1.0)
        losses[index] = (1 - t) ** 2 / 2
    error = 3 * losses.std() / np.sqrt(repeats)
    assert losses.mean() <= target + error
    assert losses.mean() >= target - 2 / (n + 1) - error


def test_conformal_threshold_by_hand():
    confidence, correct = [0.9, 0.8, 0.8, 0.7, 0.2], [1, 0, 0, 1, 0]
    # k + 1 <= target * 6: no wrong one at .2, one at .34, two at .5, three at .67
    for target, answered, wrong in ((0.1, 0, 0), (0.2, 1, 0), (0.34, 1, 0), (0.5, 4, 2), (0.67, 5, 3)):
        found = conformal_threshold(confidence, correct, target)
        assert (found.n_answered, found.n_wrong) == (answered, wrong), target
    assert conformal_threshold(confidence, correct, 0.1).answers_nothing
    assert conformal_threshold(confidence, correct, 0.67).threshold == 0.0


def test_the_p_value_is_scipy_s_exact_test():
    for k, n, target in ((0, 1, 0.1), (3, 50, 0.1), (20, 100, 0.2), (100, 100, 0.5)):
        assert risk_p_value(k, n, target) == pytest.approx(binomtest(k, n, target, alternative="less").pvalue)


def test_exact_intervals_are_scipy_s():
    for k, n, level in ((0, 10, 0.95), (10, 10, 0.95), (3, 17, 0.9), (250, 1000, 0.99)):
        expected = binomtest(k, n).proportion_ci(level, "exact")
        assert exact_interval(k, n, level) == pytest.approx((expected.low, expected.high))
    assert [end.tolist() for end in exact_interval([0, 1], [0, 1])] == [[0.0, pytest.approx(0.025)], [1.0, 1.0]]


def test_the_order_stops_at_the_first_failure_even_if_a_later_threshold_would_pass():
    confidence = np.repeat([0.9, 0.8, 0.7], [100, 100, 800])
    correct = np.concatenate([np.ones(100), np.zeros(100), np.ones(800)])
    found = select_threshold(confidence, correct, [0.9, 0.8, 0.7], 0.2)
    assert (found.threshold, found.n_answered, found.n_wrong, found.n) == (0.9, 100, 0, 1000)
    # the last one alone, fixed beforehand, would have passed: 100 of 1000 are wrong
    assert select_threshold(confidence, correct, [0.7], 0.2).threshold == 0.7


def test_too_few_items_answer_nothing():
    # 28 right answers of 28 are no evidence for an error rate under .1 at 95 %, 29 are
    assert select_threshold([0.9] * 28, [1] * 28, [0.0], 0.1).answers_nothing
    found = select_threshold([0.9] * 29, [1] * 29, [0.0], 0.1)
    assert not found.answers_nothing
    assert found.answer_or_abstain([0.0, 1.0]).all()
    assert not select_threshold([0.9], [0], [0.5], 0.1).answer_or_abstain([1.0]).any()


def test_the_plan_starts_where_evidence_is_strongest_and_falls():
    rng = np.random.default_rng(5)
    confidence = rng.random(400)
    correct = rng.random(400) < np.where(confidence > 0.6, 0.97, 0.5)
    plan = plan_thresholds(confidence, correct, 0.1, n_items=400)
    assert 0.55 < plan[0] < 0.7
    assert (np.diff(plan) < 0).all()
    assert plan[-1] == 0.0


def test_the_table_by_hand():
    table = risk_coverage([0.9, 0.8, 0.2, 0.2], [1, 0, 1, 0], [0.95, 0.8, 0.2])
    assert table.n_answered.tolist() == [0, 2, 4]
    assert table.n_wrong.tolist() == [0, 1, 2]
    assert np.isnan(table.risk[0])
    assert (table.risk_low[0], table.risk_high[0]) == (0.0, 1.0)
    assert table.coverage.tolist() == [0.0, 0.5, 1.0]


def test_halves_do_not_depend_on_the_order_and_do_on_the_seed():
    ids = [f"q{n}" for n in range(101)]
    first, second = halves(ids)
    shuffled = ids[::-1]
    again = {shuffled[place] for place in halves(shuffled)[0]}
    assert {ids[place] for place in first} == again
    assert len(second) == 51
    assert {ids[place] for place in halves(ids, seed=1)[0]} != again
    with pytest.raises(ValueError, match="twice"):
        halves(["a", "a"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: select_threshold([0.5], [1], [0.5], 0.0), "target: expected a share"),
        (lambda: select_threshold([0.5], [1], [0.5], 0.1, 1.0), "level: expected a share"),
        (lambda: select_threshold([0.5], [1], [], 0.1), "thresholds: expected at least one"),
        (lambda: conformal_threshold([1.5], [1], 0.1), r"confidence\[0\] is 1.5"),
        (lambda: answer_or_abstain([0.5], float("nan")), "threshold: expected"),
        (lambda: plan_thresholds([0.5], [1], 0.1, n_items=0), "n_items"),
    ],
)
def test_wrong_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
