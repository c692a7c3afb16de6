"""A pass over one whole effective batch: the mean loss and its gradients, micro-batch by micro-batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from calmtune.methods.passes import PassResult
from calmtune.training.processes import ALONE, Processes


class NonFiniteError(RuntimeError):
    """Training was ended because losses, norms or lambda were not finite too often."""


@dataclass(frozen=True)
class BatchPass:
    """The mean of a loss over fixed micro-batches, with the same dropout each time it is called.

    Sums over all micro-batches are divided by one count, so the split into micro-batches changes nothing.

    Args:
        name: of the loss, for messages.
        batches: the micro-batches.
        total: (micro-batch, whether theta gets gradients) -> sum of the loss over what counts in it.
        count: of what counts in all micro-batches.
        theta, alpha: the parameters to differentiate by.
        seed: of the dropout.
        processes: those that share the batch; ``batches`` are this one's part, ``count`` is of all.
        idle: runs of the model that count for nothing, made where the others still have micro-batches to run.
    """

    name: str
    batches: Sequence[Any]
    total: Callable[[Any, bool], Tensor]
    count: int
    theta: Sequence[Tensor]
    alpha: Sequence[Tensor]
    seed: int
    device: torch.device
    processes: Processes = ALONE
    idle: Sequence[Callable[[bool], Tensor]] = ()

    def __call__(self, *, theta_gradient: bool) -> PassResult:
        """Run it at the current theta and alpha.

        Raises:
            FloatingPointError: nothing counts, or the loss or a gradient is not finite, in every process alike.
            ProcessError: another process failed.
        """
        if self.count == 0:
            raise FloatingPointError(f"the {self.name} loss counts nothing in this batch: every position is masked")
        wanted = [*self.alpha, *(self.theta if theta_gradient else ())]
        gradients = [torch.zeros_like(p) for p in wanted]
        value = torch.zeros((), dtype=torch.float64, device=self.device)
        with self.processes.summed(value, *gradients), fixed_randomness(self.seed, self.device):
            for batch in self.batches:
                total = self.total(batch, theta_gradient)
                value += total.detach().double()
                if wanted and total.requires_grad:
                    parts = torch.autograd.grad(total / self.count, wanted, allow_unused=True)
                    for kept, part in zip(gradients, parts, strict=True):
                        if part is not None:
                            kept += part
            for run in self.idle:
                total = run(theta_gradient)
                if wanted and total.requires_grad:
                    torch.autograd.grad(total, wanted, allow_unused=True)
        mean = value.item() / self.count
        if not math.isfinite(mean):
            raise FloatingPointError(f"the {self.name} loss is {mean}")
        if not all(bool(torch.isfinite(gradient).all()) for gradient in gradients):
            raise FloatingPointError(f"a gradient of the {self.name} loss is not finite")
        split = len(self.alpha)
        return PassResult(mean, tuple(gradients[split:]), tuple(gradients[:split]))


@contextmanager
def fixed_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """A generator state of its own inside the block; outside, the states are as they were."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def assign_gradients(parameters: Iterable[Tensor], gradients: Iterable[Tensor]) -> None:
    """Hand a direction to the optimizers: it becomes each parameter's gradient."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.to(parameter.dtype)
