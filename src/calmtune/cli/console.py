"""What the commands say: results on stdout, everything else on stderr."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from calmtune.cli.ranks import is_main

# told (done, all)
Advance = Callable[[int, int], None]

# soft_wrap: paths and ids stay in one piece, to be copied
_OUT = Console(soft_wrap=True, highlight=False)
_ERR = Console(stderr=True, soft_wrap=True, highlight=False)


@dataclass
class _Line:
    """A line that is rewritten while something long runs; ``said`` are the warnings that were already shown."""

    show: Callable[[str, int | None, int | None], None]
    said: set[str] = field(default_factory=set)


_LINE: ContextVar[_Line | None] = ContextVar("_LINE", default=None)


def say(text: str, style: str = "") -> None:
    """A line of the result, verbatim (square brackets are no markup); of several processes, the first one's."""
    if not is_main():
        return
    _OUT.print(Text(text, style=style))


def note(text: str, style: str = "dim") -> None:
    """A line of progress; within :func:`live_line` it is shown there and leaves no trace."""
    line = _LINE.get()
    if not is_main():
        return
    if line:
        line.show(text, None, None)
    else:
        _ERR.print(Text(text, style=style))


def warn(text: str) -> None:
    """Something that the user can act on; within :func:`live_line` each text is shown once."""
    line = _LINE.get()
    if not is_main():
        return
    if line:
        if text in line.said:
            return
        line.said.add(text)
    _ERR.print(Text.assemble(("warning: ", "bold yellow"), text))


def complain(text: str, hint: str = "") -> None:
    """An error, and what to do next."""
    _ERR.print(Text.assemble(("error: ", "bold red"), text))
    if hint:
        _ERR.print(Text(f"({hint})", style="dim"))


def command(*words: object) -> str:
    """A command that can be copied into a shell, whatever the names of its files.

    >>> command("calmtune", "evaluate", "my runs/first")
    "calmtune evaluate 'my runs/first'"
    """
    return shlex.join(map(str, words))


@contextmanager
def progress(title: str) -> Iterator[Advance]:
    """A progress bar on stderr; gives the function that is told (done, all)."""
    line = _LINE.get()
    if not is_main():
        yield lambda done, total: None
        return
    if line:
        show = line.show
        show(title, 0, None)
        yield lambda done, total: show(title, done, total)
        return
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


@contextmanager
def live_line(title: str, said: set[str] | None = None) -> Iterator[None]:
    """One line on stderr that shows what happens inside the block, and is gone after it;
    where stderr is a file, the title alone is written.

    Args:
        title: what stands first in the line.
        said: warnings that were shown already; those shown in the block are added.
    """
    columns: tuple[ProgressColumn, ...] = (
        SpinnerColumn(),
        TextColumn("{task.fields[title]}", markup=False),
        TextColumn("{task.description}", style="dim", markup=False, table_column=Column(no_wrap=True)),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
    )
    if not _ERR.is_terminal:
        note(title)
    with Progress(*columns, console=_ERR, transient=True, disable=not _ERR.is_terminal) as bar:
        task = bar.add_task("", total=None, title=title, count="")

        def show(text: str, done: int | None, total: int | None) -> None:
            count = "" if done is None or total is None else f"{done}/{total}"
            bar.update(task, description=text, completed=done or 0, total=total, count=count)

        token = _LINE.set(_Line(show, set() if said is None else said))
        try:
            yield
        finally:
            _LINE.reset(token)
