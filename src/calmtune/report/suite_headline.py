"""What a suite shows, in plain words made from the numbers, as willing to say 'not shown' as 'lower'."""

from __future__ import annotations

from collections.abc import Iterator

from calmtune.report.numbers import Difference, interval, number, p_text, with_interval
from calmtune.report.suite_records import ModelPart, SettingPart, SuiteCell, SuiteSummary
from calmtune.report.suite_runs import BASE
from calmtune.report.summary import Column

SCALED = f"{BASE} + TS"
_SHIFTS = {"ID": "in domain", "OOD": "out of domain"}
_FEW = 2
"""So many tables are told one by one in the first sentence; of more it counts."""
_MANY_NAMES = 4
"""Rows that a sentence lists."""


def suite_headline(summary: SuiteSummary) -> tuple[str, ...]:
    """One sentence for the whole; then by setting and model the training methods, the choices and the best row."""
    parts = list(_parts(summary))
    many = len(parts) > 1
    sentences = [
        f"{part.name}, {model.model}, {sentence}" if many else sentence[0].upper() + sentence[1:]
        for part, model, column in parts
        for sentence in _sentences(part, model, column)
    ]
    picked = (
        "A row that is named for its lowest number was picked by the test items and looks better than it is; a chosen "
        "row was not.",
    )
    return (_verdict(parts), *sentences, *(picked if sentences else ()))


def _parts(summary: SuiteSummary) -> Iterator[tuple[SettingPart, ModelPart, Column]]:
    """Where there is something to say, with the column that it is about: out of domain where there is one."""
    for part in summary.settings:
        for model in part.models:
            column = model.column("OOD") or model.column("ID")
            if column is not None and column.name in model.lowest_trained:
                yield part, model, column


def _verdict(parts: list[tuple[SettingPart, ModelPart, Column]]) -> str:
    if not parts:
        return "No run is done yet."
    if len(parts) <= _FEW:
        return " ".join(_short(part, model, column) for part, model, column in parts)
    lower, higher = 0, 0
    for _, model, column in parts:
        change = _change(model, column, model.lowest_trained[column.name], SCALED, "conf_ece")
        lower += change is not None and change.shown and change.value < 0
        higher += change is not None and change.shown and change.value > 0
    return (
        f"In {lower} of {len(parts)} settings and models the training method with the lowest conf-ECE is shown to be "
        f"lower than {SCALED}, in {higher} shown to be higher, in {len(parts) - lower - higher} neither."
    )


def _short(part: SettingPart, model: ModelPart, column: Column) -> str:
    label = model.lowest_trained[column.name]
    text = (
        f"{part.name}, {model.model}: {_SHIFTS[column.shift]}, {label} has the lowest conf-ECE of the training methods"
    )
    versus = _change(model, column, label, SCALED, "conf_ece")
    if versus is not None:
        text += (
            f"; it is {_word(versus, 'lower', 'higher')} than {SCALED}"
            if versus.shown
            else (f"; it is not shown to differ from {SCALED}")
        )
    accuracy = _change(model, column, label, part.plain, "accuracy")
    if accuracy is not None:
        word = "lower" if accuracy.value < 0 else "higher"
        text += (
            f", and its accuracy is shown to be {word} than that of {part.plain}"
            if accuracy.shown
            else f", and its accuracy is not shown to differ from that of {part.plain}"
        )
    return text + "."


def _sentences(part: SettingPart, model: ModelPart, column: Column) -> Iterator[str]:
    label = model.lowest_trained[column.name]
    where = f"{_SHIFTS[column.shift]} ({', '.join(column.domains)}; n = {column.n})"
    yield (
        f"{where}: of the training methods without a post-hoc fit, {label} has the lowest conf-ECE, "
        f"{_value(model.cells[label, column.name], 'conf_ece')}. {_others(part, model, column, label)}"
        f"{_against(part, model, column, label)}"
    )
    chosen = [row.label for row in part.rows if row.kind == "chosen" and (row.label, column.name) in model.cells]
    first = min(chosen, key=lambda name: model.cells[name, column.name].spreads["conf_ece"].estimate.value)
    yield (
        f"with what each run chose on its calibration split, {first} has the lowest conf-ECE, "
        f"{_value(model.cells[first, column.name], 'conf_ece')}.{_against(part, model, column, first)}"
    )
    best = model.lowest.get((column.name, "conf_ece"))
    if best is not None:
        cell = model.cells[best, column.name]
        marked = "shown to be lower than every other row" if "conf_ece" in cell.best else _unmarked(part, model, column)
        yield f"of all rows {best} has the lowest conf-ECE, {_value(cell, 'conf_ece')}, {marked}."


