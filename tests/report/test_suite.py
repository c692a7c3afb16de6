"""The files of a suite's report."""

import json
import re
from dataclasses import replace

import pytest

from calmtune.report.numbers import interval, number
from calmtune.report.suite import suite_json, summarise_suite, write_suite_report
from calmtune.report.suite_settings import common_settings, settings_table
from report.suite_cases import FITS, random_suite
from report.test_html import ATTACK, Page

HOW = {"title": ATTACK, "n_bins": 10, "n_resamples": 10, **FITS}


def attacked(runs):
    settings = {"note": ATTACK}
    return [
        replace(run, setting=f"{ATTACK} s", model=f"{ATTACK} m", settings={**run.settings, **settings}) for run in runs
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("suite") / "report"
    page = write_suite_report(attacked(random_suite()), made, **HOW)
    assert page == made / "report.html"
    return made


@pytest.fixture(scope="module")
def text(folder):
    return (folder / "report.html").read_text(encoding="utf-8")


def test_all_files_are_there(folder):
    names = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    assert names == [
        "report.html", "report.md", "report_files/conf-ece-1-1.png", "report_files/trade-1-1.png", "suite.csv",
        "suite.json", "tables.tex", "tables.txt",
    ]  # fmt: skip
    markdown = (folder / "report.md").read_text(encoding="utf-8")
    for picture in re.findall(r"\]\((report_files/[^)]*)\)", markdown):
        assert (folder / picture).read_bytes().startswith(b"\x89PNG")
    assert "<script" not in markdown


def test_the_same_bytes_again(folder, tmp_path):
    write_suite_report(attacked(random_suite()), tmp_path, **HOW)
    for file in folder.rglob("*"):
        if file.is_file():
            assert (tmp_path / file.relative_to(folder)).read_bytes() == file.read_bytes(), file.name


def test_the_page_is_well_formed_and_alone(text):
    page = Page(text)
    assert page.open == []
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert not {"script", "link", "img", "iframe", "object", "embed", "base"} & set(page.tags)
    assert "http://" not in text
    assert "https://" not in text
    for _, name, value in page.attributes:
        assert not name.startswith("on")
        if name in ("src", "href", "xlink:href"):
            assert value.startswith("#")
    assert page.text.count(ATTACK) > 5
    assert "prefers-color-scheme: dark" in text


def test_every_number_stands_on_the_page(text):
    summary = summarise_suite(attacked(random_suite()), **HOW)
    cells = set(Page(text).cells)
    for cell in summary.settings[0].models[0].cells.values():
        for measure in ("conf_ece", "cw_ece", "accuracy", "nll"):
            spread = cell.spreads[measure]
            deviation = f" ± {number(spread.deviation)}" if len(cell.seeds) > 1 else ""
            assert f"{number(spread.estimate.value)}{deviation}{interval(spread.estimate)}" in cells


def test_json_is_plain_and_complete():
    runs = random_suite(models=("a", "b"), settings=("x", "y"))
    summary = summarise_suite(runs, **HOW, planned=[("w", "a", "sft", 0), *(run.key for run in runs)])
    record = json.loads(suite_json(summary))
    assert [part["name"] for part in record["settings"]] == ["x", "y"]
    assert record["not_started"] == ["w"]
    assert len(record["cells"]) == sum(len(m.cells) for part in summary.settings for m in part.models)
    assert len(record["runs"]) == len(runs)
    one = record["cells"][0]
    cell = summary.settings[0].models[0].cells["base", "near"]
    assert one["spreads"]["conf_ece"]["estimate"]["value"] == cell.spreads["conf_ece"].estimate.value
    assert one["spreads"]["conf_ece"]["deviation"] is None


def test_settings_that_tell_methods_apart():
    runs = random_suite()
    table = settings_table(runs)
    assert [(key, [cell.text for cell in cells]) for key, cells in table.rows] == [("method", ["sft", "calm"])]
    assert common_settings(runs) == [("lora.r", "8")]
    assert settings_table([runs[0]]) is None


def test_an_unfinished_suite_has_a_report(tmp_path):
    run = random_suite(1)[0]
    planned = [("s", "m", "calm", 0), ("s", "n", "sft", 0), run.key]
    page = write_suite_report([run], tmp_path, **(HOW | {"title": "t"}), planned=planned)
    text = page.read_text(encoding="utf-8")
    assert "0 of 1 seeds" in text
    assert "1 of 2 runs are done" in text
