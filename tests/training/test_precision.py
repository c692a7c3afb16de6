"""The step under gradient checkpointing and under bf16 autocast, against the step in float32."""

import pytest
import torch

from calmtune.modeling.frozen_trunk import FrozenTrunk
from step_reference import directions
from tiny import tiny_llama, word_tokenizer
from toy_training import shake, trainer

TOP = {"target_modules": ["q_proj", "down_proj"], "layers_to_transform": [2]}
LEVELS = ["options", "vocabulary"]


def step(folder, *, checkpointing=False, **arguments):
    """Gradients of one step, alpha first; its scalars; and how often a layer ran again in a backward pass."""
    made = shake(trainer(folder, model=tiny_llama(len(word_tokenizer()), seed=0, layers=3), **arguments))
    runs = []
    if checkpointing:  # what transformers does when its loop starts
        made.model.gradient_checkpointing_enable({"use_reentrant": False})
        # not the last part of a layer: recomputation stops inside it, before its hooks
        layer = next(m for name, m in made.model.named_modules() if name.endswith("layers.2.self_attn"))
        layer.register_forward_hook(lambda *call: runs.append(torch._C._current_graph_task_id() >= 0))
    gradients, _ = directions(made)
    return gradients, made._window.take(), sum(runs)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("method", ["calm", "regularization", "iterate", "sft"])
def test_checkpointing_changes_no_gradient(tmp_path, level, method):
    plain, logs, _ = step(tmp_path, level=level, method=method)
    again, same, recomputed = step(tmp_path, level=level, method=method, checkpointing=True)
    assert recomputed > 0, "nothing was checkpointed"
    for ours, theirs in zip(again, plain, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-7)
    assert same == pytest.approx(logs, rel=1e-5, abs=1e-7)


def test_checkpointing_goes_with_frozen_layers_that_run_once(tmp_path, monkeypatch):
    reused, _, _ = step(tmp_path, lora=TOP, checkpointing=True)
    monkeypatch.setattr(FrozenTrunk, "of", classmethod(lambda cls, model: cls()))
    plain, _, _ = step(tmp_path, lora=TOP)
    for ours, theirs in zip(reused, plain, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_bf16_autocast_stays_within_its_resolution(tmp_path, level, checkpointing):
    exact, logs, _ = step(tmp_path, level=level)
    coarse, found, _ = step(tmp_path, level=level, bf16=True, checkpointing=checkpointing)
    for ours, theirs in zip(coarse, exact, strict=True):
        assert ours.dtype == theirs.dtype == torch.float32  # theta and alpha stay in float32, and so does lambda
        assert (ours - theirs).norm() <= 0.1 * theirs.norm()
    assert found["lower_loss"] == pytest.approx(logs["lower_loss"], rel=5e-3)
    assert found["upper_loss"] == pytest.approx(logs["upper_loss"], rel=3e-2)
    assert found["multiplier"] == pytest.approx(logs["multiplier"], abs=0.05)
    assert any(not torch.equal(ours, theirs) for ours, theirs in zip(coarse, exact, strict=True)), "autocast was off"
