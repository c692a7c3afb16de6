"""The command line: parses, runs one command, and turns errors that a user can mend into one clear message.

Nothing heavy is imported before a command runs, so that ``--help`` is quick.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from calmtune import __version__
from calmtune.cli import abstain, check, compare, demo, env, evaluate, export, inspect, merge, push, report, train
from calmtune.cli.console import complain, warn

COMMANDS = (demo, inspect, train, evaluate, compare, report, abstain, push, merge, check, export, env)
TRACEBACK = "--traceback"


def build_parser() -> argparse.ArgumentParser:
    """The parser with every command."""
    parser = argparse.ArgumentParser(
        prog="calmtune",
        description="Calibrate a language model while fine-tuning it, and show with figures that it worked.",
        epilog="Start with `calmtune demo`, or with `calmtune inspect CONFIG.yaml` for your own questions.\n"
        f"{TRACEBACK} anywhere shows where in the code an error came from.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"calmtune {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands)
    return parser


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the words; ``settings`` holds the free ``--key value`` of a command that takes them."""
    parser = build_parser()
    options, options.settings = parser.parse_known_args(words)
    if options.settings and not getattr(options, "takes_settings", False):
        parser.error(f"unrecognized arguments: {' '.join(options.settings)}")
    return options


@contextmanager
def readable_warnings() -> Iterator[None]:
    """Inside the block, a warning to users is one line, and libraries' notes to programmers are not shown."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        default = warnings.showwarning

        def show(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
            if category is UserWarning:
                warn(str(message))
            else:
                default(message, category, *place, **more)

        warnings.showwarning = show
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: the words after ``calmtune``; by default those of the process.

    Returns:
        The exit status: 0 done, 2 something that the user can mend, 130 interrupted.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    show_traceback = TRACEBACK in words
    options = parse([word for word in words if word != TRACEBACK])
    try:
        with readable_warnings():
            options.run(options)
    except KeyboardInterrupt:
        complain(
            "interrupted",
            hint="the same command goes on from what is on disk; `train` with --resume_from_checkpoint auto",
        )
        return 130
    except (ValueError, OSError, RuntimeError, ModuleNotFoundError) as error:
        # a RuntimeError is ours where training gave up; elsewhere it is a fault of the program or the machine
        ours = not isinstance(error, RuntimeError) or type(error).__module__.startswith("calmtune.")
        if show_traceback or not ours:
            raise
        complain(str(error) or type(error).__name__, hint=f"{TRACEBACK} shows where in the code this came from")
        return 2
    return 0
