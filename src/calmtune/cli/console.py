"""What the commands say: results on stdout, everything else on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

# soft_wrap: paths and ids stay in one piece, to be copied
_OUT = Console(soft_wrap=True, highlight=False)
_ERR = Console(stderr=True, soft_wrap=True, highlight=False)


def say(text: str, style: str = "") -> None:
    """A line of the result, verbatim (square brackets are no markup)."""
    _OUT.print(Text(text, style=style))


def note(text: str) -> None:
    """A line of progress."""
    _ERR.print(Text(text, style="dim"))


def warn(text: str) -> None:
    """Something that the user can act on."""
    _ERR.print(Text.assemble(("warning: ", "bold yellow"), text))


def complain(text: str, hint: str = "") -> None:
    """An error, and what to do next."""
    _ERR.print(Text.assemble(("error: ", "bold red"), text))
    if hint:
        _ERR.print(Text(f"({hint})", style="dim"))


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr; gives the function that is told (done, all)."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=_ERR) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
