"""Bootstrap of many items: closed forms of its counts, and the plain bootstrap as the reference."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from calmtune.metrics import (
    ClasswiseError,
    ConfidenceError,
    bootstrap_interval,
    bootstrap_many,
    classwise_ece,
    compare_many,
    expected_calibration_error,
    many_items,
    paired_difference,
)

# items a part, in residuals; the last takes all items in one part
PARTS = [150, 2**24]


@pytest.fixture(params=PARTS, ids=["small parts", "one part"])
def parts(request, monkeypatch):
    monkeypatch.setattr(many_items, "PART_VALUES", request.param)
    monkeypatch.setattr(many_items, "TILE_ITEMS", 64)


def resampled(items, n_resamples, seed=0):
    return many_items._resample((items,), seed, n_resamples, 1, swaps=False).drawn[0]


def test_every_resample_draws_as_many_items_as_there_are(parts):
    # in each item the confidence is 1/4 and the answer wrong: the error is 1/4 whatever is drawn, if N items are
    for n in (1, 3, 500):
        assert resampled(ConfidenceError(np.full(n, 0.25), np.zeros(n)), 300) == pytest.approx(0.25, abs=1e-12)


def test_how_often_one_item_is_drawn_is_binomial(parts):
    n, n_resamples = 400, 20000
    confidence = np.zeros(n)
    confidence[123] = 0.75  # the others are right to be sure that they are wrong, so only this one has an error
    times = np.rint(resampled(ConfidenceError(confidence, np.zeros(n)), n_resamples) * n / 0.75)
    expected = stats.binom.pmf(np.arange(5), n, 1 / n) * n_resamples
    observed = np.bincount(times.astype(int), minlength=5)[:5]
    assert (
        stats.chisquare([*observed, n_resamples - observed.sum()], [*expected, n_resamples - expected.sum()]).pvalue
        > 1e-3
    )


def test_how_many_items_fall_on_one_half_is_binomial(parts):
    n = 600
    confidence = np.where(np.arange(n) < n // 2, 0.75, 0.0)  # parts lie in one half or the other
    from_first = resampled(ConfidenceError(confidence, np.zeros(n)), 20000) * n / 0.75
    assert from_first.mean() == pytest.approx(n / 2, abs=4 * math.sqrt(n / 4 / 20000))
    assert from_first.var() == pytest.approx(n / 4, rel=0.05)


def test_no_two_parts_share_random_numbers(parts, monkeypatch):
    states, generator = [], many_items._generator

    def watched(*seeds):
        states.append(str(generator(*seeds).bit_generator.state))
        return generator(*seeds)

    monkeypatch.setattr(many_items, "_generator", watched)
    a, b, correct = outcome(np.random.default_rng(0), 600)
    compare_many(ConfidenceError(a, correct), ConfidenceError(b, correct), n_resamples=10)
    # one for the parts' totals, and for each part one for its draws and one for its exchanges
    assert len(states) == len(set(states)) == 1 + 2 * (1 if many_items.PART_VALUES > 150 else 8)


def test_two_items_crowd_each_other_out_as_in_a_multinomial(parts):
    n, n_resamples = 4, 40000  # so few that the covariance -1/n shows
    confidence, correct = np.array([0.75, 0.35, 0.0, 0.0]), np.zeros(n)
    error = resampled(ConfidenceError(confidence, correct), n_resamples) * n
    spread = (0.75**2 + 0.35**2) * (1 - 1 / n) - 2 * 0.75 * 0.35 / n
    assert error.var() == pytest.approx(spread, rel=0.03)
    assert error.mean() == pytest.approx(1.1, rel=0.02)


@pytest.mark.parametrize("mean", [0.05, 0.6, 0.999])
def test_poisson_counts_have_the_poisson_distribution(mean):
    table, distribution = many_items._poisson_table(mean)
    edges = np.arange(2**16 + 1) / 2**16
    for k in range(6):
        decided = table == k
        assert (stats.poisson.cdf(k - 1, mean) <= edges[:-1][decided] + 1e-12).all()
        assert (stats.poisson.cdf(k, mean) >= edges[1:][decided] - 1e-12).all()
    assert (table == 255).sum() < 20
    counts = many_items._poisson(table, distribution, (1000, 2000), np.random.Generator(np.random.SFC64(1)))
    expected = stats.poisson.pmf(np.arange(6), mean) * counts.size
    observed = np.bincount(counts.astype(int).ravel(), minlength=6)[:6]
    large = expected > 5
    assert (
        stats.chisquare(
            [*observed[large], counts.size - observed[large].sum()],
            [*expected[large], counts.size - expected[large].sum()],
        ).pvalue
        > 1e-3
    )


def test_bits_that_do_not_decide_a_count_are_followed_by_more():
    table, distribution = many_items._poisson_table(0.9)
    undecided = np.flatnonzero(table == 255)
    first = undecided[0]  # here 0 ends and 1 begins
    share = (distribution[0] - first / 2**16) * 2**16

    class Stuck:
        """Always gives the 16 bits that do not decide, and true random numbers after them."""

        def __init__(self):
            self.random = np.random.default_rng(0).random
            self.bit_generator = self

        def random_raw(self, count):
            return np.full(4 * count, first, dtype=np.uint16).view(np.uint64)

    counts = many_items._poisson(table, distribution, (100, 100), Stuck())
    assert set(np.unique(counts)) == {0.0, 1.0}
    assert (counts == 0).mean() == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 10000))


def outcome(rng, n):
    a = rng.beta(4, 2, n)
    correct = rng.random(n) < a - 0.05
    return a, np.clip(a + 0.15 * rng.standard_normal(n), 0, 1), correct


def close(found, reference, spread):
    """Ends of two intervals from 3000 resamples each: their noise is about 4 % of the distribution's deviation."""
    for one, other in zip(found, reference, strict=True):
        assert one == pytest.approx(other, abs=0.2 * spread)


