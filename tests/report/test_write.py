"""The folder of a report."""

import json
import sys

import pytest

from calmtune.report import summarise, write_report
from report.cases import comparison


def _bytes(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_two_runs_write_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        assert (
            write_report(comparison({"near": "ID"}, n=12), tmp_path / name, n_resamples=5)
            == tmp_path / name / "report.html"
        )
    one, two = _bytes(tmp_path / "one"), _bytes(tmp_path / "two")
    assert {"report.html", "report.md", "metrics.json", "metrics.csv", "table.tex"} <= set(one)
    assert one == two


def test_a_computed_summary_is_not_computed_again(tmp_path):
    summary = summarise(comparison(n=8), n_bins=4, n_resamples=5)
    write_report(summary, tmp_path)
    assert json.loads((tmp_path / "metrics.json").read_text(encoding="utf-8"))["definitions"]["n_bins"] == 4


def test_a_missing_matplotlib_is_told_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ValueError, match="need matplotlib"):
        write_report(comparison(n=8), tmp_path / "out")
    assert not (tmp_path / "out").exists()
