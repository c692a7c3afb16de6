"""Several processes against one: the same numbers, no item twice or missing, and an end instead of a hang."""

import json
import re

import numpy as np
import pytest
import torch

import distributed_scenarios as scenarios
from calmtune.training.arguments import CalmConfig
from calmtune.training.prepare import refuse_unsupported
from calmtune.training.processes import Processes, buckets
from calmtune.training.sharding import wants_sharding
from calmtune.training.streams import EpochSampler, StepBatches
from distributed_run import launch

VARIANTS = {
    "calm": {"upper_batch_size": 1},  # the second process has no part of it
    "vocabulary": {"level": "vocabulary", "inner_steps": 2, "barrier": "residual", "max_steps": 4},
    "regularization": {"method": "regularization", "max_steps": 4},
    "iterate": {"method": "iterate", "max_steps": 4},
    "rcft": {"method": "rcft", "max_steps": 4},
    "auto": {
        "calibrated": True,
        "eta": "auto",
        "eta_update_steps": 2,
        "eta_items": 5,
        "eval_strategy": "steps",
        "eval_steps": 2,
        "max_steps": 4,
    },
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Every variant with one process and with two."""
    folder = str(tmp_path_factory.mktemp("runs"))
    (one,) = launch(scenarios.train_each, f"{folder}/one", VARIANTS, count=1)
    return one, launch(scenarios.train_each, f"{folder}/two", VARIANTS)


@pytest.mark.parametrize("name", VARIANTS)
def test_two_processes_take_the_steps_that_one_takes(runs, name):
    one, (first, second) = runs
    assert "error" not in one, one
    assert "error" not in first, first
    one, first, second = one[name], first[name], second[name]
    assert first["checksum"] == second["checksum"]  # bit by bit: one lambda, one direction
    assert first["wrapped"]
    assert first["reductions"] == 0  # DDP is there and has nothing to do
    assert sorted(first["upper"] + second["upper"]) == sorted(one["upper"])  # no item of B_V twice or missing
    for ours, theirs in zip(first["parameters"], one["parameters"], strict=True):
        # Adam moves each by up to 1e-3 a step, whatever the gradient's size
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert len(first["history"]) == len(one["history"]) > 3
    for ours, theirs in zip(first["history"], one["history"], strict=True):
        # micro-batches of an epoch's end are dealt out otherwise, so that fewer are counted
        ours, theirs = ({k: v for k, v in record.items() if k != "epoch"} for record in (ours, theirs))
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            assert ours[key] == pytest.approx(value, rel=1e-4, abs=2e-5), key
    assert second["history"] == first["history"]


SHARDED = {
    "calm": {**VARIANTS["calm"], "max_steps": 4},
    "vocabulary": {**VARIANTS["vocabulary"], "gradient_checkpointing": True, "max_steps": 2},
    "auto": {**VARIANTS["auto"], "max_steps": 2},
}


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    """Some variants with one process, and with two that share the base's weights (FSDP2)."""
    folder = str(tmp_path_factory.mktemp("sharded"))
    (one,) = launch(scenarios.train_each, f"{folder}/one", SHARDED, count=1)
    return one, launch(scenarios.sharded, "train_each", f"{folder}/two", SHARDED)


@pytest.mark.parametrize("name", SHARDED)
def test_two_processes_with_half_a_base_each_take_the_steps_that_one_takes(sharded, name):
    one, (first, second) = sharded
    assert "error" not in one, one
    assert "error" not in first, first
    one, first, second = one[name], first[name], second[name]
    assert first["held"] == second["held"] == 0.5
    assert not first["wrapped"]
    assert first["checksum"] == second["checksum"]
    for ours, theirs in zip(first["parameters"], one["parameters"], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(first["history"], one["history"], strict=True):
        for key, value in theirs.items():
            if key != "epoch":
                assert ours[key] == pytest.approx(value, rel=1e-4, abs=2e-5), key


def test_a_checkpoint_of_a_sharded_base_goes_on(tmp_path):
    for one in launch(scenarios.sharded, "stop_and_resume", str(tmp_path)):
        assert "error" not in one, one
        assert one["again"] == {key: one["whole"][key] for key in ("history", "parameters")}


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("all_weights", (), "the base is sharded and the adapter is whole.*use an adapter"),
        ("own_answers", (), "entropy_positions: sample: answers end at different lengths"),
    ],
)
def test_what_can_not_be_sharded_is_refused(tmp_path, name, arguments, message):
    for one in launch(scenarios.sharded, name, str(tmp_path), *arguments):
        assert one["error"] == "ValueError"
        assert re.search(message, one["message"])


def test_forms_of_fsdp_that_can_not_work_are_refused(tmp_path, monkeypatch):
    args = CalmConfig(str(tmp_path), use_cpu=True)
    assert not wants_sharding(args)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ValueError, match="fsdp_version: expected 2, got 1"):
        wants_sharding(args)
    monkeypatch.setenv("FSDP_VERSION", "2")
    monkeypatch.setenv("FSDP_OFFLOAD_PARAMS", "true")
    with pytest.raises(ValueError, match="fsdp_offload_params: not supported"):
        wants_sharding(args)


