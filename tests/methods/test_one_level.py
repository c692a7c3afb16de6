"""Golden runs of the two ablations without lambda, on a quadratic whose every step is worked by hand.

    g = (theta - alpha)^2 / 2,        dg/dtheta = theta - alpha,    dg/dalpha = alpha - theta
    f = theta^2 / 2 + alpha theta,    df/dtheta = theta + alpha,    df/dalpha = theta

from theta = 4, alpha = 0, plain gradient descent at rate 1/2. All numbers are exact in binary.
"""

import pytest
import torch

from calmtune.methods.iterate import iterate_step
from calmtune.methods.passes import PassResult
from calmtune.methods.regularization import regularization_step


class Quadratic:
    """The problem, where it stands, and the passes asked of it."""

    def __init__(self):
        self.alpha, self.theta = 0.0, 4.0
        self.asked = []

    def lower(self, *, theta_gradient):
        self.asked.append(("lower", self.theta, theta_gradient))
        gap = self.theta - self.alpha
        return self._result(gap * gap / 2, gap, -gap)

    def upper(self, *, theta_gradient):
        self.asked.append(("upper", self.theta, theta_gradient))
        value = self.theta * self.theta / 2 + self.alpha * self.theta
        return self._result(value, self.theta + self.alpha, self.theta)

    def descend(self, step):
        self.theta -= step.theta[0].item() / 2
        self.alpha -= step.alpha[0].item() / 2

    def task_update(self, gradients):
        self.theta -= gradients[0].item() / 2

    @staticmethod
    def _result(value, theta, alpha):
        return PassResult(value, (torch.tensor([theta]),), (torch.tensor([alpha]),))


# dtheta, dalpha, g, f of each step
REGULARIZATION = [
    # theta 4, alpha 0: 4 + 4/2 = 6, -4 + 4/2 = -2; g = 16/2, f = 16/2
    (6.0, -2.0, 8.0, 8.0),
    # theta 1, alpha 1: 0 + 2/2 = 1, 0 + 1/2; g = 0, f = 1/2 + 1
    (1.0, 0.5, 0.0, 1.5),
    # theta 1/2, alpha 3/4: -1/4 + (5/4)/2 = 3/8, 1/4 + 1/4; g = 1/32, f = 1/8 + 3/8
    (0.375, 0.5, 0.03125, 0.5),
]
REGULARIZATION_END = (0.3125, 0.5)
ITERATE = [
    # theta 4, alpha 0: task gradient 4, theta 2; then 2 + 0, 2; g = 8 before, f = 2 at theta 2
    (2.0, 2.0, 8.0, 2.0),
    # theta 1, alpha -1: task gradient 2, theta 0; then 0 - 1, 0; g = 2, f = 0
    (-1.0, 0.0, 2.0, 0.0),
    # theta 1/2, alpha -1: task gradient 3/2, theta -1/4; then -1/4 - 1, -1/4; g = 9/8, f = 1/32 + 1/4
    (-1.25, -0.25, 1.125, 0.28125),
]
ITERATE_END = (0.375, -0.875)


def run(problem, step, expected):
    for theta, alpha, lower, upper in expected:
        direction = step()
        assert direction.theta[0].tolist() == [theta]
        assert direction.alpha[0].tolist() == [alpha]
        assert (direction.lower, direction.logs["upper_loss"]) == (lower, upper)
        problem.descend(direction)


def test_regularization_runs_as_worked_by_hand():
    problem = Quadratic()
    run(problem, lambda: regularization_step(problem.lower, problem.upper, weight=0.5), REGULARIZATION)
    assert (problem.theta, problem.alpha) == REGULARIZATION_END
    assert [name for name, _, _ in problem.asked] == ["lower", "upper"] * 3


def test_iterate_runs_as_worked_by_hand():
    problem = Quadratic()
    run(problem, lambda: iterate_step(problem.lower, problem.upper, task_update=problem.task_update), ITERATE)
    assert (problem.theta, problem.alpha) == ITERATE_END
    # the entropy is read where the task step has left theta
    assert problem.asked[:2] == [("lower", 4.0, True), ("upper", 2.0, True)]


def test_without_weight_regularization_is_plain_fine_tuning():
    problem = Quadratic()
    direction = regularization_step(problem.lower, problem.upper, weight=0.0)
    assert (direction.theta[0].item(), direction.alpha[0].item()) == (4.0, -4.0)


def test_methods_without_alpha_have_no_alpha_direction():
    def bare(*, theta_gradient):
        return PassResult(1.0, (torch.ones(2),), ())

    assert regularization_step(bare, bare, weight=1.0).alpha == ()
    assert iterate_step(bare, bare, task_update=lambda gradients: None).alpha == ()


@pytest.mark.parametrize("weight", [-0.1, float("nan"), float("inf")])
def test_a_weight_that_cannot_be_meant_is_refused(weight):
    problem = Quadratic()
    with pytest.raises(ValueError, match="entropy_weight"):
        regularization_step(problem.lower, problem.upper, weight=weight)


def test_a_failing_task_pass_leaves_theta_where_it_was():
    problem = Quadratic()

    def failing(*, theta_gradient):
        raise FloatingPointError("overflow")

    with pytest.raises(FloatingPointError):
        iterate_step(failing, problem.upper, task_update=problem.task_update)
    assert problem.theta == 4.0


def test_a_failing_entropy_pass_says_that_the_task_step_was_taken():
    problem = Quadratic()

    def failing(*, theta_gradient):
        raise FloatingPointError("overflow")

    with pytest.raises(FloatingPointError, match="overflow; the task step was taken, the entropy step"):
        iterate_step(problem.lower, failing, task_update=problem.task_update)
    assert problem.theta != 4.0
