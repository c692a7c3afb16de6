"""The report on predictions made elsewhere: figures against the metrics, what does not apply left out, pages whole."""

import json
import re

import numpy as np
import pytest

from calmtune import metrics
from calmtune.external import Outcomes
from calmtune.external.record import of_distributions
from calmtune.report.outcomes import summarise_outcomes
from calmtune.report.outcomes_pages import outcomes_glossary, outcomes_table, outcomes_verdict, write_outcomes
from report.test_html import Page


def confidences(domain="a", n=300, *, shift=0.2, seed=0, notes=()):
    rng = np.random.default_rng(seed)
    c = rng.uniform(0.3, 1.0, n)
    return Outcomes(domain, tuple(map(str, range(n))), c, rng.random(n) < c - shift, notes=notes)


def distributions(domain="b", n=120, seed=1):
    rng = np.random.default_rng(seed)
    rows = [rng.dirichlet(np.ones(int(rng.integers(2, 5)))).tolist() for _ in range(n)]
    return of_distributions(domain, [str(i) for i in range(n)], rows, [int(rng.integers(len(row))) for row in rows])


def test_figures_are_the_metrics_and_only_those_that_apply():
    a, b = confidences(), distributions()
    summary = summarise_outcomes([a, b], "t", n_resamples=20)
    first, second, both = summary.columns
    assert [one.name for one in summary.columns] == ["a", "b", "all domains"]
    assert first.estimates["conf_ece"].value == metrics.expected_calibration_error(a.confidence, a.correct)
    assert second.estimates["nll"].value == pytest.approx(metrics.negative_log_likelihood(b.probabilities, b.labels))
    assert second.estimates["cw_ece"].value == pytest.approx(
        metrics.classwise_ece(b.probabilities, b.labels, 10, b.n_options)
    )
    c, o = np.concatenate([a.confidence, b.confidence]), np.concatenate([a.correct, b.correct])
    assert both.estimates["conf_ece"].value == pytest.approx(metrics.expected_calibration_error(c, o))
    assert both.n == 420
    whole = {"nll", "brier", "cw_ece", "brier_reliability", "brier_resolution", "brier_uncertainty"}
    assert whole <= set(second.estimates)
    assert not whole & set(first.estimates)
    assert not whole & set(both.estimates)


def test_the_table_shows_what_is_not_known_and_the_glossary_no_word_too_many():
    only = summarise_outcomes([confidences()], "t", n_resamples=20)
    assert outcomes_table(only).header == ("domain", "n", "conf-ECE ↓", "conf-ECE if calibrated", "accuracy ↑")
    assert "NLL and Brier" not in dict(outcomes_glossary(only))
    mixed = summarise_outcomes([confidences(), distributions()], "t", n_resamples=20)
    row = dict(outcomes_table(mixed).rows)["a"]
    assert [cell.text for cell in row].count("not known") == 2
    assert "NLL and Brier" in dict(outcomes_glossary(mixed))


def test_the_verdict_goes_both_ways():
    def verdict(shift):
        return outcomes_verdict(summarise_outcomes([confidences(shift=shift, n=600)], "t", n_resamples=100))

    assert verdict(0.2).startswith("Overconfident by 0.2")
    assert verdict(-0.2).startswith("Underconfident by 0.1")
    assert verdict(0.0).startswith("No evidence of miscalibration on a, n = 600")


def test_files_are_whole_escaped_and_the_same_every_time(tmp_path):
    sets = [confidences("<script>a|b", notes=("left <out>",)), distributions()]
    texts = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        page = write_outcomes(summarise_outcomes(sets, "Said & <done>", n_resamples=20), folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        texts.append([path.read_bytes() for path in files])
    assert texts[0] == texts[1]
    names = [str(path.relative_to(tmp_path / "two")) for path in files]
    assert names == [
        "metrics.json",
        "report.html",
        "report.md",
        *(f"report_files/reliability-{n}.png" for n in (1, 2, 3)),
    ]
    html = page.read_text()
    read = Page(html)
    assert not read.open
    assert "script" not in read.tags
    assert len(re.findall(r"<svg ", html)) == 3
    assert not re.search(r"https?://(?!www\.w3\.org)", html)
    assert "left <out>" in read.text
    markdown = (tmp_path / "two" / "report.md").read_text()
    assert "&lt;script&gt;a\\|b" in markdown
    for picture in re.findall(r"\((report_files/[^)]+)\)", markdown):
        assert (tmp_path / "two" / picture).is_file()
    record = json.loads((tmp_path / "two" / "metrics.json").read_text())
    assert record["columns"][0]["estimates"]["conf_ece"]["n"] == 300
    assert record["notes"] == ["left <out>"]


def test_what_cannot_be_reported_is_refused():
    with pytest.raises(ValueError, match="domains must differ"):
        summarise_outcomes([confidences(), confidences()], "t")
    with pytest.raises(ValueError, match="nobody says which answers are right"):
        summarise_outcomes([Outcomes("a", ("1",), np.array([0.5]), None)], "t")
    with pytest.raises(ValueError, match="at least one domain"):
        summarise_outcomes([], "t")
