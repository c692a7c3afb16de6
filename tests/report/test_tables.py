"""One set of cells, four ways to write it."""

import csv
import io
import re
from dataclasses import replace

import pytest

from calmtune.report import summarise
from calmtune.report.measures import MEASURES
from calmtune.report.numbers import interval, number
from calmtune.report.tables import (
    OUTSIDE,
    Table,
    TableCell,
    column_table,
    detail_table,
    difference_table,
    overview_table,
    to_csv,
    to_latex,
    to_markdown,
    to_text,
)
from report.cases import Fit, comparison


@pytest.fixture(scope="module")
def summary():
    return summarise(comparison({"near": "ID", "far": "OOD"}), n_resamples=20)


def test_overview_has_a_group_a_domain(summary):
    table = overview_table(summary)
    assert table.groups == (("", 2), ("ID: near, n = 40", 3), ("OOD: far, n = 40", 3))
    assert {len(cells) for _, cells in table.rows} == {len(table.header) - 1}
    far = summary.cells["tuned raw", "far"].estimates["accuracy"]
    cells = dict(table.rows)["tuned raw"]
    assert (cells[5].text, cells[5].detail) == (number(far.value), interval(far))


def test_best_is_bold_in_every_form():
    table = Table(
        "c", (), ("method", "x"), (("a", (TableCell("0.1", "[0.0, 0.2]", bold=True),)), ("b", (TableCell("0.3"),)))
    )
    assert "| a | **0.1** [0.0, 0.2] |" in to_markdown(table)
    assert r"\textbf{0.1}" in to_latex(table)
    assert "*.1 [.0, .2]" in to_text(table)
    assert to_markdown(table).count("**") == 2
    assert to_latex(table).count("textbf") == 1


def test_the_marks_are_those_of_the_summary(summary):
    tables = {column.name: column_table(summary, column, tuple(MEASURES)) for column in summary.columns}
    marked = {
        (label, name, title)
        for name, table in tables.items()
        for label, cells in table.rows
        for title, cell in zip(table.header[2:], cells[1:], strict=True)
        if cell.bold
    }
    expected = {
        (row, column, MEASURES[key].title + MEASURES[key].arrow)
        for (row, column), cell in summary.cells.items()
        for key in cell.best
    }
    assert marked == expected


def test_csv_holds_every_number_exactly(summary):
    lines = list(csv.DictReader(io.StringIO(to_csv(summary))))
    assert len(lines) == len(summary.cells) * len(MEASURES)
    for line in lines:
        cell = summary.cells[line["row"], line["column"]]
        found = cell.estimates[line["measure"]]
        assert (float(line["value"]), float(line["low"]), float(line["high"])) == (found.value, found.low, found.high)
        assert int(line["n"]) == found.n
        if line["measure"] in cell.versus_first:
            assert float(line["difference"]) == cell.versus_first[line["measure"]].value
            assert float(line["p_value"]) == cell.versus_first[line["measure"]].p_value
        else:
            assert line["difference"] == ""


def test_markdown_values_are_those_of_the_summary(summary):
    text = to_markdown(column_table(summary, summary.columns[1]))
    lines = {line.split(" | ")[0].strip("| "): line for line in text.splitlines()[2:]}
    for row in summary.rows:
        for key in ("conf_ece", "cw_ece", "accuracy", "nll"):
            found = summary.cells[row.label, "far"].estimates[key]
            assert re.sub(r"\*", "", lines[row.label]).count(f"{number(found.value)} {interval(found)}") >= 1


def test_a_pipe_in_a_name_does_not_break_the_table():
    table = Table("c", (), ("method", "x"), (("a|b", (TableCell("1"),)),))
    assert to_markdown(table).splitlines()[2] == r"| a\|b | 1 |"


def test_latex_is_escaped_and_balanced(summary):
    text = to_latex(replace(overview_table(summary), rows=(("50 % of_$x$ & {y}", (TableCell("−1", "[−2, 3]"),)),)))
    assert r"50 \% of\_\$x\$ \& \{y\} & $-$1 \\" in text
    assert r"{\scriptsize [$-$2, 3]} \\" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1


@pytest.mark.parametrize("width", [100, 120])
def test_text_fits_the_terminal(summary, width):
    for column in summary.columns:
        for table in (column_table(summary, column), difference_table(summary, (column,))):
            text = to_text(table, width=width)
            assert max(map(len, text.splitlines())) <= width
            for label, _ in table.rows:
                assert label in text
            # a number and its interval are never cut
            assert all(line.count("[") == line.count("]") for line in text.split("\n\n")[1].splitlines())


def test_details_stand_beside_what_they_explain(summary):
    table = detail_table(summary, summary.columns[0])
    assert table.header[2:4] == ("conf-ECE ↓", "conf-ECE if calibrated")
    band = summary.cells["base", "near"].null_band
    assert dict(table.rows)["base"][2].detail == interval(band)
    assert table.header[-2:] == ("ties", "option mass")
    assert dict(table.rows)["base"][-1].text == "0.800"


def test_an_unidentified_temperature_is_said():
    found = summarise(comparison(n=12, fit_temperature=lambda z, y: Fit(100.0, identified=False)), n_resamples=5)
    cells = dict(overview_table(found).rows)
    assert cells["base + TS"][0].text == "not identified"
    assert cells["base"][0].text == "1"


def test_vector_scaling_has_no_one_temperature(summary):
    assert dict(overview_table(summary).rows)["base + VS"][0].text == "per option"
    lines = [line for line in csv.DictReader(io.StringIO(to_csv(summary))) if line["row"] == "base + VS"]
    assert {(line["scaling"], line["temperature"]) for line in lines} == {("VS", "per option")}
    assert any("VS: one scale and one shift by option index" in note for note in overview_table(summary).notes)
    without = summarise(comparison({"near": "ID"}, n=12, fit_vector=None), n_resamples=2)
    assert not any("VS:" in note for note in overview_table(without).notes)


def test_an_interval_beside_its_number_is_explained(summary):
    outside = [
        one
        for cell in summary.cells.values()
        for one in cell.estimates.values()
        if not one.low <= one.value <= one.high
    ]
    assert outside, "cw-ECE at n = 40 is such a case"
    assert OUTSIDE in overview_table(summary).notes