def _unmarked(part: SettingPart, model: ModelPart, column: Column) -> str:
    """Why the lowest row is not marked as best."""
    if model.missing:
        return "which is not final, as runs are missing"
    near = [
        row.label
        for row in part.rows
        if (change := _change(model, column, row.label, model.lowest[column.name, "conf_ece"], "conf_ece")) is not None
        and not change.shown
    ]
    return f"not shown to be lower than {_list(near)}"


def _others(part: SettingPart, model: ModelPart, column: Column, label: str) -> str:
    """How the lowest training method stands against the other ones."""
    changes = {
        row.label: change
        for row in part.rows
        if row.is_trained and (change := _change(model, column, row.label, label, "conf_ece")) is not None
    }
    shown = [name for name, change in changes.items() if change.shown]
    rest = [name for name in changes if name not in shown]
    if not changes:
        return ""
    if not rest:
        return "It is shown to be lower than every other one."
    if not shown:
        return f"It is not shown to be lower than {_list(rest)}."
    return f"It is shown to be lower than {_list(shown, 'and')}, but not than {_list(rest)}."


def _against(part: SettingPart, model: ModelPart, column: Column, label: str) -> str:
    """A row against base + TS in conf-ECE, and against plain fine-tuning in accuracy."""
    text, seeds = "", len(model.cells[label, column.name].seeds)
    versus = _change(model, column, label, SCALED, "conf_ece")
    if versus is not None:
        other = _value(model.cells[SCALED, column.name], "conf_ece")
        word = f"is {_word(versus, 'lower', 'higher')} than" if versus.shown else "is not shown to differ from"
        text += f" It {word} {SCALED}, {other} ({_paired(versus, seeds)})."
    own = _value(model.cells[label, column.name], "accuracy")
    accuracy = _change(model, column, label, part.plain, "accuracy")
    if accuracy is None:
        return f"{text} Its accuracy is {own}."
    word = (
        f"{_word(accuracy, 'lower', 'higher')} than that of" if accuracy.shown else "not shown to differ from that of"
    )
    return f"{text} Its accuracy is {own}, {word} {part.plain} ({_paired(accuracy, seeds)})."


def _change(model: ModelPart, column: Column, label: str, other: str | None, measure: str) -> Difference | None:
    """A row minus another one, where both are there and are two."""
    cell = model.cells.get((label, column.name))
    return cell.versus.get(other, {}).get(measure) if cell is not None and other is not None else None


def _word(change: Difference, lower: str, higher: str) -> str:
    return f"shown to be {lower}" if change.value < 0 else f"shown to be {higher}"


def _value(cell: SuiteCell, measure: str) -> str:
    spread = cell.spreads[measure]
    seeds = "" if cell.seeds == (None,) else f" ({len(cell.seeds)} seed{'s' * (len(cell.seeds) != 1)})"
    deviation = f" ± {number(spread.deviation)}" if len(cell.seeds) > 1 else ""
    return f"{number(spread.estimate.value)}{deviation} {interval(spread.estimate)}{seeds}"


def _paired(change: Difference, seeds: int) -> str:
    """With several seeds the interval is about other seeds too, the p-value is not."""
    of_these = " for these seeds" if seeds > 1 else ""
    return f"Δ {with_interval(change, sign=True)}, {p_text(change.p_value)}{of_these}"


def _list(names: list[str], word: str = "or") -> str:
    """Names in a sentence; of many the first ones and how many more.

    >>> _list(["a", "b", "c"]), _list(list("abcdefgh"))
    ('a, b or c', 'a, b, c, d or 4 more')
    """
    if len(names) > _MANY_NAMES + 1:
        names = [*names[:_MANY_NAMES], f"{len(names) - _MANY_NAMES} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"
