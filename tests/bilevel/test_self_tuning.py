"""The barrier's controller: the filter against the exact posterior, the law by hand, and closed loops that settle."""

import json
import math

import numpy as np
import pytest

from calmtune.bilevel.self_tuning import PRIOR_DEVIATION, EtaController, GapFilter, PullController


def test_without_drift_the_filter_is_the_precision_weighted_mean():
    measured = [(0.31, 0.1), (0.12, 0.05), (0.4, 0.2)]
    smooth = GapFilter(drift=0.0)
    for gap, error in measured:
        smooth.update(gap, error)
    precisions = [1 / error**2 for _, error in measured]
    total = 1 / PRIOR_DEVIATION**2 + sum(precisions)
    assert smooth.value == pytest.approx(sum(p * gap for p, (gap, _) in zip(precisions, measured, strict=True)) / total)
    assert smooth.variance == pytest.approx(1 / total)


def test_with_drift_the_filter_is_the_posterior_of_a_random_walk():
    # the joint normal of (walk at each time, measurements), conditioned by linear algebra
    drift, errors, gaps = 0.07, [0.1, 0.02, 0.3, 0.05], [0.2, 0.25, -0.1, 0.1]
    n = len(gaps)
    walk = np.array([[PRIOR_DEVIATION**2 + drift**2 * (1 + min(i, j)) for j in range(n)] for i in range(n)])
    noise = np.diag(np.square(errors))
    expected = walk[-1] @ np.linalg.solve(walk + noise, gaps)
    smooth = GapFilter(drift)
    for gap, error in zip(gaps, errors, strict=True):
        smooth.update(gap, error)
    assert smooth.value == pytest.approx(expected)


def test_an_exact_measurement_is_taken_as_it_is():
    smooth = GapFilter()
    assert smooth.update(0.25, 0.0) == pytest.approx(0.25)
    assert smooth.variance == pytest.approx(0.0, abs=1e-15)


def test_the_law_by_hand():
    controller = EtaController(start=2.0, low=1e-3, high=1e3, proportional=4.0, integral=0.5)
    first = controller.update({"all": (0.2, 0.0)})
    assert first == pytest.approx(2.0 * math.exp(-0.5 * 0.2))  # no change is known yet
    second = controller.update({"all": (0.1, 0.0)})
    assert second == pytest.approx(first * math.exp(-0.5 * 0.1 + 4.0 * 0.1))  # the gap closes: the entropy is let go


def test_the_most_overconfident_group_decides():
    ours = EtaController(drift=0.1).update({"easy": (-0.2, 0.0), "hard": (0.3, 0.0)})
    assert ours == EtaController(drift=0.1).update({"hard": (0.3, 0.0)}) < 1.0


def test_bounds_hold_and_nothing_winds_up_behind_them():
    controller = EtaController(start=1.0, low=0.5, high=8.0, proportional=0.0, integral=1.0)
    for _ in range(50):
        assert controller.update({"all": (0.9, 0.0)}) >= 0.5
    assert controller.eta == 0.5
    # one step off the bound at once, not after fifty
    assert controller.update({"all": (-0.9, 0.0)}) == pytest.approx(0.5 * math.exp(0.9))
    for _ in range(50):
        controller.update({"all": (-0.9, 0.0)})
    assert controller.eta == 8.0


def closed_loop(controller, plant, *, noise, updates=80, seed=0):
    """Drive a plant, which maps (gap, eta) to the next gap; the gap and eta after each update."""
    generator, gap, seen = np.random.default_rng(seed), plant.start, []
    for _ in range(updates):
        controller.update({"all": (gap + noise * generator.standard_normal(), noise)})
        gap = plant(gap, controller.eta)
        seen.append((gap, controller.eta))
    return np.array(seen)


class Lagging:
    """The gap goes to a level that eta sets, a third of the way an update: the task and the entropy in balance."""

    start = 0.3

    def __call__(self, gap, eta):
        return gap + 0.3 * (0.1 * math.log(eta / 0.7) - gap)


class Creeping:
    """tau grows at a speed that eta sets, and the model sharpens a little against it: what alpha does."""

    start = 0.45

    def __call__(self, gap, eta):
        return gap - 0.15 / (1 + eta) + 0.02 * eta / (1 + eta)


