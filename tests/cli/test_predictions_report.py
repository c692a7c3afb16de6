"""`calmtune evaluate --predictions`: the command from a file to a page, and command lines that make no sense."""

import json

import numpy as np
import pytest

from calmtune.cli.main import main


@pytest.fixture
def said(tmp_path):
    rng = np.random.default_rng(0)
    confidence = rng.random(60)
    rows = [f"{c:.6f},{int(o)}" for c, o in zip(confidence, rng.random(60) < confidence / 2, strict=True)]
    path = tmp_path / "said.csv"
    path.write_text("confidence,correct\n" + "\n".join(rows) + "\n")
    return path


def test_a_table_becomes_a_report(said, capsys):
    assert main(["evaluate", "--predictions", str(said), "--n_resamples", "20", "--n_bins", "5"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Overconfident by")
    assert "NLL" not in out
    folder = said.parent / "said_calibration"
    assert {path.name for path in folder.iterdir()} == {"metrics.json", "report.html", "report.md", "report_files"}
    record = json.loads((folder / "metrics.json").read_text())
    assert (record["definitions"]["n_bins"], record["definitions"]["n_resamples"]) == (5, 20)
    assert len(record["columns"][0]["reliability"]["count"]) == 5


def test_the_output_goes_where_it_is_asked_to(said, tmp_path):
    words = ["evaluate", "--predictions", str(said), "--n_resamples", "5", "--output_dir", str(tmp_path / "here")]
    assert main(words) == 0
    assert (tmp_path / "here" / "report.html").is_file()
    assert not (tmp_path / "said_calibration").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give RUN, the output_dir of calmtune train, or --predictions FILE"),
        (["runs/x", "--predictions", "a.csv"], "not both"),
        (["runs/x", "--n_bins", "5"], "--n_bins: goes with --predictions FILE"),
        (["--predictions", "none.csv"], "none.csv is not there"),
        (["--predictions", "none.csv", "--n_bins", "0"], "--n_bins: expected a whole number >= 1"),
    ],
)
def test_command_lines_that_make_no_sense(words, message, capsys):
    assert main(["evaluate", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_faulty_row_is_named(said, capsys):
    said.write_text(said.read_text() + "1.5,1\n")
    assert main(["evaluate", "--predictions", str(said)]) == 2
    assert "said.csv:62: column `confidence` is 1.5" in capsys.readouterr().err
