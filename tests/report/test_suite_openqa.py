"""A suite on open questions: means over seeds, differences from the base, and what has no table in common."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from calmtune.report.openqa_readings import read_open
from calmtune.report.suite_openqa import OpenSuiteRun, summarise_open_suite
from calmtune.report.suite_openqa_write import open_suite_headline, suite_tables, write_open_suite
from report.open_cases import graded

OPTIONS = {"title": "Tiny & open", "n_bins": 10, "n_resamples": 40}


def answers(sharp, **change):
    return {"pop": graded("pop", 40, sharp=sharp, seed=2, **change)}


def run(method, seed, sharps, **change):
    kinds = dict(zip(("raw", "adjusted"), (answers(sharp) for sharp in sharps), strict=False))
    values = {
        "setting": "trivia_to_pop", "model": "tiny", "method": method, "seed": seed, "base": answers(3.0),
        "tuned": kinds, "shifts": {"pop": "OOD"}, "settings": {"method": method, "seed": seed},
    }  # fmt: skip
    return OpenSuiteRun(**{**values, **change})


@pytest.fixture(scope="module")
def summary():
    runs = [run("sft", 0, (3.5,)), run("calm", 0, (2.5, 1.0)), run("calm", 1, (2.0, 0.8))]
    planned = [*(one.key for one in runs), ("trivia_to_pop", "tiny", "sft", 1), ("later", "tiny", "sft", 0)]
    return summarise_open_suite(runs, **OPTIONS, planned=planned)


def test_rows_are_the_base_and_each_distribution(summary):
    (part,) = summary.settings
    assert part.rows == ("base", "sft", "calm", "calm adjusted")
    assert summary.missing == ("trivia_to_pop / tiny / sft / seed 1", "later / tiny / sft / seed 0")


def test_a_figure_is_the_mean_over_seeds_of_each_seeds_own(summary):
    cell = summary.settings[0].models[0].cells["calm adjusted", "pop"]
    assert cell.seeds == (0, 1)
    own = [float(read_open(answers(sharp)["pop"]).correct.mean()) for sharp in (1.0, 0.8)]
    assert cell.spreads["accuracy"].values == pytest.approx(own)
    assert cell.spreads["accuracy"].estimate.value == pytest.approx(np.mean(own))
    assert cell.spreads["accuracy"].deviation == pytest.approx(np.std(own, ddof=1))
    base = float(read_open(answers(3.0)["pop"]).correct.mean())
    assert cell.versus["accuracy"].value == pytest.approx(np.mean(own) - base)


def test_all_files_say_the_same(summary, tmp_path):
    page = write_open_suite(summary, tmp_path)
    assert "Tiny &amp; open" in page.read_text()
    record = json.loads((tmp_path / "suite.json").read_text())
    lines = list(csv.DictReader((tmp_path / "suite.csv").open()))
    for cell in record["cells"]:
        value = cell["spreads"]["sem1_ece"]["estimate"]["value"]
        (line,) = [one for one in lines if one["row"] == cell["row"] and one["measure"] == "sem1_ece"]
        assert float(line["value"]) == value
        assert f"{value:.3f}".lstrip("0") in (tmp_path / "tables.txt").read_text()
    text = (tmp_path / "tables.txt").read_text()
    assert "Not done yet: trivia_to_pop / tiny / sft / seed 1" in " ".join(text.split())
    assert (tmp_path / "tables.tex").read_text().count("toprule") == 2
    assert "calm adjusted" in (tmp_path / "report.md").read_text()


def test_a_sentence_for_each_trained_row(summary):
    told = open_suite_headline(summary)
    assert len(told) == 3
    assert all(("not shown to differ" in one) or ("Δ" in one) for one in told)


def test_many_columns_get_a_table_for_each_measure():
    runs = [run("sft", 0, (3.5,), model=model) for model in ("a", "b", "c")]
    tables = suite_tables(summarise_open_suite(runs, **OPTIONS).settings[0])
    assert len(tables) == 8
    assert [name for name, _ in tables[0].groups] == ["", "a", "b", "c"]
    assert [label for label, _ in tables[4].rows] == ["sft"]


def test_runs_that_do_not_fit_together_are_refused():
    first = run("sft", 0, (3.0,))
    with pytest.raises(ValueError, match="given 2 times"):
        summarise_open_suite([first, first], **OPTIONS)
    with pytest.raises(ValueError, match="has the test domains"):
        summarise_open_suite([first, run("calm", 0, (2.0,), shifts={"pop": "ID"})], **OPTIONS)
    other = run("calm", 0, (2.0,))
    other.tuned["raw"]["pop"] = replace(other.tuned["raw"]["pop"], items=other.tuned["raw"]["pop"].items[:-1])
    with pytest.raises(ValueError, match="asked other questions"):
        summarise_open_suite([first, other], **OPTIONS)
    with pytest.raises(ValueError, match="expected at least one run"):
        summarise_open_suite([], **OPTIONS)
