"""``calmtune evaluate --predictions``: figures and a report from predictions that another program made."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from calmtune.cli.console import note, say

OPTIONS = ("output_dir", "n_bins", "n_resamples", "harness_filter", "normalisation")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``--predictions`` and what goes with it."""
    group = parser.add_argument_group("predictions made elsewhere, in the place of RUN")
    group.add_argument(
        "--predictions",
        metavar="FILE",
        type=Path,
        help="CSV or JSON Lines with columns (confidence, correct) or (probabilities, label), or lm-eval's "
        "samples_*.jsonl, or the folder that holds them",
    )
    group.add_argument("--output_dir", type=Path, help="where the report goes; default: FILE's name + _calibration")
    group.add_argument("--n_bins", type=int, help="equal-width bins; default 10")
    group.add_argument("--n_resamples", type=int, help="bootstrap resamples; default 1000")
    group.add_argument(
        "--normalisation",
        choices=("sum", "character", "byte"),
        help="of lm-eval's log-likelihoods: sum (its acc; the default), character (acc_norm), byte (acc_bytes)",
    )
    group.add_argument("--harness_filter", metavar="NAME", help="which filter's results, where a log has several")


def takes_over(options: argparse.Namespace) -> bool:
    """Whether the command line asks for predictions made elsewhere.

    Raises:
        ValueError: it asks for both or for neither, or has an option that belongs to the other.
    """
    if options.predictions is not None and options.run_folder is not None:
        raise ValueError("give RUN or --predictions FILE, not both")
    if options.predictions is None:
        stray = [f"--{name}" for name in OPTIONS if getattr(options, name) is not None]
        if stray:
            raise ValueError(f"{', '.join(stray)}: goes with --predictions FILE; a RUN has its own settings")
        if options.run_folder is None:
            raise ValueError("give RUN, the output_dir of calmtune train, or --predictions FILE")
    return options.predictions is not None


def run_predictions(options: argparse.Namespace) -> Path:
    """Read, compute, write the report, and say what it says.

    Returns:
        The folder that was written to.
    """
    from calmtune.external import read_external
    from calmtune.report.outcomes import summarise_outcomes
    from calmtune.report.outcomes_pages import outcomes_table, outcomes_verdict, write_outcomes
    from calmtune.report.tables import to_text

    path: Path = options.predictions
    settings: dict[str, Any] = {
        name: getattr(options, name) for name in ("n_bins", "n_resamples") if getattr(options, name) is not None
    }
    for name, value in settings.items():
        if value < 1:
            raise ValueError(f"--{name}: expected a whole number >= 1, got {value}")
    normalisation = options.normalisation or "sum"
    sets = read_external(path, normalisation=normalisation, filter_name=options.harness_filter)
    items = sum(map(len, sets))
    note(f"read {items} items of {len(sets)} domain{'s' * (len(sets) > 1)}; computing the figures")
    more = {"source": path.name, "harness_normalisation": normalisation}
    summary = summarise_outcomes(sets, f"Calibration of {path.name}", **settings, more=more)
    folder = options.output_dir or path.with_name(f"{path.stem}_calibration")
    write_outcomes(summary, folder)
    say(outcomes_verdict(summary))
    say(to_text(outcomes_table(summary)))
    say(f"the report: {(folder / 'report.html').resolve()}")
    return Path(folder)