@pytest.mark.parametrize("plant", [Lagging(), Creeping()], ids=["lagging", "creeping"])
@pytest.mark.parametrize("start", [0.5, 2.0, 50.0])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_the_gap_closes_wherever_eta_starts_and_stays_closed(plant, start, noise):
    seen = closed_loop(EtaController(start=start), plant, noise=noise)
    last = seen[-25:]
    assert abs(last[:, 0].mean()) < 0.03
    assert last[:, 0].std() < 0.04
    assert seen[:, 0].min() > -0.12


def test_integration_alone_swings_where_alpha_answers_with_a_delay():
    # what the proportional part is for
    swinging = closed_loop(EtaController(proportional=0.0), Creeping(), noise=0.0)
    calm = closed_loop(EtaController(), Creeping(), noise=0.0)
    assert swinging[-40:, 0].std() > 10 * calm[-40:, 0].std()


def test_the_pull_by_hand():
    controller = PullController(eta=3.0, gain=4.0)
    assert controller.pull == 1.0  # in full until something was measured
    assert [controller.update({"all": (gap, 0.0)}) for gap in (0.3, 0.2, -0.1, -0.9)] == pytest.approx(
        [1, 0.8, -0.4, -1]
    )
    assert controller.eta == 3.0
    assert PullController().update({"easy": (-0.2, 0.0), "hard": (0.05, 0.0)}) == pytest.approx(0.5)


class Pulled:
    """A gap that the pull alone moves, either way, with a slow drift to overconfidence: what theta does."""

    def __init__(self, start):
        self.start = start

    def __call__(self, gap, pull):
        return gap - 0.06 * pull + 0.01


@pytest.mark.parametrize("start", [0.45, -0.3])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_the_pull_closes_a_gap_from_either_side(start, noise):
    controller, plant, seen = PullController(), Pulled(start), []
    generator, gap = np.random.default_rng(0), start
    for _ in range(80):
        gap = plant(gap, controller.update({"all": (gap + noise * generator.standard_normal(), noise)}))
        seen.append(gap)
    assert abs(np.mean(seen[-25:])) < 0.035  # the drift leaves .01 / (.06 * 10)
    assert np.std(seen[-25:]) < 0.04


@pytest.mark.parametrize("kind", [EtaController, PullController])
def test_the_state_goes_through_json_and_on(kind):
    whole, first = kind(), kind()
    gaps = [{"a": (0.3, 0.1), "b": (0.1, 0.02)}, {"a": (0.2, 0.1)}, {"b": (0.4, 0.1)}, {"a": (-0.3, 0.05)}]
    for one in gaps[:2]:
        whole.update(one)
        first.update(one)
    second = kind()
    second.load(json.loads(json.dumps(first.state())))
    for one in gaps[2:]:
        assert second.update(one) == whole.update(one)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="low <= start <= high"):
        EtaController(start=0.1, low=0.5)
    with pytest.raises(ValueError, match="gains >= 0"):
        EtaController(integral=-1.0)
    with pytest.raises(ValueError, match="gain > 0"):
        PullController(gain=0.0)
    with pytest.raises(ValueError, match="at least one group"):
        EtaController().update({})
    with pytest.raises(FloatingPointError, match="gap of 'all' is nan"):
        EtaController().update({"all": (math.nan, 0.1)})


def test_a_group_that_is_seen_late_is_no_movement():
    controller = EtaController(start=4.0, low=1e-3, high=1e3, drift=0.0)
    for _ in range(5):
        controller.update({"a": (0.0, 0.01)})
    assert controller.update({"b": (0.3, 0.0)}) == pytest.approx(4.0 * math.exp(-0.3))


def test_a_group_that_is_not_measured_is_known_less_and_less():
    controller = EtaController(drift=0.1)
    controller.update({"a": (0.2, 0.05), "b": (0.1, 0.05)})
    before = controller.worst.filters["b"].variance
    controller.update({"a": (0.2, 0.05)})
    controller.update({"a": (0.2, 0.05)})
    assert controller.worst.filters["b"].variance == pytest.approx(before + 2 * 0.1**2)
