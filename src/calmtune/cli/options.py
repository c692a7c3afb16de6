"""Arguments that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

Run = Callable[[argparse.Namespace], None]


def new_parser(
    commands: Any, name: str, run: Run, summary: str, description: str, example: str
) -> argparse.ArgumentParser:
    """A command's parser, all of one form."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=f"example:\n{example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    return parser


def add_config(parser: argparse.ArgumentParser) -> None:
    """CONFIG and the settings that follow it."""
    parser.add_argument("config", metavar="CONFIG", help="YAML file; its keys are the flags")
    parser.add_argument(
        "overrides",
        metavar="--KEY VALUE",
        nargs=argparse.REMAINDER,
        help="settings that win over the file; `calmtune inspect --settings` lists them all",
    )


def overrides_of(options: argparse.Namespace, parser_name: str) -> list[str]:
    """The settings after CONFIG; a stray --help among them still helps."""
    words = list(options.overrides)
    if {"-h", "--help"} & set(words):
        raise ValueError(f"put --help before CONFIG: calmtune {parser_name} --help")
    return words
