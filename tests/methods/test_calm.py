"""CALM's step on small problems: the same direction as plain autograd, with as few passes as there can be."""

from collections import Counter

import pytest
import torch

from calmtune.bilevel import bome_step
from calmtune.methods.calm import calm_step
from calmtune.methods.passes import PassResult
from calmtune.methods.sft import plain_step


class Problem:
    """g = |A theta - alpha|^2 and f = sum cos(theta) + alpha^2, with a record of the passes."""

    def __init__(self, seed):
        torch.manual_seed(seed)
        self.matrix = torch.randn(3, 3, dtype=torch.float64)
        self.theta = [torch.randn(3, dtype=torch.float64, requires_grad=True)]
        self.alpha = [torch.randn(3, dtype=torch.float64, requires_grad=True)]
        self.calls = Counter()

    def g(self, alpha, theta):
        return (self.matrix @ theta[0] - alpha[0]).square().sum()

    def f(self, alpha, theta):
        return theta[0].cos().sum() + alpha[0].square().sum()

    def a_pass(self, name):
        def run(*, theta_gradient):
            self.calls[name, theta_gradient] += 1
            value = (self.g if name == "lower" else self.f)(self.alpha, self.theta)
            alpha = torch.autograd.grad(value, self.alpha, retain_graph=True)
            theta = torch.autograd.grad(value, self.theta) if theta_gradient else ()
            return PassResult(value.item(), theta, alpha)

        return run


@pytest.mark.parametrize("inner_steps", [1, 2, 5])
@pytest.mark.parametrize("barrier", ["gradient", "residual"])
@pytest.mark.parametrize("seed", range(5))
def test_direction_equals_plain_autograd(inner_steps, barrier, seed):
    problem = Problem(seed)
    settings = {"eta": 0.7, "barrier": barrier, "inner_steps": inner_steps, "inner_learning_rate": 0.03}
    expected = bome_step(problem.g, problem.f, problem.alpha, problem.theta, **settings)
    step = calm_step(problem.theta, problem.a_pass("lower"), problem.a_pass("upper"), **settings)
    assert step.bome.multiplier == pytest.approx(expected.multiplier, rel=1e-10)
    for ours, theirs in zip((*step.alpha, *step.theta), expected.direction, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("inner_steps", [1, 3])
def test_nothing_is_computed_twice(inner_steps):
    problem = Problem(0)
    calm_step(problem.theta, problem.a_pass("lower"), problem.a_pass("upper"), eta=1.0, inner_steps=inner_steps)
    # with T = 1: one forward-backward and one forward on B_T, one forward-backward on B_V
    assert problem.calls == {("lower", True): inner_steps, ("lower", False): 1, ("upper", True): 1}


def test_alpha_alone_needs_no_backward_through_theta():
    problem = Problem(0)
    step = calm_step(problem.theta, problem.a_pass("lower"), problem.a_pass("upper"), eta=1.0, upper_gradient="alpha")
    assert problem.calls["upper", False] == 1
    assert problem.calls["upper", True] == 0
    task = problem.a_pass("lower")(theta_gradient=True).theta[0]
    assert torch.allclose(step.theta[0], step.bome.multiplier * task, rtol=1e-12, atol=0)


def test_theta_comes_back_bit_for_bit_even_after_an_error():
    problem = Problem(1)
    before = problem.theta[0].detach().clone()
    lower = problem.a_pass("lower")

    def failing(*, theta_gradient):
        if not theta_gradient:
            assert not torch.equal(problem.theta[0], before)  # the surrogate did move
            raise FloatingPointError("overflow")
        return lower(theta_gradient=theta_gradient)

    with pytest.raises(FloatingPointError, match="overflow"):
        calm_step(problem.theta, failing, problem.a_pass("upper"), eta=1.0, inner_learning_rate=0.3)
    assert torch.equal(problem.theta[0], before)


def test_plain_fine_tuning_is_the_task_gradient():
    problem = Problem(2)
    step = plain_step(problem.a_pass("lower"))
    assert step.lower == pytest.approx(problem.g(problem.alpha, problem.theta).item())
    assert torch.equal(step.theta[0], torch.autograd.grad(problem.g(problem.alpha, problem.theta), problem.theta)[0])
    assert step.alpha == ()
    assert problem.calls == {("lower", True): 1}
