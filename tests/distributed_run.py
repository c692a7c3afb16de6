"""Starts functions in several processes that know of each other as under `accelerate launch`, on the CPU (gloo)."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent


def launch(function: Callable[..., Any], *arguments: Any, count: int = 2, timeout: float = 120) -> list[Any]:
    """What the function returned in each process, by rank; for one that failed, the exception's name and message.

    Args:
        function: of a module that can be imported. count: 1 starts one process that knows of no other.
        timeout: seconds after which the processes are ended and the test fails.
    """
    # started clean, with everything imported once, and forked for each process from then on
    context = multiprocessing.get_context("forkserver")
    paths = [str(TESTS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
    context.set_forkserver_preload(["distributed_scenarios"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ends = [context.Pipe(duplex=False) for _ in range(count)]
    processes = [
        context.Process(target=_run, args=(rank, count, port, ends[rank][1], function, arguments), daemon=True)
        for rank in range(count)
    ]
    for process, (_, writer) in zip(processes, ends, strict=True):
        process.start()
        writer.close()
    end = time.monotonic() + timeout
    found = []
    for process, (reader, _) in zip(processes, ends, strict=True):
        heard = reader.poll(max(0.0, end - time.monotonic()))
        try:
            found.append(reader.recv() if heard else "hung")
        except EOFError:
            found.append("ended")
        process.join(10 if heard else 0)
        if process.is_alive():
            process.kill()
    return found


def _run(rank: int, count: int, port: int, result: Any, function: Callable[..., Any], arguments: tuple[Any]) -> None:
    os.environ.update({"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"})
    if count > 1:
        names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
        os.environ.update({name: str(value) for name, value in names.items()})
        os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
    try:
        value = function(*arguments)
    except BaseException as error:  # noqa: BLE001 - told to the test
        traceback.print_exc(file=sys.stderr)
        value = {"error": type(error).__name__, "message": str(error)}
    with contextlib.suppress(BrokenPipeError):
        result.send(value)
    result.close()
