"""``calmtune abstain``: from what confidence on to answer, with a guarantee, and whether it still holds elsewhere."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from calmtune.cli.abstention_run import Request, run_abstention
from calmtune.cli.console import note, say, warn
from calmtune.cli.options import new_parser


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = new_parser(
        commands,
        "abstain",
        run,
        "find the confidence from which on to answer, with a guarantee",
        "Find a threshold for the confidence of an evaluated run, so that the error rate among answered questions is\n"
        "at most TARGET with the stated probability. One half of the calibration split fits the confidence, the other\n"
        "one finds the threshold. Writes abstention.json and abstention.md; needs no model.",
        "  calmtune abstain runs/first --target 0.1 --confidence 0.95\n"
        "  calmtune abstain runs/first --check new.jsonl --strict",
    )
    parser.add_argument("run_folder", metavar="RUN", type=Path, help="output_dir of an evaluated run")
    parser.add_argument("--target", type=float, default=Request.target, help="error rate to hold; default 0.1")
    parser.add_argument("--confidence", type=float, default=Request.confidence, help="stated probability; default 0.95")
    parser.add_argument(
        "--control",
        choices=("answered", "joint"),
        default=Request.control,
        help="answered (default): wrong of answered, with that probability; joint: answered and wrong of all, on "
        "average (conformal risk control; --confidence is not used)",
    )
    parser.add_argument("--distribution", choices=("raw", "adjusted"), help="fix the reading beforehand")
    parser.add_argument("--scaling", choices=("none", "TS", "VS"), help="goes with --distribution")
    parser.add_argument(
        "--check",
        metavar="FILE",
        type=Path,
        nargs="+",
        default=[],
        help="further predictions: files of calmtune's own, or CSV or JSON Lines with a column `confidence` (read in "
        "the same way) and perhaps `correct`",
    )
    parser.add_argument(
        "--shift_level", type=float, default=Request.shift_level, help="of the shift test; default 0.01"
    )
    parser.add_argument("--seed", type=int, default=Request.seed, help="of the halves and the shift test; default 0")
    parser.add_argument(
        "--strict", action="store_true", help="fail if there is no threshold, a shift, or a target that is missed"
    )


def run(options: argparse.Namespace) -> None:
    """Find the threshold, show the tables, and say what to be wary of."""
    from calmtune.report.abstention import coverage_table, domain_table, guarantee, reading_in_words, warnings_of
    from calmtune.report.tables import to_text

    names = ("target", "confidence", "control", "distribution", "scaling", "seed", "shift_level")
    request = Request(**{name: getattr(options, name) for name in names})
    folder, record = run_abstention(options.run_folder, request, options.check)
    say(to_text(coverage_table(record)))
    if record["domains"]:
        say(to_text(domain_table(record)))
    say(guarantee(record))
    say(f"confidence: {reading_in_words(record)}; {record['method']}")
    say(f"the rule: {folder.path / 'abstention.json'}")
    if not record["as_decided"]:
        note(
            "the run's own decision, made on the whole calibration split, is another form; answers and confidences for "
            "this rule are those of the reading above"
        )
    found = warnings_of(record)
    for one in found:
        warn(one)
    if options.strict and found:
        raise ValueError(f"--strict: {len(found)} warning{'s' * (len(found) > 1)}; the first: {found[0]}")
