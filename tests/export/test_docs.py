"""The snippets of the documentation that are marked as tested run, on a tiny run, in order."""

import re
from pathlib import Path

import pytest
import torch

import export_run
from calmtune.cli.main import main

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

DOCS = Path(__file__).parents[2] / "docs"
ADJUSTED = {"distribution": "adjusted", "scaling": "none", "temperature": 1.0}


def snippets(name):
    """Code blocks after a line <!-- tested ... -->."""
    text = (DOCS / name).read_text(encoding="utf-8")
    return re.findall(r"<!-- tested[^>]*-->\n```python\n(.*?)```", text, flags=re.DOTALL)


def run_all(name, run):
    space = {}
    for code in snippets(name):
        exec(compile(code.replace("runs/first", str(run.path)), name, "exec"), space)
    return space


def test_exporting(tmp_path):
    run = export_run.write_run(tmp_path, alpha=export_run.random_alpha(4, "scalar"), level="options", decision=ADJUSTED)
    assert main(["merge", str(run.path), "--traceback"]) == 0
    assert main(["export", "decision", str(run.path), "--traceback"]) == 0
    space = run_all("exporting.md", run)
    assert 1 / 3 <= space["p"] <= 1
    assert space["model"].num_parameters() > 0


def test_generation(tmp_path):
    size = export_run.vocabulary()
    alpha = export_run.random_alpha(size)
    run = export_run.write_run(tmp_path, alpha=alpha, decision=ADJUSTED)
    assert main(["merge", str(run.path), "--shift", "generation", "--traceback"]) == 0
    space = run_all("generation.md", run)
    with torch.no_grad():
        z = space["tuned"].model(**space["inputs"]).logits[0, -1]
    expected = z * torch.exp(-alpha.temperature_parameter) + alpha.logit_shift
    # both ways of the page give the same distribution
    torch.testing.assert_close(space["out"].scores[0][0], expected, rtol=0, atol=1e-4)
    shifts = space["shift_of"](run.path / "merged")
    assert shifts["7"] == pytest.approx(alpha.logit_shift[7].item())
    assert len(shifts) == size


def test_every_marked_block_is_found():
    for name in ("exporting.md", "generation.md"):
        assert len(snippets(name)) == (DOCS / name).read_text().count("<!-- tested") > 1
