"""The GPU check runs: at toy size here, and as it is where there is a GPU."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from torch import nn

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        spec = importlib.util.spec_from_file_location("gpu_check", FOLDER / "gpu_check.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module


def test_every_variant_is_measured_on_the_same_base(script, tmp_path, capsys):
    script.main(["--smoke", "--out", str(tmp_path / "found.json")])
    lines = json.loads((tmp_path / "found.json").read_text())
    assert [(line["variant"], line["checkpointing"]) for line in lines] == [
        (name, checkpointing) for checkpointing in (True, False) for name in script.VARIANTS
    ]
    assert all(line["seconds"] > 0 for line in lines)
    said = capsys.readouterr().out
    assert "these figures say nothing" in said
    assert said.count("x sft") == len(lines)


def test_what_there_is_no_time_for_is_said(script, tmp_path, capsys):
    script.main(["--smoke", "--minutes", "0", "--out", str(tmp_path / "found.json")])
    assert all("not begun" in line["left_out"] for line in json.loads((tmp_path / "found.json").read_text()))
    assert capsys.readouterr().out.count("0 minutes were over") == 8


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_says_what_to_do(script, capsys):
    with pytest.raises(SystemExit):
        script.main([])
    assert "expected a CUDA device, found none; --smoke" in capsys.readouterr().err


def test_a_random_model_is_in_bf16_and_the_default_type_stays(script):
    model = script.random_model(script.SMALL, torch.device("cpu"), four_bit=False)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert torch.get_default_dtype() == torch.float32
    assert sum(isinstance(m, nn.Linear) for m in model.modules()) == 2 * 7 + 1


@pytest.mark.gpu
def test_on_a_gpu_calm_stays_within_its_bounds(script, tmp_path):
    script.main(["--out", str(tmp_path / "found.json")])
    lines = {(x["variant"], x["checkpointing"]): x for x in json.loads((tmp_path / "found.json").read_text())}
    plain, calm = lines["sft", True], lines["calm", True]
    assert calm["peak_gib"] < 1.1 * plain["peak_gib"]