def test_every_example_of_an_epoch_is_in_one_micro_batch_of_one_process():
    for size in (1, 4, 7, 8, 9, 12, 13, 23):
        for count in (2, 3, 5):
            for accumulation in (1, 3):
                order = EpochSampler(size, 3)
                parts = [StepBatches(order, 2, accumulation, Processes(rank, count)) for rank in range(count)]
                batches = [list(part) for part in parts]
                assert {len(found) for found in batches} == {len(parts[0])}  # as many turns for everyone
                assert sorted(i for found in batches for batch in found for i in batch) == list(range(size))
                assert all(len(batch) <= 2 for found in batches for batch in found)
                per_step = 2 * accumulation * count
                assert -(-len(parts[0]) // accumulation) == -(-size // per_step)  # optimizer steps of the epoch
                for step in range(-(-size // per_step)):
                    turns = slice(step * accumulation, (step + 1) * accumulation)
                    mine = {i for found in batches for batch in found[turns] for i in batch}
                    assert mine == set(list(order)[step * per_step : (step + 1) * per_step])


def test_dropping_the_last_micro_batch_drops_what_one_process_would_drop():
    parts = [StepBatches(EpochSampler(11, 0), 2, 1, Processes(r, 2), drop_last=True) for r in (0, 1)]
    assert sorted(i for part in parts for batch in part for i in batch) == sorted(list(EpochSampler(11, 0))[:10])


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resumed")
    return folder, launch(scenarios.stop_and_resume, str(folder))


def test_a_checkpoint_of_two_processes_goes_on_with_two(resumed):
    folder, found = resumed
    for one in found:
        assert "error" not in one, one
        # with dropout: each process has its own draws, and they are the same again
        assert one["again"] == {key: one["whole"][key] for key in ("history", "parameters")}
    kept = folder / "whole" / "checkpoint-6"
    assert [path.name for path in (folder / "whole").glob("checkpoint-*")] == [kept.name]
    recorded = json.loads((kept / "calmtune_state.json").read_text())["files"]
    assert {"rng_state_0.pth", "rng_state_1.pth", "adapter_model.safetensors", "optimizer.pt"} <= recorded.keys()


def test_a_checkpoint_of_two_processes_is_refused_by_one(resumed):
    (found,) = launch(scenarios.resume, str(resumed[0] / "stopped"), count=1)
    assert found["error"] == "ValueError"
    assert "processes: 2 (start as many, or begin again) -> None" in found["message"]


def test_a_process_that_fails_ends_the_others(tmp_path):
    first, second = launch(scenarios.break_down, str(tmp_path), "raise")
    assert first == {"error": "ProcessError", "message": "process 0 stopped, because process 1 failed; see its message"}
    assert second == {"error": "ValueError", "message": "a broken item"}


def test_a_loss_that_is_not_finite_in_one_process_is_a_skipped_step_in_all(tmp_path):
    first, second = launch(scenarios.break_down, str(tmp_path), "skip")
    assert first == second
    assert (first["bad_steps"], first["steps"]) == (1, 10)


def test_parameters_that_differ_are_found_before_the_first_step(tmp_path):
    first, second = launch(scenarios.drift, str(tmp_path))
    assert first["error"] == second["error"] == "ProcessError"
    assert "the trained parameters of process 1 not the same as of process 0" in first["message"]


def test_answers_of_the_model_itself_leave_the_processes_together(tmp_path):
    first, second = launch(scenarios.own_answers, str(tmp_path))
    assert "error" not in first, first
    assert first["checksum"] == second["checksum"]


def test_gpus_in_one_process_and_what_hides_gradients_are_refused(tmp_path, monkeypatch):
    args = CalmConfig(str(tmp_path), use_cpu=True)
    monkeypatch.setattr(type(args), "n_gpu", property(lambda self: 2))
    with pytest.raises(ValueError, match="2 GPUs in one process found.*accelerate launch --num_processes 2"):
        refuse_unsupported(args, {})
    monkeypatch.undo()
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(ValueError, match="DEEPSPEED, which hides the gradients that lambda is made of"):
        refuse_unsupported(args, {})


def test_one_process_needs_no_message():
    alone, value = Processes(), torch.ones(3)
    with alone.summed(value):
        value += 1
    assert value.tolist() == [2.0, 2.0, 2.0]
    assert alone.gather({"a": 1}) == [{"a": 1}]
    alone.wait()


def test_tensors_keep_their_order_in_buckets():
    tensors = [torch.zeros(n) for n in (3, 3, 10, 1, 1)]
    found = [tensor for bucket in buckets(tensors, 6) for tensor in bucket]
    assert [t is other for t, other in zip(tensors, found, strict=True)] == [True] * 5
