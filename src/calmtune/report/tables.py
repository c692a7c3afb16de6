"""Tables of a summary: first the cells, then the same cells as terminal text, Markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from calmtune.report.measures import COMPARED, HEADLINE, MEASURES
from calmtune.report.numbers import Estimate, compact, interval, number, p_text
from calmtune.report.summary import Column, FittedRow, Summary

OUTSIDE = (
    "Where an interval lies above its own number: a binned error counts noise as error, and resampling adds "
    "noise; the true "
    "value is then rather below the number than above it."
)


@dataclass(frozen=True)
class TableCell:
    """A number as text, its interval, a p-value where it is a difference, and whether it is marked as best."""

    text: str
    detail: str = ""
    p_value: str = ""
    bold: bool = False

    @property
    def joined(self) -> str:
        """Everything on one line."""
        return " ".join(filter(None, (self.text, f"{self.detail}{',' if self.p_value else ''}", self.p_value)))


@dataclass(frozen=True)
class Table:
    """A table ready to be laid out.

    Args:
        caption: what it shows, with n.
        groups: (title, columns it spans) over the header, or empty.
        header: one title a column, the first for the row's name.
        rows: name and cells; each has ``len(header) - 1`` cells.
        notes: sentences that belong under it.
    """

    caption: str
    groups: tuple[tuple[str, int], ...]
    header: tuple[str, ...]
    rows: tuple[tuple[str, tuple[TableCell, ...]], ...]
    notes: tuple[str, ...] = ()


def temperature_text(row: FittedRow) -> str:
    """The temperature of a row for reading; vector scaling has a factor for each option."""
    if not row.row.scaled:
        return "1"
    if not row.identified:
        return "not identified"
    return f"{row.temperature:.2f}" if row.vector is None else "per option"


def overview_table(summary: Summary, measures: Sequence[str] = ("conf_ece", "accuracy", "nll")) -> Table:
    """One row a method, one group of columns a test domain."""
    rows = []
    for row in summary.rows:
        cells = [TableCell(temperature_text(row))]
        for column in summary.columns:
            cells += [_estimate_cell(summary, row.label, column.name, key) for key in measures]
        rows.append((row.label, tuple(cells)))
    return Table(
        caption="Calibration and accuracy of every method on every test domain",
        groups=(("", 2), *((f"{column.title}, n = {column.n}", len(measures)) for column in summary.columns)),
        header=("method", "T", *(_heads(measures) * len(summary.columns))),
        rows=tuple(rows),
        notes=notes(summary),
    )


def column_table(summary: Summary, column: Column, measures: Sequence[str] = HEADLINE) -> Table:
    """One test domain: methods down, measures across."""
    rows = []
    for row in summary.rows:
        cells = [_estimate_cell(summary, row.label, column.name, key) for key in measures]
        rows.append((row.label, (TableCell(temperature_text(row)), *cells)))
    return Table(_column_caption(column), (), ("method", "T", *_heads(measures)), tuple(rows), notes(summary))


def detail_table(summary: Summary, column: Column) -> Table:
    """One test domain with every measure, the null band, ties and the option mass."""
    table = column_table(summary, column, tuple(MEASURES))
    rows = []
    for label, cells in table.rows:
        cell = summary.cells[label, column.name]
        mass = _cell(cell.option_mass) if cell.option_mass is not None else TableCell("not stored")
        # behind T and conf-ECE, to be read beside it
        rows.append((label, (*cells[:2], _cell(cell.null_band), *cells[2:], TableCell(str(cell.ties)), mass)))
    header = (*table.header[:3], "conf-ECE if calibrated", *table.header[3:], "ties", "option mass")
    return Table(table.caption, (), header, tuple(rows), table.notes)


def difference_table(summary: Summary, columns: Sequence[Column]) -> Table:
    """Each row minus the first one, paired on items, one group of columns a test domain."""
    rows = []
    for row in summary.rows[1:]:
        cells = []
        for column in columns:
            versus = summary.cells[row.label, column.name].versus_first
            for key in COMPARED:
                cells.append(
                    TableCell(
                        number(versus[key].value, sign=True),
                        interval(versus[key], sign=True),
                        p_text(versus[key].p_value),
                    )
                )
        rows.append((row.label, tuple(cells)))
    one = len(columns) == 1
    return Table(
        caption=f"Difference from {summary.first}" + (f" on {_column_caption(columns[0])}" if one else ""),
        groups=() if one else (("", 1), *((f"{column.title}, n = {column.n}", len(COMPARED)) for column in columns)),
        header=("method", *([f"Δ {MEASURES[key].title}" for key in COMPARED] * len(columns))),
        rows=tuple(rows),
        notes=(f"Difference: {summary.definitions['difference']}. p: {summary.definitions['p_value']}.",),
    )


def notes(summary: Summary) -> tuple[str, ...]:
    """How the numbers of a table were found, in a few sentences."""
    d = summary.definitions
    outside = any(
        not one.low <= one.value <= one.high and not math.isnan(one.low)
        for cell in summary.cells.values()
        for one in cell.estimates.values()
    )
    return (
        f"In brackets: {d['interval']}; {d['n_resamples']} resamples, seed {d['seed']}. "
        f"{d['n_bins']} bins, {d['bin_rule']}. Confidence: {d['confidence']}.",
        f"Bold: {d['best']}. TS, T: {d['temperature']}."
        + (f" VS: {d['vector']}; it can change answers." if any(row.vector for row in summary.rows) else ""),
        *(f"{name} has no row of vector scaling: {why}." for name, why in d["vector_left_out"].items()),
        *([OUTSIDE] if outside else []),
    )


def to_text(table: Table, *, width: int = 100) -> str:
    """For a terminal of that many characters; intervals go under their numbers where one line is too narrow."""
    lines = [[label, *(compact(cell.joined) for cell in cells)] for label, cells in table.rows]
    widths = [max(map(len, column)) for column in zip(table.header, *lines, strict=True)]
    between = "\n" if sum(widths) + 2 * len(widths) > width else " "
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), title=table.caption, title_justify="left")
    for place, title in enumerate(table.header):
        drawn.add_column(title, justify="left" if place == 0 else "right", no_wrap=place == 0)
    for label, cells in table.rows:
        parts = [(f"{'*' if cell.bold else ''}{cell.text}", cell.detail, cell.p_value) for cell in cells]
        drawn.add_row(label, *(Text(compact(between.join(filter(None, part)))) for part in parts))
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None, highlight=False, emoji=False, markup=False)
    console.print(drawn)
    for note in table.notes:
        # a terminal's text may end in a file, where there is no bold
        console.print(note.replace("Bold:", "Star:"))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def to_markdown(table: Table) -> str:
    """A GitHub-flavoured Markdown table; group titles become part of the header."""
    groups = [title for title, span in table.groups for _ in range(span)] or [""] * len(table.header)
    header = [f"{group}: {title}" if group else title for group, title in zip(groups, table.header, strict=True)]
    lines = [_markdown_row(header), _markdown_row(["---", *["---:"] * (len(header) - 1)])]
    for label, cells in table.rows:
        texts = [f"**{cell.text}** {cell.detail}" if cell.bold else cell.joined for cell in cells]
        lines.append(_markdown_row([label, *texts]))
    return "\n".join(lines) + "\n"


def to_latex(table: Table) -> str:
    """A booktabs tabular with the interval under each number."""
    lines = [f"% {table.caption}", rf"\begin{{tabular}}{{l{'r' * (len(table.header) - 1)}}}", r"\toprule"]
    if table.groups:
        spans = [rf"\multicolumn{{{span}}}{{c}}{{{_latex(title)}}}" for title, span in table.groups]
        lines.append(" & ".join(spans) + r" \\")
    lines += [" & ".join(_latex(title) for title in table.header) + r" \\", r"\midrule"]
    for label, cells in table.rows:
        texts = [rf"\textbf{{{_latex(cell.text)}}}" if cell.bold else _latex(cell.text) for cell in cells]
        details = [rf"{{\scriptsize {_latex(' '.join(filter(None, (cell.detail, cell.p_value))))}}}" for cell in cells]
        lines.append(" & ".join([_latex(label), *texts]) + r" \\")
        # the braces keep a leading bracket from being taken as the optional argument of \\
        lines.append(" & ".join(["", *details]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", *(f"% {note}" for note in table.notes)]) + "\n"


CSV_FIELDS = (
    "row", "column", "shift", "measure", "value", "low", "high", "n", "null_low", "null_high", "difference",
    "difference_low", "difference_high", "p_value", "best", "scaling", "temperature", "identified", "n_bins",
    "n_resamples", "seed",
)  # fmt: skip


def to_csv(summary: Summary) -> str:
    """Every number of the report at full precision, one line a (row, column, measure)."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, CSV_FIELDS, lineterminator="\n", restval="")
    writer.writeheader()
    d = summary.definitions
    for (label, name), cell in summary.cells.items():
        row, column = summary.row(label), next(one for one in summary.columns if one.name == name)
        for key, found in cell.estimates.items():
            line = {
                "row": label, "column": name, "shift": column.shift, "measure": key, "value": found.value,
                "low": found.low, "high": found.high, "n": found.n, "best": key in cell.best,
                "scaling": row.row.scaling,
                "temperature": "per option" if row.vector else row.temperature,
                "identified": row.identified, "n_bins": d["n_bins"], "seed": d["seed"],
                "n_resamples": d["n_resamples_slow" if MEASURES[key].slow else "n_resamples"],
            }  # fmt: skip
            if key == "conf_ece":
                line |= {"null_low": cell.null_band.low, "null_high": cell.null_band.high}
            if key in cell.versus_first:
                delta = cell.versus_first[key]
                line |= {"difference": delta.value, "difference_low": delta.low, "difference_high": delta.high}
                line["p_value"] = delta.p_value
            writer.writerow(line)
    return stream.getvalue()


def _column_caption(column: Column) -> str:
    domains = f" ({', '.join(column.domains)})" if column.pooled else ""
    return f"{column.title}{domains}, n = {column.n}"


def _heads(measures: Sequence[str]) -> tuple[str, ...]:
    return tuple(MEASURES[key].title + MEASURES[key].arrow for key in measures)


def _cell(found: Estimate, *, bold: bool = False) -> TableCell:
    return TableCell(number(found.value), interval(found), bold=bold)


def _estimate_cell(summary: Summary, row: str, column: str, key: str) -> TableCell:
    cell = summary.cells[row, column]
    return _cell(cell.estimates[key], bold=key in cell.best)


def _markdown_row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "↓": r"$\downarrow$", "↑": r"$\uparrow$", "−": "$-$",
    "Δ": r"$\Delta$", "λ": r"$\lambda$", "–": "--", "∞": r"$\infty$", "<": "$<$", ">": "$>$",
}  # fmt: skip


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
