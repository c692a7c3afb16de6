"""Several processes that take one step together: who does which part, and sums over all of them.

Gradients, losses and counts are added up before anything that is not linear in them (lambda) is computed from them, so
every process computes the same lambda from the same numbers. A process that fails tells the others where they would
wait for it, so that a run ends everywhere instead of hanging.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

Item = TypeVar("Item")

# elements that are added up in one message; larger tensors go alone and are not copied
BUCKET = 2**26


class ProcessError(RuntimeError):
    """Another process of this run failed, or the processes are not at the same place."""


@dataclass(frozen=True)
class Processes:
    """This process among those of the run.

    Args:
        rank: of this process, 0 to count - 1. count: of all processes; 1 makes every method trivial.
        device: where messages are made (NCCL takes no others than its own).
        lockstep: every forward pass is itself a meeting of all processes (a sharded base), so that none may run more
            passes than the others; what is only measured is then measured by all of them.

    Example:
        >>> Processes(rank=1, count=3).mine("abcdefg")
        ['b', 'e']
    """

    rank: int = 0
    count: int = 1
    device: torch.device = torch.device("cpu")  # noqa: RUF009 - immutable
    lockstep: bool = False

    @classmethod
    def current(cls, device: torch.device, *, lockstep: bool = False) -> Processes:
        """The processes that torch.distributed knows of; this one alone where it was not started."""
        if not dist.is_available() or not dist.is_initialized():
            return cls(device=device)
        return cls(dist.get_rank(), dist.get_world_size(), device, lockstep)

    @property
    def is_main(self) -> bool:
        """Whether this is the one that writes files."""
        return self.rank == 0

    def mine(self, items: Sequence[Item]) -> list[Item]:
        """This process's part: every ``count``-th item from its rank on, so that no two parts differ by more than one
        item, and none is in two.
        """
        return list(items[self.rank :: self.count])

    @contextmanager
    def summed(self, *tensors: Tensor) -> Iterator[None]:
        """Inside the block this process makes its part of these tensors; after it they hold the sums over all.

        Numbers in float64 are added up in float64, all others in float32, in a few messages for all of them.

        Raises:
            ProcessError: another process raised something inside its block; it says what.
        """
        if self.count == 1:
            yield
            return
        try:
            yield
        except Exception:
            self._meet(tensors, failed=True)
            raise
        failed = self._meet(tensors, failed=False)
        if failed:
            names = ", ".join(map(str, failed))
            raise ProcessError(f"process {self.rank} stopped, because process {names} failed; see its message")
        self._add_up([t for t in tensors if t.dtype != torch.float64])

    def dealt(self, items: Sequence[Item]) -> list[Item]:
        """This process's part of what is only measured: :meth:`mine`, or everything in lockstep."""
        return list(items) if self.lockstep else self.mine(items)

    @contextmanager
    def reading(self, *tensors: Tensor) -> Iterator[None]:
        """:meth:`summed` for what is measured on :meth:`dealt` items; nothing to add up in lockstep."""
        with nullcontext() if self.lockstep else self.summed(*tensors):
            yield

    def _meet(self, tensors: Sequence[Tensor], *, failed: bool) -> list[int]:
        """Add up what is in float64, and say who failed."""
        exact = [t for t in tensors if t.dtype == torch.float64]
        marks = torch.zeros(self.count, dtype=torch.float64)
        marks[self.rank] = float(failed)
        # what a failed process has is part of nothing
        parts = [marks, *(torch.zeros(t.numel()) if failed else t.detach().reshape(-1).cpu() for t in exact)]
        flat = torch.cat([part.double() for part in parts]).to(self.device)
        dist.all_reduce(flat)
        marks, *sums = flat.split([self.count, *(t.numel() for t in exact)])
        raised = torch.nonzero(marks).flatten().tolist()
        if not raised:
            for kept, total in zip(exact, sums, strict=True):
                kept.copy_(total.reshape(kept.shape))
        return raised

    def _add_up(self, tensors: Sequence[Tensor]) -> None:
        for bucket in buckets(tensors, BUCKET):
            if len(bucket) == 1 and bucket[0].dtype == torch.float32 and bucket[0].is_contiguous():
                dist.all_reduce(bucket[0])
                continue
            flat = torch.cat([t.reshape(-1).float() for t in bucket])
            dist.all_reduce(flat)
            for kept, total in zip(bucket, flat.split([t.numel() for t in bucket]), strict=True):
                kept.copy_(total.reshape(kept.shape))

    def gather(self, value: Any) -> list[Any]:
        """What every process has, by rank; JSON values."""
        if self.count == 1:
            return [value]
        data = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8).to(self.device)
        size = torch.tensor([len(data)], device=self.device)
        sizes = [torch.zeros_like(size) for _ in range(self.count)]
        dist.all_gather(sizes, size)
        longest = int(max(sizes))
        mine = torch.zeros(longest, dtype=torch.uint8, device=self.device)
        mine[: len(data)] = data
        found = [torch.zeros_like(mine) for _ in range(self.count)]
        dist.all_gather(found, mine)
        return [json.loads(bytes(one[: int(n)].cpu().numpy()).decode()) for one, n in zip(found, sizes, strict=True)]

    def merged(self, sums: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, ...]]:
        """Named tuples of numbers, added up by name; a process may lack some names."""
        found: dict[str, tuple[float, ...]] = {}
        for part in self.gather({name: list(values) for name, values in sums.items()}):
            for name, values in part.items():
                before = found.get(name, (0.0,) * len(values))
                found[name] = tuple(a + b for a, b in zip(before, values, strict=True))
        return found

    def wait(self) -> None:
        """Until every process is here."""
        if self.count > 1:
            dist.all_reduce(torch.zeros(1, device=self.device))

    def check_same(self, value: Any, what: str) -> None:
        """Compare a JSON value between the processes.

        Raises:
            ProcessError: it is not the same everywhere; names the processes.
        """
        first, *others = self.gather(value)
        odd = [rank for rank, other in enumerate(others, start=1) if other != first]
        if odd:
            raise ProcessError(
                f"{what} of process {', '.join(map(str, odd))} not the same as of process 0; start every process with "
                "the same command, files and library versions"
            )


ALONE = Processes()


def buckets(tensors: Sequence[Tensor], size: int) -> Iterator[list[Tensor]]:
    """Consecutive tensors of at most ``size`` elements together; a larger one by itself.

    Example:
        >>> [[len(t) for t in bucket] for bucket in buckets([torch.zeros(n) for n in (2, 1, 5, 1)], 4)]
        [[2, 1], [5], [1]]
    """
    bucket: list[Tensor] = []
    for tensor in tensors:
        if bucket and sum(t.numel() for t in bucket) + tensor.numel() > size:
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket


def checksum(tensors: Sequence[Tensor]) -> list[str]:
    """Two sums over all elements in float64, exact as text; tensors that differ have others, but for a coincidence."""
    total, weighted = 0.0, 0.0
    for place, tensor in enumerate(tensors, start=1):
        values = tensor.detach().double()
        total += float(values.sum())
        weighted += place * float(values.square().sum())
    return [total.hex(), weighted.hex()]
