"""The counts in the cost model against models, adapters and messages that are there."""

import importlib.util
import json
from pathlib import Path

import pytest
from peft import LoraConfig, get_peft_model

import distributed_scenarios as scenarios
import tiny
from distributed_run import launch

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "cost_model.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("cost_model", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:  # dataclasses look their module up
        patch.setitem(__import__("sys").modules, "cost_model", module)
        spec.loader.exec_module(module)
        yield module


@pytest.fixture
def shape(script):
    return script.Shape(hidden=32, intermediate=64, layers=2, kv=16, vocabulary=64)


def test_parameters_are_counted_as_they_are(shape):
    model = tiny.tiny_llama(64)
    matrices = {name: p.numel() for name, p in model.named_parameters() if p.dim() == 2}
    assert sum(n for name, n in matrices.items() if ".layers." in name) == shape.layers * shape.linear
    assert sum(n for name, n in matrices.items() if ".layers." not in name) == shape.ends
    adapted = get_peft_model(model, LoraConfig(r=3, target_modules="all-linear", task_type="CAUSAL_LM"))
    assert sum(p.numel() for p in adapted.parameters() if p.requires_grad) == shape.adapter(3)


def test_an_8b_model_has_eight_billion_weights(script):
    shape = script.MODELS["Llama-3.1-Tulu-8B"]
    assert shape.layers * shape.linear + shape.ends == pytest.approx(8.03e9, rel=1e-3)


def test_a_step_sends_what_the_model_says(script, tmp_path):
    found, _ = launch(scenarios.traffic, str(tmp_path))
    assert "error" not in found, found
    run = script.Run(script.Shape(32, 64, 2, 16, found["alpha"] // 2), "calm", rank=4, gpus=2)
    assert run.shape.adapter(4) == found["theta"]
    # beside the gradients a few numbers: a wait, a sum of losses
    assert 0 <= found["sent"] - found["steps"] * run.reduced() < 100


@pytest.mark.parametrize(
    ("method", "checkpointing", "units"),
    [("sft", False, 2), ("sft", True, 3), ("regularization", False, 4), ("regularization", True, 6), ("calm", False, 5),
     ("calm", True, 7)],
)  # fmt: skip
def test_passes_of_a_step_where_a_backward_pass_costs_a_forward_pass(script, shape, method, checkpointing, units):
    assert script.Run(shape, method, checkpointing=checkpointing).passes(1.0)[0] == units


def test_more_gpus_than_examples_save_no_time(script, shape):
    known = script.Coefficients(1e9, 1.0, (40.0, 14.0, 8.0))
    times = [script.Run(shape, batch=4, gpus=gpus).compute(known) for gpus in (1, 2, 4, 8)]
    assert times[0] == pytest.approx(2 * times[1]) == pytest.approx(4 * times[2])
    assert times[3] == times[2]


def test_a_sharded_base_takes_its_share_of_the_layers(script):
    known = script.Coefficients(1e12, 1.0, (40.0, 14.0, 8.0))
    shape = script.MODELS["Vicuna-7B"]
    whole, shared = (script.Run(shape, base="bf16", sharded=s, gpus=8).memory(known)["base"] for s in (False, True))
    layers = 2 * shape.layers * shape.linear
    assert whole - shared == pytest.approx(layers * (1 - 1 / 8 - 2 / shape.layers))


def test_a_table_is_printed_from_saved_coefficients(script, tmp_path, capsys, monkeypatch):
    path = tmp_path / "coefficients.json"
    path.write_text(json.dumps({"flops": 1e14, "backward": 1.0, "kept": [42.0, 14.0, 8.0], "device": "a test"}))
    monkeypatch.setattr("sys.argv", ["cost_model.py", "--coefficients", str(path), "--model", "Mistral-7B"])
    script.main()
    said = capsys.readouterr().out
    assert "rate: a test" in said
    assert [line.split()[0] for line in said.splitlines() if line[:4].strip().isdigit()] == list(map(str, script.GPUS))
