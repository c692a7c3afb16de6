"""The joint direction: its invariant, and bilevel problems whose solution is known."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from calmtune.bilevel import bome_direction, bome_step
from calmtune.bilevel.bome import inner_product

F64 = torch.float64


def random_gradients(seed):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(3,), (2, 4), (1,)]
    scale = 10.0 ** (seed % 9 - 4)
    upper = [torch.randn(s, generator=generator, dtype=F64) for s in shapes]
    lower = [torch.randn(s, generator=generator, dtype=F64) * scale for s in shapes]
    return upper, lower


# ---- the invariant -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("barrier", ["gradient", "residual"])
def test_direction_makes_the_residual_fall_at_the_rate_of_the_barrier(barrier):
    active = 0
    for seed in range(400):
        upper, lower = random_gradients(seed)
        eta, residual = 0.1 + (seed % 7), 0.3 * (seed % 5)
        step = bome_direction(upper, lower, residual, eta=eta, barrier=barrier)
        phi = eta * inner_product(lower, lower) if barrier == "gradient" else eta * residual
        progress = inner_product(step.direction, lower)
        slack = 1e-9 * (abs(phi) + inner_product(upper, upper) ** 0.5 * step.lower_norm)
        assert progress >= phi - slack
        if step.multiplier > 0:
            active += 1
            assert progress == pytest.approx(phi, abs=slack)
        else:
            assert all(torch.equal(a, b) for a, b in zip(step.direction, upper, strict=True))
    assert active > 50


def test_direction_is_the_nearest_one_that_makes_progress():
    upper, lower = random_gradients(3)
    step = bome_direction(upper, lower, eta=0.5)
    flat = np.concatenate([u.numpy().ravel() for u in upper])
    q = np.concatenate([v.numpy().ravel() for v in lower])
    solution = minimize(
        lambda d: ((d - flat) ** 2).sum(),
        flat,
        jac=lambda d: 2 * (d - flat),
        constraints={"type": "ineq", "fun": lambda d: d @ q - 0.5 * q @ q, "jac": lambda d: q},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    ours = np.concatenate([d.numpy().ravel() for d in step.direction])
    assert np.allclose(ours, solution.x, atol=1e-6)


def test_one_multiplier_for_both_blocks_worked_by_hand():
    # df = (1, 0), dq = (-1, 1), eta .5: phi = 1, <df, dq> = -1, lambda = 2 / 2 = 1
    step = bome_direction(
        [torch.tensor([1.0]), torch.tensor([0.0])], [torch.tensor([-1.0]), torch.tensor([1.0])], eta=0.5
    )
    assert step.multiplier == pytest.approx(1.0)
    assert step.barrier == pytest.approx(1.0)
    assert [d.item() for d in step.direction] == [0.0, 1.0]
    assert step.cosine == pytest.approx(-1 / math.sqrt(2))


def test_no_residual_gradient_leaves_the_upper_gradient():
    step = bome_direction([torch.ones(2)], [torch.zeros(2)], eta=1.0)
    assert step.multiplier == 0.0
    assert torch.equal(step.direction[0], torch.ones(2))
    assert math.isnan(step.cosine)


def test_tiny_and_huge_gradients_keep_the_multiplier():
    for scale in (1e-18, 1e18):
        step = bome_direction([torch.tensor([scale, 0.0])], [torch.tensor([-scale, scale])], eta=0.5)
        assert step.multiplier == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_stops(bad):
    with pytest.raises(FloatingPointError, match="not finite"):
        bome_direction([torch.tensor([bad])], [torch.ones(1)])
    with pytest.raises(FloatingPointError, match="not finite"):
        bome_direction([torch.ones(1)], [torch.ones(1)], bad)


def test_settings_that_cannot_be_meant_are_refused():
    with pytest.raises(ValueError, match="eta"):
        bome_direction([torch.ones(1)], [torch.ones(1)], eta=-0.1)
    with pytest.raises(ValueError, match="barrier"):
        bome_direction([torch.ones(1)], [torch.ones(1)], barrier="none")  # type: ignore[arg-type]


# ---- the residual --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner_steps", [1, 2, 10])
def test_residual_and_its_gradient_of_a_quadratic_have_closed_forms(inner_steps):
    # g = (theta - alpha)^2 / 2: theta~ - alpha = (1 - a)^T (theta - alpha)
    a, alpha, theta = 0.1, 0.4, 2.0
    shrink = (1 - a) ** inner_steps
    d = theta - alpha
    A, B = (torch.tensor([v], dtype=F64, requires_grad=True) for v in (alpha, theta))
    step = bome_step(
        lambda x, t: 0.5 * (t[0] - x[0]).square().sum(),
        lambda x, t: 0.0 * x[0].sum() + 0.0 * t[0].sum(),
        [A], [B], inner_steps=inner_steps, inner_learning_rate=a, eta=1.0,
    )  # fmt: skip
    assert step.residual == pytest.approx(0.5 * d * d * (1 - shrink**2), abs=1e-12)
    # theta~ is a constant: dq/dalpha = -(theta - alpha) + (theta~ - alpha), dq/dtheta = theta - alpha
    expected = (-d + shrink * d, d)
    assert step.multiplier == pytest.approx(1.0)
    assert [x.item() for x in step.direction] == pytest.approx(expected, abs=1e-12)
    assert A.item() == alpha
    assert B.item() == theta


def test_outer_gradient_is_neither_cut_nor_missing():
    A = torch.tensor([0.5], dtype=F64, requires_grad=True)
    B = torch.tensor([0.0], dtype=F64, requires_grad=True)
    step = bome_step(
        lambda x, t: (x[0] * (t[0] - 3).square()).sum(), lambda x, t: (t[0] - 1).square().sum(),
        [A], [B], inner_steps=1, inner_learning_rate=0.1, eta=0.5,
    )  # fmt: skip
    # w~ = 0.3: q = .5 * 9 - .5 * 7.29, dq/dx = 9 - 7.29, dq/dw = -3
    assert step.residual == pytest.approx(0.855, abs=1e-12)
    phi, overlap, squared = 0.5 * (1.71**2 + 9), -2 * -3.0, 1.71**2 + 9
    assert step.multiplier == pytest.approx(max((phi - overlap) / squared, 0), abs=1e-12)


# ---- problems with a known solution --------------------------------------------------------------------------------


def solve(lower, upper, alpha, theta, *, rate, steps, **settings):
    for _ in range(steps):
        step = bome_step(lower, upper, alpha, theta, **settings)
        with torch.no_grad():
            for variable, direction in zip([*alpha, *theta], step.direction, strict=True):
                variable -= rate * direction
    return alpha, theta


def leaf(*values):
    return torch.tensor(values, dtype=F64, requires_grad=True)


@pytest.mark.parametrize("barrier", ["gradient", "residual"])
def test_quadratic_problem_reaches_its_optimum(barrier):
    # theta*(alpha) = 2 alpha; f = (theta - 4)^2 + (alpha - 1)^2 -> 4(2a - 4) + 2(a - 1) = 0: alpha = 1.8, theta = 3.6
    alpha, theta = solve(
        lambda a, t: 0.5 * (t[0] - 2 * a[0]).square().sum(), lambda a, t: (t[0] - 4).square().sum() + (a[0] -
        1).square().sum(), [leaf(0.0)], [leaf(0.0)], rate=0.02, steps=6000, inner_steps=10, inner_learning_rate=0.5,
        eta=0.5, barrier=barrier,
    )  # fmt: skip
    assert alpha[0].item() == pytest.approx(1.8, abs=0.02)
    assert theta[0].item() == pytest.approx(3.6, abs=0.04)


@pytest.mark.parametrize("inner_steps", [1, 10])
def test_lower_level_without_a_unique_solution(inner_steps):
    # min |x - y2|^2 / 2 + |y1 - e|^2 / 2 over (y1, y2) in argmin |y1|^2 / 2 - x'y1: y2 is free below;
    # solution x = y1 = y2 = e
    n = 20
    x = [torch.full((n,), 3.0, dtype=F64, requires_grad=True)]
    y = [torch.full((n,), -2.0, dtype=F64, requires_grad=True), torch.full((n,), 5.0, dtype=F64, requires_grad=True)]
    solve(
        lambda a, t: 0.5 * t[0].square().sum() - (a[0] * t[0]).sum() + 0.0 * t[1].sum(),
        lambda a, t: 0.5 * (a[0] - t[1]).square().sum() + 0.5 * (t[0] - 1).square().sum(),
        x, y, rate=0.1, steps=3000, inner_steps=inner_steps, inner_learning_rate=0.5, eta=0.5,
    )  # fmt: skip
    for variable in (*x, *y):
        assert (variable - 1).abs().max().item() < 0.02


@pytest.mark.parametrize("inner_steps", [1, 10])
def test_two_dimensional_coreset(inner_steps):
    # min |theta - x0|^2 with theta = X softmax(v): the point of the triangle's hull nearest to x0, here on an edge
    points = torch.tensor([[1.0, 3.0], [3.0, 1.0], [-2.0, 2.0], [-3.0, 0.5]], dtype=F64).T
    target = torch.tensor([4.0, 4.0], dtype=F64)
    nearest = minimize(
        lambda w: float(((points.numpy() @ w - target.numpy()) ** 2).sum()),
        np.full(4, 0.25),
        bounds=[(0, 1)] * 4,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"ftol": 1e-14},
    )
    solution = points.numpy() @ nearest.x
    assert np.allclose(solution, [2.0, 2.0], atol=1e-4)  # the middle of the edge (1, 3)-(3, 1)
    v, theta = [torch.zeros(4, dtype=F64, requires_grad=True)], [torch.zeros(2, dtype=F64, requires_grad=True)]
    solve(
        lambda a, t: (t[0] - points @ torch.softmax(a[0], 0)).square().sum(),
        lambda a, t: (t[0] - target).square().sum(),
        v, theta, rate=0.01, steps=6000, inner_steps=inner_steps, inner_learning_rate=0.4, eta=4.0,
    )  # fmt: skip
    reached = (points @ torch.softmax(v[0].detach(), 0)).numpy()
    assert np.linalg.norm(reached - solution) < 0.1
    assert np.linalg.norm(theta[0].detach().numpy() - solution) < 0.1