def test_conf_ece_has_the_distribution_of_the_plain_bootstrap(parts):
    a, b, correct = outcome(np.random.default_rng(0), 600)
    one, other = ConfidenceError(a, correct), ConfidenceError(b, correct)
    found = bootstrap_many(one, seed=1, n_resamples=3000)
    plain = bootstrap_interval(expected_calibration_error, a, correct, seed=2, n_resamples=3000)
    assert found.estimate == pytest.approx(plain.estimate, abs=1e-14)
    close(found[1:], plain[1:], (plain.high - plain.low) / 4)
    pair = compare_many(one, other, seed=1, n_resamples=3000)
    reference = paired_difference(expected_calibration_error, (a, correct), (b, correct), seed=2, n_resamples=3000)
    assert pair.estimate == pytest.approx(reference.estimate, abs=1e-14)
    close(pair[1:3], reference[1:3], (reference.high - reference.low) / 4)
    p = reference.p_value
    assert pair.p_value == pytest.approx(p, abs=4 * math.sqrt(2 * p * (1 - p) / 3000) + 1e-3)
    assert compare_many(one, other, seed=1, n_resamples=3000) == pair
    assert compare_many(one, other, seed=1, n_resamples=3000, threads=3) == pair
    assert compare_many(one, other, seed=3, n_resamples=3000) != pair


def test_classwise_ece_of_items_with_different_numbers_of_options(parts):
    rng = np.random.default_rng(0)
    n = 300
    options = rng.integers(2, 5, n)
    options[options == 4] = 3
    options[7] = 4  # the only item with a fourth option: resamples without it have three classes

    def side():
        p = rng.dirichlet(np.ones(4), n) * (np.arange(4) < options[:, None])
        return p / p.sum(axis=1, keepdims=True)

    p, q, labels = side(), side(), (rng.random(n) * options).astype(int)
    found = compare_many(
        ClasswiseError(p, labels, 5, options), ClasswiseError(q, labels, 5, options), seed=1, n_resamples=3000
    )
    reference = paired_difference(
        lambda p, y, k: classwise_ece(p, y, 5, k), (p, labels, options), (q, labels, options), seed=2, n_resamples=3000
    )
    assert found.estimate == pytest.approx(reference.estimate, abs=1e-14)
    close(found[1:3], reference[1:3], (reference.high - reference.low) / 4)
    assert found.p_value == pytest.approx(reference.p_value, abs=0.05)


def test_exchanges_against_enumeration():
    rng = np.random.default_rng(5)
    a, b, correct = outcome(rng, 9)
    rows = np.arange(9)
    differences = []
    for swap in itertools.product([False, True], repeat=9):
        left, right = np.where(swap, b, a), np.where(swap, a, b)
        differences.append(
            expected_calibration_error(left, correct[rows]) - expected_calibration_error(right, correct[rows])
        )
    here = expected_calibration_error(a, correct) - expected_calibration_error(b, correct)
    exact = np.mean(np.abs(differences) >= abs(here) - 1e-12)
    found = compare_many(ConfidenceError(a, correct), ConfidenceError(b, correct), n_resamples=20000)
    assert found.p_value == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 20000))
    assert 0.02 < exact < 0.98


def test_memory_is_that_of_a_part_and_a_tile(monkeypatch):
    monkeypatch.setattr(many_items, "PART_VALUES", 4000)
    tiles, reads = [], []
    poisson = many_items._poisson
    monkeypatch.setattr(
        many_items, "_poisson", lambda t, d, shape, rng: (tiles.append(shape), poisson(t, d, shape, rng))[1]
    )

    class Watched(ConfidenceError):
        def read(self, start, stop):
            reads.append(stop - start)
            return super().read(start, stop)

    a, b, correct = outcome(np.random.default_rng(0), 10000)
    compare_many(Watched(a, correct), Watched(b, correct), n_resamples=300)
    assert max(reads[-2 * 5 :]) == 2000
    assert max(rows for rows, _ in tiles) == many_items.TILE_RESAMPLES
    assert max(items for _, items in tiles) == many_items.TILE_ITEMS
    assert len(tiles) == 5 * 2 * 3


def test_unlike_sides_and_wrong_settings_are_refused():
    one, other = ConfidenceError([0.5, 0.6], [1, 0]), ConfidenceError([0.5], [1])
    p = np.array([[0.5, 0.5, 0.0]] * 2)
    ragged = [ClasswiseError(p, [0, 1], n_options=options) for options in ([2, 3], [3, 2])]
    for call, message in (
        (lambda: compare_many(one, other), "same kind of error"),
        (lambda: compare_many(one, ConfidenceError([0.5, 0.6], [1, 0], 5)), "same kind of error"),
        (lambda: compare_many(ragged[0], ragged[1]), "differ in n_options"),
        (lambda: compare_many(ragged[0], ClasswiseError(p, [0, 1])), "differ in n_options"),
        (lambda: bootstrap_many(one, level=2.0), "level"),
        (lambda: bootstrap_many(one, threads=0), "threads"),
        (lambda: bootstrap_many(one, n_resamples=0), "n_resamples"),
        (lambda: bootstrap_many(ConfidenceError([0.5, 1.5], [1, 0])), r"confidence\[1\]"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
