"""One set of cells: for the terminal, LaTeX and CSV."""

import csv
import io
import math

import pytest

from calmtune.report.numbers import interval, number, p_text
from calmtune.report.suite import summarise_suite
from calmtune.report.suite_column import ALL_MEASURES
from calmtune.report.suite_tables import (
    LOWEST,
    choice_table,
    full_columns,
    measure_table,
    short_columns,
    suite_csv,
    suite_notes,
    tables_latex,
    tables_text,
    versus_table,
)
from report.suite_cases import FITS, given_run, random_suite

MANY = {"planned": [("s", model, method, seed) for model in "abc" for method in ("sft", "calm") for seed in range(3)]}


def summarise(runs, **changes):
    return summarise_suite(runs, title="t", n_bins=10, n_resamples=20, **FITS, **changes)


@pytest.fixture(scope="module")
def summary():
    return summarise(random_suite())


@pytest.fixture(scope="module")
def unfinished():
    return summarise(random_suite(models=("a", "b")), **MANY)


def test_cells_are_mean_spread_and_interval(summary):
    part = summary.settings[0]
    table = measure_table(part, "conf_ece", full_columns(part))
    assert table.header == ("method", "ID: near", "OOD: far", "OOD: farther", "OOD: all")
    assert table.groups == ()
    spread = part.models[0].cells["calm adjusted", "far"].spreads["conf_ece"]
    cell = dict(table.rows)["calm adjusted"][1]
    assert cell.text == f"{number(spread.estimate.value)} ± {number(spread.deviation)}"
    assert (cell.detail, cell.p_value) == (interval(spread.estimate), "")
    assert "±" not in dict(table.rows)["base"][1].text
    full = measure_table(part, "conf_ece", full_columns(part), full=True)
    assert [label for label, _ in full.rows] == [row.label for row in part.rows]


def test_the_best_row_is_bold():
    runs = [given_run("sft", seed, [0.95] * 9, [0.55] * 9, [1] * 9) for seed in (0, 1)]
    part = summarise(runs).settings[0]
    best = {label for (label, _), cell in part.models[0].cells.items() if "conf_ece" in cell.best}
    assert best, "the case has a best row"
    table = measure_table(part, "conf_ece", full_columns(part), full=True)
    assert {label for label, cells in table.rows if cells[0].bold} == best


def test_models_stand_side_by_side_and_what_is_missing_is_told(unfinished):
    part = unfinished.settings[0]
    # eight columns are too many for the short table: one a shift
    assert [(model.model, column.title) for model, column in short_columns(part)] == [
        (model, title) for model in "abc" for title in ("ID: near", "OOD: all")
    ]
    table = measure_table(part, "nll", short_columns(part))
    assert table.groups == (("", 1), ("a", 2), ("b", 2), ("c", 2))
    rows = dict(table.rows)
    assert rows["sft"][0].p_value == "2 of 3 seeds"
    assert (rows["sft"][5].text, rows["sft"][5].detail) == ("–", "0 of 3 seeds")
    assert (rows["base"][5].text, rows["base"][5].detail) == ("–", "")
    assert any(
        "s, c: 0 of 6 runs are done" in note and "sft (seed 0, 1, 2)" in note for note in suite_notes(unfinished)
    )


def test_differences_from_base_and_from_the_best_row(summary):
    part = summary.settings[0]
    model = part.models[0]
    base = versus_table(part, "accuracy", full_columns(part), "base", full=True)
    assert "base" not in dict(base.rows)
    delta = model.cells["sft", "near"].versus["base"]["accuracy"]
    cell = dict(base.rows)["sft"][0]
    assert (cell.text, cell.detail, cell.p_value) == (
        number(delta.value, sign=True), interval(delta, sign=True), p_text(delta.p_value)
    )  # fmt: skip
    best = versus_table(part, "conf_ece", full_columns(part), LOWEST)
    first = model.lowest["near", "conf_ece"]
    assert dict(best.rows)[first][0].text == "reference"
    delta = model.cells["base", "near"].versus[first]["conf_ece"]
    assert dict(best.rows)["base"][0].text == number(delta.value, sign=True)


def test_choices_are_counted(summary):
    assert {label: cells[0].text for label, cells in choice_table(summary.settings[0]).rows} == {
        "sft": "as it is: 2 of 2", "calm": "adjusted: 2 of 2"
    }  # fmt: skip


@pytest.mark.parametrize("width", [80, 100])
def test_text_fits_the_terminal(unfinished, width):
    text = tables_text(unfinished, width=width)
    assert max(map(len, text.splitlines())) <= width
    for part in unfinished.settings:
        for row in part.rows:
            assert row.label in text
    lines = [line for line in text.splitlines() if line.startswith("   ")]
    assert all(line.count("[") == line.count("]") for line in lines), "an interval is never cut"
    assert text.count("2 of 3 seeds") > 10


def test_latex_has_the_differences_with_their_p_values(unfinished):
    tables = tables_latex(unfinished).split(r"\end{tabular}")
    captions = [table for table in tables if "difference from" in table]
    assert len(captions) == 4 * 2
    ours = next(table for table in captions if "conf-ECE" in table and "difference from base" in table)
    model = unfinished.settings[0].models[0]
    for label in ("sft", "calm adjusted"):
        delta = model.cells[label, "near"].versus["base"]["conf_ece"]
        assert f"{label} & {number(delta.value, sign=True)} &".replace("−", "$-$") in ours
        assert f"{interval(delta, sign=True)} {p_text(delta.p_value)}".replace("−", "$-$").replace("<", "$<$") in ours


def test_latex_is_balanced_and_has_models_as_groups(unfinished):
    text = tables_latex(unfinished)
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 4 * (1 + 3 + 2)
    assert r"\multicolumn{2}{c}{a} & \multicolumn{2}{c}{b}" in text
    assert r"$\pm$" in text
    body = [line for line in text.splitlines() if not line.startswith("%")]
    assert not [line for line in body if any(ord(c) > 127 for c in line)]
    assert all(line.count("{") == line.count("}") for line in body)


def test_csv_holds_every_number_exactly(summary):
    lines = list(csv.DictReader(io.StringIO(suite_csv(summary))))
    cells = summary.settings[0].models[0].cells
    means = [line for line in lines if line["seed"] == "mean" and not line["versus"]]
    assert len(means) == len(cells) * len(ALL_MEASURES)
    for line in means:
        spread = cells[line["row"], line["column"]].spreads[line["measure"]]
        assert float(line["value"]) == spread.estimate.value
        assert line["low"] == ("" if math.isnan(spread.estimate.low) else repr(spread.estimate.low))
        seeds = [
            float(other["value"])
            for other in lines
            if other["seed"] not in ("mean", "")
            and all(other[key] == line[key] for key in ("row", "column", "measure"))
        ]
        assert seeds == ([] if line["row"].startswith("base") else list(spread.values))
    versus = [line for line in lines if line["versus"]]
    assert len(versus) == sum(len(one) for cell in cells.values() for one in cell.versus.values())
    for line in versus:
        delta = cells[line["row"], line["column"]].versus[line["versus"]][line["measure"]]
        assert (float(line["difference"]), float(line["p_value"])) == (delta.value, delta.p_value)
    marked = {(line["row"], line["column"], line["measure"]) for line in means if line["lowest"] == "True"}
    assert marked == {(row, *key) for key, row in summary.settings[0].models[0].lowest.items()}
