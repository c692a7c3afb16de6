"""The two temperatures of open questions against cases that can be worked by hand or drawn from known distributions."""

import numpy as np
import pytest

from calmtune.graded import GradedAnswers, GradedQuestion
from calmtune.metrics.semantic_pool import pool_samples
from calmtune.report.openqa_readings import class_confidence, pools_of, read_open
from calmtune.report.openqa_temperature import GridPoint, _zero, find_sampler_temperature, fit_class_temperature
from report.open_cases import RULES, graded


def pools(rows):
    return pool_samples(rows)


def of(rows, correct):
    """Graded answers with these classes; ``correct`` says which class of each question is right."""
    items = tuple(
        GradedQuestion(str(i), "d", "?", ("x",), tuple(map(str, row)), dict.fromkeys(RULES, tuple(row)),
                       tuple(one == right for one in row), (False,) * len(row))
        for i, (row, right) in enumerate(zip(rows, correct, strict=True))
    )  # fmt: skip
    return GradedAnswers(items, {"rule": "exact/calmtune-1", "rules": RULES})


def test_class_confidence_by_hand():
    both = pools([[0, 0, 0, 1], [5, 5, 5, 5]])
    assert class_confidence(both).tolist() == [0.75, 1.0]
    # 3^(1/2) / (3^(1/2) + 1) and 3^2 / (3^2 + 1)
    np.testing.assert_allclose(class_confidence(both, 2.0), [3**0.5 / (3**0.5 + 1), 1.0])
    np.testing.assert_allclose(class_confidence(both, 0.5), [0.9, 1.0])
    assert class_confidence(pools([[0, 1, 2, 3]]), 17.0).tolist() == [0.25]


def test_the_class_temperature_by_hand():
    # every pool is 3 to 1; half of the modal classes are right, so the best confidence would be 1/2, at the bound
    half = of([[0, 0, 0, 1]] * 8, [0, 1] * 4)
    found = fit_class_temperature(half)
    assert not found.identified
    assert found.temperature > 10
    # 9 of 10 right: 3^(1/T) / (3^(1/T) + 1) = .9 at T = 1/2
    sure = of([[0, 0, 0, 1]] * 10, [0] * 9 + [1])
    found = fit_class_temperature(sure)
    assert found.identified
    assert found.temperature == pytest.approx(0.5, abs=1e-4)
    assert found.brier == pytest.approx(0.09, abs=1e-9)
    assert found.brier_before == pytest.approx(0.9 * 0.25**2 + 0.1 * 0.75**2)
    assert found.n == 10


def test_pools_of_one_class_determine_no_temperature():
    found = fit_class_temperature(of([[0, 0], [1, 1]], [0, 0]))
    assert (found.identified, found.temperature) == (False, 1.0)


def test_it_is_the_lowest_brier_score_there_is():
    cases = graded("cal", 120, sharp=3.0, seed=5)
    found, right = fit_class_temperature(cases), read_open(cases).correct
    counted = pools_of(cases)
    for temperature in np.geomspace(0.05, 20, 301):
        confidence = class_confidence(counted, float(temperature))
        assert ((confidence - right) ** 2).mean() >= found.brier - 1e-9


def test_a_temperature_of_the_classes_changes_neither_answers_nor_sem2():
    cases = graded("cal", 30, seed=5)
    one, other = read_open(cases), read_open(cases, temperature=3.0)
    assert (one.correct == other.correct).all()
    assert (one.sem2 == other.sem2).all()
    assert (one.sem1 != other.sem1).any()


def points(*gaps):
    return tuple(GridPoint(t, 0.5 + gap, 0.5, 10) for t, gap in zip((0.5, 1.0, 2.0), gaps, strict=False))


def test_the_samplers_temperature_lies_where_the_gap_is_zero():
    # a straight line over ln T from .3 at 1 to -.1 at 2: three quarters of the way
    assert _zero(points(0.4, 0.3, -0.1)).temperature == pytest.approx(2**0.75)
    assert _zero(points(0.2, 0.0, -0.1)).temperature == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("gaps", "told"),
    [((0.4, 0.3, 0.2), "above 2"), ((-0.1, -0.2, -0.3), "below 0.5"), ((-0.1, 0.1, 0.2), "not found")],
)
def test_outside_the_grid_no_temperature_is_made_up(gaps, told):
    found = _zero(points(*gaps))
    assert found.temperature is None
    assert told in found.told


def test_a_sampler_whose_temperature_is_known():
    """Answers drawn from softmax(z / T), graded so that at T = 2 each is right as often as it is likely."""
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(1500, 4))
    truth = np.exp(z / 2) / np.exp(z / 2).sum(1, keepdims=True)
    gold = np.array([rng.choice(4, p=p) for p in truth])
    sampled = {}
    for temperature in (0.7, 1.0, 1.6, 2.6):
        p = np.exp(z / temperature)
        p /= p.sum(1, keepdims=True)
        rows = [rng.choice(4, size=20, p=one).tolist() for one in p]
        sampled[temperature] = of(rows, gold.tolist())
    found = find_sampler_temperature(sampled)
    assert found.temperature == pytest.approx(2.0, rel=0.12)
    assert [point.temperature for point in found.points] == [0.7, 1.0, 1.6, 2.6]


def test_every_temperature_needs_the_same_questions():
    with pytest.raises(ValueError, match="same questions at every temperature"):
        find_sampler_temperature({1.0: graded("a", 4), 2.0: graded("b", 4)})
