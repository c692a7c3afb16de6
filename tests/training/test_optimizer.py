"""Two optimizers behind one: schedules reach both, states come back."""

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR

from calmtune.training.optimizer import PairedOptimizer


def pair():
    theta, alpha = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    paired = PairedOptimizer(torch.optim.AdamW([theta], lr=0.1), torch.optim.SGD([alpha], lr=0.5))
    return theta, alpha, paired


def test_each_parameter_moves_by_its_own_rule_and_rate():
    theta, alpha, paired = pair()
    theta.grad, alpha.grad = torch.tensor([3.0, -3.0]), torch.tensor([1.0, 2.0])
    paired.step()
    assert torch.allclose(alpha.detach(), torch.tensor([0.5, 0.0]))
    assert torch.allclose(theta.detach(), torch.ones(2) * (1 - 0.1 * 0.01) - torch.tensor([0.1, -0.1]), atol=1e-6)
    paired.zero_grad()
    assert theta.grad is None
    assert alpha.grad is None


def test_a_parameter_without_a_gradient_stays():
    theta, alpha, paired = pair()
    paired.step()
    assert torch.equal(theta.detach(), torch.ones(2))
    assert torch.equal(alpha.detach(), torch.ones(2))


def test_a_schedule_reaches_both_also_after_loading():
    theta, alpha, paired = pair()
    theta.grad = alpha.grad = torch.ones(2)
    paired.step()
    state = paired.state_dict()
    theta, alpha, paired = pair()
    paired.load_state_dict(state)
    scheduler = LambdaLR(paired, lambda step: 0.5**step)
    assert paired.theta.state_dict()["state"][0]["step"] == 1
    theta.grad = alpha.grad = torch.ones(2)
    paired.step()
    scheduler.step()
    assert paired.theta.param_groups[0]["lr"] == pytest.approx(0.05)
    assert paired.alpha.param_groups[0]["lr"] == pytest.approx(0.25)


def test_closures_are_refused():
    with pytest.raises(ValueError, match="closures"):
        pair()[2].step(lambda: 0.0)
