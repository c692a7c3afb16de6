"""The report on open questions: every figure is that of the metrics, and the pages say what the figures say."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from calmtune import metrics
from calmtune.report.openqa_choice import decide_open
from calmtune.report.openqa_html import render_open_html
from calmtune.report.openqa_markdown import render_open_markdown
from calmtune.report.openqa_measures import OPEN_MEASURES, risk_coverage
from calmtune.report.openqa_readings import _spellings, join, read_open
from calmtune.report.openqa_summary import clusters_of, summarise_open
from calmtune.report.openqa_write import open_json, open_text, write_open_report
from report.open_cases import comparison, graded, variant

OPTIONS = {"n_bins": 10, "seed": 0, "n_resamples": 40}


@pytest.fixture(scope="module")
def summary():
    return summarise_open(comparison(), **OPTIONS)


def samples(cases):
    return {
        "class_ids": cases.classes(), "correct": [item.correct for item in cases],
        "refused": [item.refused for item in cases], "ids": cases.ids,
    }  # fmt: skip


def test_figures_are_those_of_the_metrics(summary):
    cases = comparison().variants[0].tests["trivia"]
    given = samples(cases)
    expected = metrics.semantic_summary(**given, n_bins=10, within_class="majority", n_resamples=10)
    apart = metrics.semantic_abstention(**given, n_bins=10, within_class="majority", n_resamples=10)
    found = summary.cells["base", "trivia"].estimates
    for key, value in {
        "sem1_ece": expected.sem1_ece, "sem2_ece": expected.sem2_ece, "accuracy": expected.accuracy,
        "entropy": expected.entropy, "sem1_confidence": expected.sem1_confidence,
        "sem2_confidence": expected.sem2_confidence, "coverage": apart.coverage, "refusals": apart.refusal_share,
        "accuracy_answered": apart.accuracy_answered, "ece_answered": apart.ece_answered,
    }.items():  # fmt: skip
        assert found[key].value == pytest.approx(value.estimate, abs=1e-12), key
    likelihood = metrics.semantic_entropy(
        given["class_ids"], [item.log_probabilities for item in cases], texts=[item.texts for item in cases]
    )
    assert found["likelihood_entropy"].value == pytest.approx(likelihood.mean())
    assert summary.cells["base", "trivia"].n_ties == expected.n_ties


def test_a_pooled_column_is_all_questions_together():
    both = summarise_open(comparison(shifts={"trivia": "OOD", "pop": "OOD"}), **OPTIONS)
    parts = [read_open(one) for one in comparison().variants[0].tests.values()]
    whole = join(parts)
    cell = both.cells["base", "OOD (all)"].estimates
    assert cell["accuracy"].n == len(whole) == 110
    expected = metrics.expected_calibration_error(whole.sem1, whole.correct, 10)
    assert cell["sem1_ece"].value == pytest.approx(expected)


def test_differences_are_paired_with_the_base(summary):
    cells = {row: summary.cells[row, "pop"] for row in ("base", "tuned adjusted")}
    for key in ("sem1_ece", "accuracy", "entropy"):
        change = cells["tuned adjusted"].versus_first[key]
        values = [cells[row].estimates[key].value for row in ("tuned adjusted", "base")]
        assert change.value == pytest.approx(values[0] - values[1])
        assert change.low <= change.value <= change.high
    assert not cells["base"].versus_first


def test_a_tempered_row_changes_sem1_alone(summary):
    plain, tempered = summary.cells["base", "pop"].estimates, summary.cells["base + T", "pop"].estimates
    assert tempered["accuracy"].value == plain["accuracy"].value
    assert tempered["sem1_ece"].value != plain["sem1_ece"].value
    assert np.isnan(tempered["sem2_ece"].value)
    assert not summary.cells["base + T", "pop"].curve


def test_without_calibration_questions_there_is_no_temperature():
    bare = [variant(name, 2.0, calibration=0) for name in ("base", "tuned")]
    found = summarise_open(comparison(variants=bare, decision=None), **OPTIONS)
    assert [row.label for row in found.rows] == ["base", "tuned"]
    assert not found.class_temperatures


def test_the_curve_ends_at_all_samples(summary):
    cell = summary.cells["tuned", "trivia"]
    for key in ("sem1", "sem2"):
        assert [point.n_samples for point in cell.curve[key]] == [2, 3, 5, 6]
    last = cell.curve["sem1"][-1]
    assert last.confidence.estimate == pytest.approx(cell.estimates["sem1_confidence"].value)


def test_every_class_rule_has_its_line(summary):
    first, other = summary.rules["base", "trivia"]
    assert (first.rule, other.rule) == ("exact/calmtune-1", "exact/squad-1.1")
    assert not first.versus
    change = other.versus["entropy"]
    assert change.value == pytest.approx(other.estimates["entropy"].value - first.estimates["entropy"].value)
    assert change.value < 0  # the second rule joins classes


def test_risk_and_coverage_by_hand():
    reading = read_open(graded("x", 40, seed=9))
    coverage, risk = risk_coverage(reading)
    assert coverage[-1] == 1.0
    assert risk[-1] == pytest.approx(1 - reading.correct.mean())
    top = reading.sem1 >= reading.sem1.max() - 1e-9
    assert coverage[0] == pytest.approx(top.mean())
    assert risk[0] == pytest.approx(1 - reading.correct[top].mean())
    assert len(coverage) == len(set(np.round(reading.sem1, 9)))


def test_confident_errors_with_their_classes(summary):
    before = [item for item in summary.worst if item.worst_for == "before"]
    assert 0 < len(before) <= 6
    shares = [item.before[0].count for item in before]
    assert shares == sorted(shares, reverse=True)
    for item in before:
        assert item.before[0].kind in ("wrong", "refused")
        assert sum(one.count for one in item.before) == 6
    assert any(item.worst_for == "after" for item in summary.worst)


def test_classes_of_a_question():
    item = graded("x", 30, seed=1)[3]
    found = clusters_of(item, "exact/calmtune-1")
    assert sum(one.count for one in found) == len(item.texts)
    assert sum(one.count for one in found if one.kind == "refused") == sum(item.refused)
    assert sum(one.count for one in found if one.kind == "right") == sum(item.correct)


def test_texts_spelled_by_several_token_sequences():
    names, values = _spellings(["a", "b", "a", "a"], [-1.0, -2.0, -1.02, -4.0])
    assert names == ["a 0", "b 0", "a 0", "a 1"]
    assert values == [pytest.approx(-1.01), -2.0, pytest.approx(-1.01), -4.0]


# ---- the choice ------------------------------------------------------------------------------------------------------


def test_the_better_brier_score_is_chosen_unless_accuracy_is_paid_for_it():
    sharp, soft = graded("cal", 80, sharp=4.0, seed=3), graded("cal", 80, sharp=0.8, seed=3)
    briers = {}
    for name, one in (("raw", sharp), ("adjusted", soft)):
        reading = read_open(one)
        briers[name] = float(((reading.sem1 - reading.correct) ** 2).mean())
    assert briers["adjusted"] < briers["raw"]
    free = decide_open({"raw": sharp, "adjusted": soft}, None, accuracy_drop=0.02)
    assert free["distribution"] == "adjusted"
    assert free["scores"] == briers
    held = decide_open({"raw": sharp, "adjusted": soft}, sharp, accuracy_drop=0.0)
    accuracies = [float(read_open(one).correct.mean()) for one in (sharp, soft)]
    assert accuracies[1] < accuracies[0]
    assert held["distribution"] == "raw"


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"grade": "judge"}, "graded otherwise"),
        ({"samples": {"sampling": {"n": 7}}}, "sampled otherwise"),
    ],
)
def test_models_that_were_asked_otherwise_have_no_table(meta, message):
    base, other = variant("base", 2.0), variant("tuned", 2.0)
    changed = graded("pop", 50, seed=2)
    tests = {**other.tests, "pop": replace(changed, meta={**changed.meta, **meta})}
    with pytest.raises(ValueError, match=message):
        summarise_open(comparison(variants=[base, type(other)("tuned", tests)], decision=None), **OPTIONS)


def test_other_questions_have_no_table():
    base, other = variant("base", 2.0), variant("tuned", 2.0)
    tests = {**other.tests, "pop": graded("pop", 49, seed=2)}
    with pytest.raises(ValueError, match=r"tuned, pop: was asked other questions: 1 are not shared"):
        summarise_open(comparison(variants=[base, type(other)("tuned", tests)], decision=None), **OPTIONS)


def test_a_comparison_needs_answers():
    with pytest.raises(ValueError, match=r"no answers for the test domains \['sea'\]"):
        comparison(shifts={"sea": "ID"})
    with pytest.raises(ValueError, match="different names"):
        comparison(variants=[variant("a", 1.0), variant("a", 1.0)])


# ---- pages -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    """One domain and two models: pictures take longest."""
    variants = [variant("base", 3.0, grid=True), variant("tuned adjusted", 1.0)]
    return summarise_open(comparison(variants=variants, shifts={"pop": "OOD"}), **OPTIONS)


@pytest.fixture(scope="module")
def written(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    write_open_report(small, folder)
    return folder


def test_the_page_needs_nothing_else_and_escapes_answers(written):
    page = (written / "report.html").read_text()
    assert "<script" not in page
    assert not re.search(r"(src|href)=\"http", page)
    assert "Oslo &lt;b&gt;" in page
    assert "Oslo <b>" not in page
    for word in ("Sem1-ECE", "Sem2-ECE", "Most confident errors", "Risk and coverage", "T that closes the gap"):
        assert word in page


def test_the_words_follow_the_numbers(summary):
    text = open_text(summary)
    change = summary.cells["tuned adjusted", "pop"].versus_first["sem1_ece"]
    word = "not shown to change" if not change.shown else "lower" if change.value < 0 else "higher"
    assert f"out of domain, Sem1-ECE is {word}" in text
    assert "used with its adjusted distribution" in text


def test_all_files_are_written_and_the_same_again(small, written):
    assert (written / "report.html").read_text() == render_open_html(small)
    assert (written / "metrics.json").read_text() == open_json(small)
    assert (written / "report.txt").read_text() == open_text(small)
    assert "toprule" in (written / "table.tex").read_text()
    text = (written / "report.md").read_text()
    assert text == render_open_markdown(small)
    pictures = set(re.findall(r"\((report_files/[^)]+)\)", text))
    assert len(pictures) == 4
    assert all((written / one).is_file() for one in pictures)


def test_json_has_every_measure_of_every_cell(summary):
    record = json.loads(open_json(summary))
    assert record["task"] == "openqa"
    assert len(record["cells"]) == len(summary.rows) * len(summary.columns)
    for cell in record["cells"]:
        assert set(cell["estimates"]) == set(OPEN_MEASURES)
    assert set(record["cells"][0]["curve"]["sem1"][0]["ece"]) == {"estimate", "low", "high"}
    assert record["sampler_temperatures"]["base"]["points"][0]["temperature"] == 0.5
