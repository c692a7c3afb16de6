"""Layers without anything to train run once a step, and not a bit of the step changes by it."""

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM, Olmo2Config, Olmo2ForCausalLM

from calmtune.modeling.frozen_trunk import FrozenTrunk
from step_reference import directions
from tiny import tiny_llama, word_tokenizer
from toy_training import shake, trainer

SIZES = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256,
}  # fmt: skip
TOP = {"target_modules": ["q_proj", "down_proj"], "layers_to_transform": [2]}


def deep_model(kind="llama", **changes):
    size = len(word_tokenizer())
    if kind == "llama":
        return tiny_llama(size, seed=0, layers=3, **changes)
    torch.manual_seed(0)
    config, model = {"mistral": (MistralConfig, MistralForCausalLM), "olmo2": (Olmo2Config, Olmo2ForCausalLM)}[kind]
    return model(
        config(vocab_size=size, sliding_window=None, **SIZES) if kind == "mistral" else config(vocab_size=size, **SIZES)
    )


def calls_of(made, layer):
    seen = []
    found = next(m for name, m in made.model.named_modules() if name.endswith(f"layers.{layer}.mlp"))
    found.register_forward_hook(lambda *call: seen.append(1))
    return seen


@pytest.mark.parametrize("kind", ["llama", "mistral", "olmo2"])
@pytest.mark.parametrize("settings", [{}, {"inner_steps": 3}, {"gradient_checkpointing": True}], ids=str)
def test_the_step_is_the_same_bit_for_bit_and_frozen_layers_run_once_a_batch(tmp_path, kind, settings):
    common = {"lora": TOP, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, **settings}
    ours = shake(trainer(tmp_path, model=deep_model(kind), **common))
    plain = shake(trainer(tmp_path, model=deep_model(kind), **common))
    assert len(ours.method_step.trunk.layers) == 2
    plain.method_step.trunk = FrozenTrunk()
    # the check of the reading, which runs the model once more, belongs to the first step alone
    ours.state.global_step = plain.state.global_step = 1
    counts = [calls_of(made, 1) for made in (ours, plain)]
    for mine, other in zip(directions(ours)[0], directions(plain)[0], strict=True):
        assert torch.equal(mine, other)
    batches = 2  # of B_T, and as many of B_V
    again = settings.get("inner_steps", 1)
    assert len(counts[0]) == 2 * batches
    assert len(counts[1]) >= (2 + again) * batches


@pytest.mark.parametrize(
    ("lora", "changes"),
    [
        ({}, {}),  # adapters everywhere
        ({**TOP, "modules_to_save": ["embed_tokens"]}, {}),  # what lies below is trained
        (TOP, {"attention_dropout": 0.1}),  # skipped layers would shift the random numbers
    ],
)
def test_nothing_is_reused_where_it_would_not_be_exact(tmp_path, lora, changes):
    made = trainer(tmp_path, model=deep_model(**changes), lora=lora)
    assert made.method_step.trunk.layers == ()


def test_methods_that_read_a_batch_once_keep_nothing(tmp_path):
    made = trainer(tmp_path, model=deep_model(), lora=TOP, method="regularization")
    assert made.method_step.trunk.layers == ()


def test_layers_are_themselves_again_after_a_failure(tmp_path):
    made = trainer(tmp_path, model=deep_model(), lora=TOP)
    trunk, batch = made.method_step.trunk, made._batch(made.train_dataset[:2])
    before = [layer.forward for layer in trunk.layers]
    for _ in range(2):  # recording, then replaying
        with pytest.raises(RuntimeError, match="broken"), trunk.reading(batch):
            made.level.lower(made.model, batch, None, theta=False)
            raise RuntimeError("broken")
    assert [layer.forward for layer in trunk.layers] == before
    assert not trunk.layers[-1]._forward_hooks
