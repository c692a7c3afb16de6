"""``calmtune compare``: a suite of settings, models, methods and seeds; runs what is missing, and makes the tables."""

from __future__ import annotations

import argparse
from typing import Any

from calmtune.cli.console import say
from calmtune.cli.options import new_parser


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = new_parser(
        commands,
        "compare",
        run,
        "train and score every method, model and seed of a suite, and compare them",
        "Run what is missing of SUITE, keep what is done, and write the tables and the report of all its runs. Each\n"
        "run is a folder of its own under output_dir, named by its setting, model, method, seed and a hash of its\n"
        "settings, code and data. Killed or interrupted, the same command goes on; a second one shares the work.\n"
        "Settings (--KEY VALUE) after SUITE count as part of its `common`.",
        "  calmtune compare configs/smollm2/science.yaml --dry_run\n"
        "  calmtune compare configs/smollm2/science.yaml --only_methods sft calm --seeds 0",
    )
    parser.add_argument("suite", metavar="SUITE", help="YAML file with models, settings, methods and seeds")
    for axis in ("methods", "models", "settings"):
        parser.add_argument(f"--only_{axis}", metavar="NAME", nargs="+", default=(), help=f"only these {axis}")
    parser.add_argument("--seeds", metavar="N", nargs="+", type=int, default=(), help="these seeds, not the suite's")
    parser.add_argument("--dry_run", action="store_true", help="say what is done and what would be trained, and stop")
    parser.add_argument(
        "--report_only", action="store_true", help="write the report of what is done, and train nothing"
    )
    parser.add_argument(
        "--keep_code",
        action="store_true",
        help="also keep finished runs of the same settings and data that an older version of the code made",
    )
    parser.set_defaults(takes_settings=True)


def run(options: argparse.Namespace) -> None:
    """Run the suite, or the part of it that is asked for."""
    from calmtune.cli.suite_folder import FAILURE
    from calmtune.cli.suite_plan import failure_line, make_plan, show_plan
    from calmtune.cli.suite_runner import SuiteError, report_suite, run_suite
    from calmtune.suite import Filters, read_suite

    if {"-h", "--help"} & set(options.settings):
        raise ValueError("put --help before SUITE: calmtune compare --help")
    filters = Filters(options.only_settings, options.only_models, options.only_methods, options.seeds)
    trains = not (options.dry_run or options.report_only)
    suite = read_suite(options.suite, options.settings, filters, machine=trains)
    plan = make_plan(suite, keep_code=options.keep_code)
    if options.dry_run:
        show_plan(suite, plan)
        return
    if not options.report_only:
        plan = run_suite(suite, plan, keep_code=options.keep_code)
    failed = [entry for entry in plan if entry.state == "failed"] if not options.report_only else []
    if any(entry.is_done for entry in plan) or not failed:
        page = report_suite(suite, plan)
        say(f"the report: {page.resolve()}", style="bold green")
        say(f"the tables: {(page.parent / 'tables.txt').resolve()}")
    if failed:
        listed = "\n".join(f"  - {entry.run.name}: {failure_line(entry)}" for entry in failed)
        raise SuiteError(
            f"{len(failed)} of {len(plan)} runs failed:\n{listed}\n"
            f"each has a traceback in its folder's {FAILURE}; the same command tries them again"
        )
