"""Which of several processes this one is, as the launcher says; known before anything heavy is imported."""

from __future__ import annotations

import os

# waiting for a process that has more to do is no fault; a process that fails ends the others through the launcher
PATIENCE_HOURS = 24


def rank() -> int:
    """0 to :func:`count` - 1; 0 where there is one process."""
    return int(os.environ.get("RANK", "0"))


def count() -> int:
    """Processes of this command."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main() -> bool:
    """Whether this is the process that writes files and says what happens."""
    return rank() == 0


def local_device() -> str | None:
    """The GPU of this process among those of its machine, or None to leave the choice open."""
    if count() == 1:
        return None
    import torch

    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else None


def meet() -> None:
    """Wait until every process is here.

    Raises:
        ValueError: the processes did not find each other.
    """
    if count() == 1:
        return
    from datetime import timedelta

    import torch
    from accelerate import PartialState
    from accelerate.utils import parse_flag_from_env

    cpu = parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.cuda.is_available()
    state = PartialState(cpu=cpu, timeout=timedelta(hours=PATIENCE_HOURS))
    if state.num_processes != count():
        raise ValueError(
            f"the launcher started {count()} processes, but {state.num_processes} found each other; start them with "
            "`accelerate launch`, or with torchrun where there is no GPU"
        )
    state.wait_for_everyone()
