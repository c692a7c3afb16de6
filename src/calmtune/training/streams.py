"""Which examples come when, as a function of seed and step alone, so that a resumed run sees what it would have
seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Sampler

from calmtune.training.arguments import CalmConfig
from calmtune.training.processes import Processes


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


class StepBatches(Sampler[list[int]]):
    """One process's micro-batches of each epoch: its part of every optimizer step's batch.

    A step's batch is the next ``size * accumulation * count`` examples of the epoch's order, whatever the number of
    processes, and less at the end of an epoch. It is dealt out example by example: none is dropped, none read twice.
    All processes have as many micro-batches; a process without examples for one gets an empty list.

    Args:
        order: of the examples. size: most examples of a micro-batch. accumulation: micro-batches of a step.
        drop_last: leave out the examples after the last whole micro-batch of the epoch, as torch's loader does.

    Example:
        >>> parts = [StepBatches(EpochSampler(5, 0), 1, 2, Processes(rank, 2)) for rank in (0, 1)]
        >>> [[len(batch) for batch in part] for part in parts]
        [[1, 1, 1], [1, 1, 0]]
    """

    def __init__(
        self, order: EpochSampler, size: int, accumulation: int, processes: Processes, *, drop_last: bool = False
    ) -> None:
        self.order, self.size, self.processes = order, size, processes
        self.step_size = size * accumulation * processes.count
        self.used = len(order) // size * size if drop_last else len(order)

    def __iter__(self) -> Iterator[list[int]]:
        indices = list(self.order)[: self.used]
        for step in micro_batches(indices, self.step_size):
            mine = micro_batches(self.processes.mine(step), self.size)
            yield from mine
            yield from [[] for _ in range(self._rounds(len(step)) - len(mine))]

    def _rounds(self, examples: int) -> int:
        """Micro-batches of the first process, which has most."""
        return math.ceil(math.ceil(examples / self.processes.count) / self.size)

    def __len__(self) -> int:
        whole, rest = divmod(self.used, self.step_size)
        return whole * self._rounds(self.step_size) + self._rounds(rest)


def rank_loader(
    examples: Any, order: EpochSampler, collate: Callable[[list[Any]], Any], args: CalmConfig, processes: Processes
) -> DataLoader[Any]:
    """What gives one process its :class:`StepBatches`, as batches."""
    size, accumulation = args.per_device_train_batch_size, args.gradient_accumulation_steps
    return DataLoader(
        examples,
        batch_sampler=StepBatches(order, size, accumulation, processes, drop_last=args.dataloader_drop_last),
        collate_fn=collate,
        num_workers=args.dataloader_num_workers,
        pin_memory=args.dataloader_pin_memory,
    )


def lower_batch_size(args: CalmConfig, processes: Processes) -> int:
    """Examples of B_T, over all processes."""
    return args.per_device_train_batch_size * args.gradient_accumulation_steps * processes.count


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


def micro_batches(items: Sequence[Any], size: int) -> list[list[Any]]:
    """Consecutive pieces of at most ``size``.

    Example:
        >>> micro_batches([1, 2, 3], 2)
        [[1, 2], [3]]
    """
    return [list(items[start : start + size]) for start in range(0, len(items), size)]
