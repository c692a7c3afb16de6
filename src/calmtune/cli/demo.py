"""``calmtune demo``: the whole way on a small model and the built-in questions, with nothing to prepare."""

from __future__ import annotations

import argparse
import time
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from calmtune.cli.console import note, say
from calmtune.cli.options import new_parser


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = new_parser(
        commands,
        "demo",
        run,
        "train, evaluate and report on a small model, in minutes",
        "Train SmolLM2-135M-Instruct on built-in questions, score it before and after, in and out of the training\n"
        "domains, and write the report. Done again, it goes on where it stopped. All settings of `train` can be given.",
        "  calmtune demo\n  calmtune demo --output_dir runs/soft --eta 0.5 --max_steps 20",
    )
    folder_help = "folder of the run (default: runs/demo)"
    parser.add_argument("--output_dir", "--output-dir", default="runs/demo", help=folder_help)
    parser.set_defaults(takes_settings=True)


def run(options: argparse.Namespace) -> None:
    """Train, evaluate, report."""
    folder = run_demo(options.output_dir, options.settings)
    say(f"the report: {folder.report_html.resolve()}", style="bold green")


def run_demo(output_dir: str, overrides: list[str]) -> Any:
    """Run the packaged configuration; returns the run's folder."""
    from calmtune.cli.evaluate import run_evaluation
    from calmtune.cli.report import run_report
    from calmtune.cli.train import run_training
    from calmtune.config import load_config

    start = time.monotonic()
    with as_file(files("calmtune") / "configs" / "demo.yaml") as packaged:
        config = load_config(Path(packaged), ["--output_dir", output_dir, *overrides])
    for number, (title, step) in enumerate(
        (
            ("training", lambda: run_training(config)),
            ("scoring the model before and after", lambda: run_evaluation(config.output_dir)),
            ("writing the report", lambda: run_report([config.output_dir])),
        ),
        start=1,
    ):
        note(f"[{number}/3] {title} ({time.monotonic() - start:.0f} s so far)")
        folder = step()
    note(f"done in {(time.monotonic() - start) / 60:.1f} minutes")
    return folder
