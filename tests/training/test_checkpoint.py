"""Killed and resumed runs: bit-identical, and refused when settings or data changed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from calmtune.training.checkpoint import STATE_FILE, last_complete_checkpoint
from toy_training import WALL_CLOCK, StopAfter, questions, trainer

SETTINGS = {
    "max_steps": 9,
    "save_strategy": "steps",
    "save_steps": 2,
    "logging_steps": 3,
    "gradient_accumulation_steps": 2,
    "per_device_train_batch_size": 2,
    "lora": {"lora_dropout": 0.1},
    "inner_steps": 2,
    "weight_decay": 0.01,
}


def outcome(made):
    """Weights, alpha, optimizer state and log."""
    tensors = {f"theta{i}": p.detach() for i, p in enumerate(made._theta())}
    tensors |= {f"alpha{i}": p.detach() for i, p in enumerate(made.adjustment.parameters())}
    states = made.optimizer.optimizer.theta.state_dict()["state"]
    tensors |= {f"adam{k}.{name}": value for k, state in states.items() for name, value in state.items()}
    log = [{k: v for k, v in line.items() if k not in WALL_CLOCK} for line in made.state.log_history]
    return tensors, log


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    made = trainer(tmp_path_factory.mktemp("whole"), **SETTINGS)
    made.train()
    return outcome(made)


@pytest.mark.parametrize(
    "step", [3, 5, 6, 7, 9]
)  # saved every 2 steps, epochs of 4: inside one, right after its end, at the end
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path, uninterrupted, step):
    first = trainer(tmp_path, **SETTINGS, callbacks=[StopAfter(step)])
    with pytest.raises(KeyboardInterrupt):
        first.train()
    torch.manual_seed(12345)  # whatever happened in between must not matter
    second = trainer(tmp_path, **SETTINGS)
    second.train(resume_from_checkpoint=True)
    tensors, log = outcome(second)
    assert tensors.keys() == uninterrupted[0].keys()
    assert all(torch.equal(tensors[name], uninterrupted[0][name]) for name in tensors)
    assert log == uninterrupted[1]


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = {paths!r}
from toy_training import trainer
from test_checkpoint import SETTINGS
from calmtune.training import trainer as module

def die_while_writing(path, record):
    if "checkpoint-4" in str(path):
        os.kill(os.getpid(), signal.SIGKILL)
    original(path, record)

original, module.write_json = module.write_json, die_while_writing
trainer(Path({folder!r}), **SETTINGS).train()
"""


def test_a_run_killed_while_it_wrote_a_checkpoint_goes_on_from_the_one_before(tmp_path, uninterrupted):
    here = Path(__file__).parent
    source = Path(__import__("calmtune").__file__).parents[1]
    paths = [str(here), str(here.parent), str(source)]
    done = subprocess.run(
        [sys.executable, "-c", KILLED.format(paths=paths, folder=str(tmp_path))], capture_output=True, text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"}, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (tmp_path / "checkpoint-4").is_dir()
    assert last_complete_checkpoint(tmp_path) == str(tmp_path / "checkpoint-2")
    second = trainer(tmp_path, **SETTINGS)
    with pytest.raises(ValueError, match=r"not a whole checkpoint.*checkpoint-2"):
        second.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    second.train(resume_from_checkpoint=True)
    tensors, log = outcome(second)
    assert all(torch.equal(tensors[name], uninterrupted[0][name]) for name in tensors)
    assert log == uninterrupted[1]


def test_the_last_checkpoint_stays_until_the_next_is_whole(tmp_path):
    made = trainer(tmp_path, **{**SETTINGS, "save_total_limit": 1})
    seen = []
    original = made._save_optimizer_and_scheduler

    def spy(folder):
        seen.append(last_complete_checkpoint(tmp_path))
        original(folder)

    made._save_optimizer_and_scheduler = spy
    made.train()
    assert [Path(path).name if path else None for path in seen] == [
        None,
        "checkpoint-2",
        "checkpoint-4",
        "checkpoint-6",
        "checkpoint-8",
    ]
    assert sorted(p.name for p in tmp_path.glob("checkpoint-*")) == ["checkpoint-9"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"learning_rate": 0.02}, "arguments.learning_rate: 0.01 -> 0.02"),
        ({"eta": 3.0}, "arguments.eta: 1.0 -> 3.0"),
        ({"train": questions(16, 5)}, "data.train"),
        ({"upper": questions(12, 6)}, "data.upper"),
        ({"base_seed": 4}, "base.fingerprint"),
        ({"lora": {"lora_alpha": 99}}, "lora_alpha: 8 -> 99"),
    ],
)
def test_resuming_with_other_settings_or_data_names_the_difference(tmp_path, change, named):
    first = trainer(tmp_path, **SETTINGS, callbacks=[StopAfter(3)])
    with pytest.raises(KeyboardInterrupt):
        first.train()
    with pytest.raises(ValueError, match=named.replace(".", r"\.")):
        trainer(tmp_path, **{**SETTINGS, **change}).train(resume_from_checkpoint=True)


def test_resuming_from_nothing_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="no whole checkpoint"):
        trainer(tmp_path, **SETTINGS).train(resume_from_checkpoint=True)


def test_no_pickle_of_ours_is_written(tmp_path):
    made = trainer(tmp_path, **{**SETTINGS, "max_steps": 2})
    made.train()
    made.save_model()
    written = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert {"adapter_model.safetensors", "adjustment.safetensors", "calibration.json", STATE_FILE} <= written
    assert "training_args.bin" not in written
    assert not any(name.endswith((".pkl", ".bin")) for name in written)
    assert json.loads((tmp_path / "calibration.json").read_text())["level"] == "options"
    assert set(load_file(tmp_path / "adjustment.safetensors")) == {"temperature_parameter", "logit_shift"}
