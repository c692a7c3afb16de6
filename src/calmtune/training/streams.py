"""Which examples come when, as a function of seed and step alone, so that a resumed run sees what it would have
seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Sampler


def permutation(size: int, seed: int, epoch: int) -> list[int]:
    """The order of ``size`` examples in one epoch.

    Example:
        >>> sorted(permutation(5, seed=0, epoch=3))
        [0, 1, 2, 3, 4]
    """
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**63)
    return torch.randperm(size, generator=generator).tolist()


class EpochSampler(Sampler[int]):
    """A shuffled order that depends on the seed and the epoch and on nothing that ran before."""

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed, self.epoch = size, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order is given next."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(permutation(self.size, self.seed, self.epoch))

    def __len__(self) -> int:
        return self.size


def batch_at(step: int, batch_size: int, size: int, seed: int) -> list[int]:
    """Indices of the batch of one step in an endless stream of shuffled epochs.

    Args:
        step: 0, 1, 2, ... batch_size: may exceed ``size``. size: examples in the data set.

    Example:
        >>> first, second = batch_at(0, 2, 4, seed=1), batch_at(1, 2, 4, seed=1)
        >>> sorted(first + second)
        [0, 1, 2, 3]
    """
    orders: dict[int, list[int]] = {}
    found = []
    for place in range(step * batch_size, (step + 1) * batch_size):
        epoch, index = divmod(place, size)
        if epoch not in orders:
            orders[epoch] = permutation(size, seed, epoch)
        found.append(orders[epoch][index])
    return found


def micro_batches(items: list[Any], size: int) -> list[list[Any]]:
    """Consecutive pieces of at most ``size``.

    Example:
        >>> micro_batches([1, 2, 3], 2)
        [[1, 2], [3]]
    """
    return [items[start : start + size] for start in range(0, len(items), size)]
