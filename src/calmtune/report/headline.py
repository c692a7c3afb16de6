"""What changed, in plain words made from the numbers, as willing to say 'worse' or 'not shown' as 'better'."""

from __future__ import annotations

from calmtune.report.comparison import Shift
from calmtune.report.measures import COMPARED
from calmtune.report.numbers import Difference, Estimate, interval, number, p_text, with_interval
from calmtune.report.summary import Cell, Column, Summary

_SHIFTS: dict[Shift, str] = {"ID": "In domain", "OOD": "Out of domain"}
LOW_MASS = 0.5


def headline(summary: Summary) -> tuple[str, ...]:
    """One sentence for the whole, then in domain, out of domain, temperature scaling, the choice, and warnings."""
    sentences = [_verdict(summary)]
    for shift in ("ID", "OOD"):
        column = summary.column(shift)
        if column is not None:
            sentences.append(_shift_sentence(summary, column))
    return (*sentences, *_against_scaling(summary), choice_sentence(summary), *_warnings(summary))


def choice_sentence(summary: Summary) -> str:
    """What was chosen, on which data, by which rule, and what every candidate scored."""
    choice = summary.choice
    recorded = " when it was evaluated" if choice.given else ""
    text = f"The model is used as {choice.row}, chosen{recorded} without a look at any test item by {choice.chosen_by}."
    if choice.scores:
        text += f" Scores there: {'; '.join(f'{label} {number(value)}' for label, value in choice.scores.items())}."
    if choice.refused:
        text += f" Not eligible: {'; '.join(f'{label} ({why})' for label, why in choice.refused.items())}."
    return text


def _verdict(summary: Summary) -> str:
    chosen = summary.choice.row
    if chosen == summary.first:
        return f"Nothing to compare: {chosen} is the only model, read as it is."
    words = []
    for shift in ("ID", "OOD"):
        column = summary.column(shift)
        if column is not None:
            change = summary.cells[chosen, column.name].versus_first
            ece = _word(change["conf_ece"], better="better", worse="worse", unclear="not shown to change")
            accuracy = _word(change["accuracy"], better="lower", worse="higher", unclear="not shown to change")
            words.append(f"{_SHIFTS[shift].lower()}, calibration is {ece} and accuracy {accuracy}")
    return f"{chosen} against {summary.first}: {'; '.join(words)}."


def _word(change: Difference, *, better: str, worse: str, unclear: str) -> str:
    """A word for a difference of which a negative value is the better one."""
    return unclear if not change.shown else (better if change.value < 0 else worse)


def _shift_sentence(summary: Summary, column: Column) -> str:
    where = f"{_SHIFTS[column.shift]} ({', '.join(column.domains)}; n = {column.n})"
    before = summary.cells[summary.first, column.name].estimates
    if summary.choice.row == summary.first:
        ece, accuracy = with_interval(before["conf_ece"]), with_interval(before["accuracy"])
        return f"{where}, conf-ECE is {ece} and accuracy {accuracy}."
    after = summary.cells[summary.choice.row, column.name]
    parts = [
        _change(name, before[key], after.estimates[key], after.versus_first[key])
        for key, name in zip(COMPARED, ("conf-ECE", "accuracy", "NLL"), strict=True)
    ]
    band = after.null_band
    inside = after.estimates["conf_ece"].value <= band.high
    floor = (
        f" A perfectly calibrated model with these confidences would score {interval(band)}: "
        f"{'the result is within it' if inside else 'the result is above it'}."
    )
    return f"{where}, {parts[0]}; {parts[1]}; {parts[2]}.{floor}"


def _change(name: str, before: Estimate, after: Estimate, change: Difference) -> str:
    verb = "went down" if change.value < 0 else "went up"
    pair = f"from {with_interval(before)} to {with_interval(after)}"
    paired = f"{number(change.value, sign=True)} {interval(change, sign=True)}, {p_text(change.p_value)}"
    if change.value == 0 and change.low == change.high == 0:
        return f"{name} is {with_interval(after)} in both, item by item"
    if not change.shown:
        return f"{name} is {pair}, which shows no change: the paired interval includes zero ({paired})"
    return f"{name} {verb} {pair} ({paired})"


def _against_scaling(summary: Summary) -> tuple[str, ...]:
    """How the chosen row stands against a temperature on the first model, which the reader can have for nothing."""
    scaled = summary.rows[1]
    if not summary.versus_scaled or summary.choice.row == summary.first:
        return ()
    parts = []
    for shift in ("ID", "OOD"):
        column = summary.column(shift)
        if column is not None:
            alone = summary.cells[scaled.label, column.name].estimates["conf_ece"]
            change = summary.versus_scaled[column.name]["conf_ece"]
            word = _word(
                change, better="lower than that", worse="higher than that", unclear="not shown to differ from it"
            )
            paired = f"{number(change.value, sign=True)} {interval(change, sign=True)}, {p_text(change.p_value)}"
            parts.append(f"{_SHIFTS[shift].lower()} {with_interval(alone)}, and the chosen row is {word} ({paired})")
    how = f"T = {scaled.temperature:.2f}" if scaled.identified else "T not identified"
    return (f"Against temperature scaling alone ({scaled.label}, {how}): its conf-ECE is {'; '.join(parts)}.",)


def _warnings(summary: Summary) -> tuple[str, ...]:
    found = []
    for row in summary.rows:
        if not row.identified:
            what = "temperature" if row.vector is None else "vector scaling"
            found.append(
                f"The {what} of {row.label} is not identified by its calibration split (the best value lies at or "
                "beyond a bound, or the scores say nothing); do not rely on that row."
            )
    return (*found, *_low_mass(summary), *_ties(summary))


def _read_once(summary: Summary) -> list[tuple[str, str, Cell]]:
    """(row, column, cell) without rescaled rows and pooled columns, which would say the same again."""
    single = {column.name for column in summary.columns if not column.pooled}
    return [
        (label, name, cell)
        for (label, name), cell in summary.cells.items()
        if name in single and not summary.row(label).row.scaled
    ]


def _low_mass(summary: Summary) -> tuple[str, ...]:
    """Letters that hold little of the probability; the mass of whole texts is small for every model."""
    letters = {v.name for v in summary.comparison.variants if v.calibration.meta.get("scoring") == "letter"}
    low = [
        f"{label} on {name}: {with_interval(cell.option_mass)}"
        for label, name, cell in _read_once(summary)
        if summary.row(label).row.variant in letters
        and cell.option_mass is not None
        and cell.option_mass.value < LOW_MASS
    ]
    if not low:
        return ()
    return (
        f"The option letters hold less than {LOW_MASS} of the vocabulary's probability ({'; '.join(low)}): the option "
        "probabilities describe a small part of what the model would say.",
    )


def _ties(summary: Summary) -> tuple[str, ...]:
    tied = [
        f"{cell.ties} of {cell.estimates['accuracy'].n} ({label} on {name})"
        for label, name, cell in _read_once(summary)
        if cell.ties
    ]
    if not tied:
        return ()
    return (f"Items with tied options: {'; '.join(tied)}. Ties are {summary.definitions['ties']}.",)
