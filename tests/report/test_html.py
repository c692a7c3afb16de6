"""The page: complete, escaped, alone."""

import re
from html.parser import HTMLParser

import pytest

from calmtune.report import summarise
from calmtune.report.html import flatten, render_html, transposed, write_html
from calmtune.report.numbers import interval, number, p_text, with_interval
from calmtune.report.tables import Table, TableCell
from report.cases import comparison, one_variant

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """Tags, attributes, ids and the text of the table cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.open: list[str] = []
        self.cells: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data):
        self.text += data
        if "td" in self.open or "th" in self.open:
            self.cells[-1] += data


ATTACK = "<script>alert(1)</script> \"quoted\" & 'so' {{ 7 * 7 }} </style>"


@pytest.fixture(scope="module")
def summary():
    made = comparison(
        texts={
            f"{domain}-{index}": (f"{ATTACK} {index}", [ATTACK, "b", "c", "d"])
            for domain in ("near", "far")
            for index in range(40)
        },
        settings={"method": ATTACK, "data": {"train": ["a.jsonl"], "limit": None}},
        title=ATTACK,
    )
    return summarise(made, n_resamples=20)


@pytest.fixture(scope="module")
def text(summary):
    return render_html(summary)


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def test_well_formed_with_unique_ids(page):
    assert page.open == []
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))


def test_nothing_comes_from_outside(page, text):
    assert not {"script", "link", "img", "iframe", "object", "embed", "base"} & set(page.tags)
    for _, name, value in page.attributes:
        if name in ("src", "href", "xlink:href", "srcset", "data", "action"):
            assert value.startswith("#"), value
        assert not name.startswith("on")
    assert "@import" not in text
    assert "url(" not in text.replace("url(#", "")
    assert "http://" not in text
    assert "https://" not in text


def test_questions_titles_and_settings_are_text(page, text):
    assert "<script" not in text
    assert page.text.count(ATTACK) >= 12
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_every_estimate_stands_in_a_cell(page, summary):
    cells = set(page.cells)
    for cell in summary.cells.values():
        for found in cell.estimates.values():
            assert f"{number(found.value)}{interval(found)}" in cells
        for delta in cell.versus_first.values():
            assert any(
                text.startswith(f"{number(delta.value, sign=True)}{interval(delta, sign=True)}") for text in cells
            )


def test_key_figures_are_those_of_the_summary(page, summary):
    for column in summary.columns:
        after = summary.cells[summary.choice.row, column.name]
        for key in ("conf_ece", "accuracy"):
            change = after.versus_first[key]
            before = summary.cells[summary.first, column.name].estimates[key]
            assert f"{number(before.value)} → {number(after.estimates[key].value)}" in page.text
            assert f"Δ {with_interval(change, sign=True)}, {p_text(change.p_value)}" in page.text


def test_no_piece_of_a_template_is_left(text):
    body = text[text.index("<body>") :].replace("{{ 7 * 7 }}", "")
    assert "{" not in re.sub(r"<style.*?</style>", "", body, flags=re.DOTALL)


def test_sections_and_settings(page):
    for heading in ("Results", "Reliability", "Training", "Most confident errors", "Settings", "How to read this page"):
        assert heading in page.text
    assert "data.train" in page.text
    assert '["a.jsonl"]' in page.text


def test_works_in_light_dark_narrow_and_print(text):
    for needed in ("prefers-color-scheme: dark", "@media print", 'name="viewport"', "overflow-x: auto"):
        assert needed in text


def test_same_bytes_again(summary, text, tmp_path):
    assert render_html(summary) == text
    assert write_html(summary, tmp_path / "a" / "report.html").read_text(encoding="utf-8") == text


def test_no_log_no_texts_no_settings_and_one_domain():
    made = comparison({"near": "ID"}, training_log=(), settings={})
    page = Page(render_html(summarise(made, n_resamples=5)))
    assert "No training log was given" in page.text
    assert "No settings were recorded" in page.text
    assert "The text of this item was not given." in page.text
    assert "Out of domain (" not in page.text


def test_a_model_without_an_error_has_none_to_show():
    made = comparison({"d": "ID"}, variants=[one_variant([[1, 0], [0, 2]], [0, 1])])
    assert "No wrong answer." in Page(render_html(summarise(made, n_resamples=5))).text


def test_transposing_keeps_every_cell():
    table = Table(
        "c",
        (),
        ("method", "x", "y"),
        (("a", (TableCell("1"), TableCell("2"))), ("b", (TableCell("3"), TableCell("4")))),
    )
    turned = transposed(table)
    assert turned.header == ("measure", "a", "b")
    assert [(label, [cell.text for cell in cells]) for label, cells in turned.rows] == [
        ("x", ["1", "3"]),
        ("y", ["2", "4"]),
    ]


def test_flatten_keeps_text_as_text():
    assert list(flatten({"a": {"b": {"c": 1.5}}, "d": "x", "e": []})) == [("a.b.c", "1.5"), ("d", "x"), ("e", "[]")]
