"""One optimizer to transformers' eyes, two underneath: theta's, and alpha's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer


class PairedOptimizer(Optimizer):
    """Steps theta's and alpha's optimizers together; learning rate schedules act on both.

    ``param_groups`` holds the very dictionaries of the two, so that a scheduler's change is seen by them.

    Args:
        theta: any optimizer of the model's trainable parameters.
        alpha: the optimizer of the adjustment.
    """

    def __init__(self, theta: Optimizer, alpha: Optimizer) -> None:
        self.theta, self.alpha = theta, alpha
        super().__init__([{"params": [torch.zeros(0)]}], {})
        self._share_groups()

    def _share_groups(self) -> None:
        self.param_groups = [*self.theta.param_groups, *self.alpha.param_groups]

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step of both; a parameter without a gradient stays as it is."""
        if closure is not None:
            raise ValueError("closures are not supported: the joint direction is computed before the step")
        self.theta.step()
        self.alpha.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of both."""
        self.theta.zero_grad(set_to_none)
        self.alpha.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """Both states under their names."""
        return {"theta": self.theta.state_dict(), "alpha": self.alpha.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore both; groups are shared anew because loading replaces them."""
        self.theta.load_state_dict(state_dict["theta"])
        self.alpha.load_state_dict(state_dict["alpha"])
        self._share_groups()
