"""Adapters are added to plain weights; bases of few bits become dense first; folders appear whole or not at all."""

import importlib.util

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

import tiny
from calmtune.export.merge import dense_base, keep, merge_adapter, partial_of, refuse_taken, save_standalone
from calmtune.modeling.records import read_json

IDS = torch.tensor([[2, 5, 9, 17]])


def adapted(model):
    torch.manual_seed(1)
    wrapped = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, target_modules="all-linear"))
    for name, value in wrapped.named_parameters():
        if "lora_B" in name:
            value.data.normal_(0, 0.1)
    return wrapped.eval()


@torch.no_grad()
def test_merged_weights_are_base_plus_scaled_product():
    base = tiny.tiny_llama()
    weight = base.model.layers[0].self_attn.q_proj.weight.clone()
    wrapped = adapted(base)
    layer = wrapped.base_model.model.model.layers[0].self_attn.q_proj
    product = layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    expected = weight + 8 / 4 * product
    before = wrapped(IDS).logits
    merged = merge_adapter(wrapped)
    torch.testing.assert_close(merged.model.layers[0].self_attn.q_proj.weight, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(merged(IDS).logits, before, rtol=0, atol=1e-5)
    assert not any("lora" in name for name, _ in merged.named_parameters())


def test_a_model_without_an_adapter_is_left_alone():
    model = tiny.tiny_llama()
    assert merge_adapter(model) is model


def test_weights_that_are_not_finite_are_refused():
    wrapped = adapted(tiny.tiny_llama())
    wrapped.base_model.model.model.layers[0].self_attn.q_proj.lora_B["default"].weight.data[0, 0] = torch.nan
    with pytest.raises(ValueError, match="NaN"):
        merge_adapter(wrapped)


def test_a_dense_base_is_what_it_was():
    model = tiny.tiny_llama()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    after = dense_base(model).state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


@pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is None, reason="needs bitsandbytes")
@torch.no_grad()
def test_a_base_of_four_bits_becomes_dense_and_loads_without_bitsandbytes(tmp_path):
    tiny.tiny_llama(hidden=64).save_pretrained(tmp_path / "full")

    def load():
        four = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
        return AutoModelForCausalLM.from_pretrained(
            tmp_path / "full", quantization_config=four, device_map={"": "cpu"}
        ).eval()

    quantised = load().train()(IDS).logits  # in train mode bitsandbytes computes with the weights as they are stored
    dense = dense_base(load()).eval()
    torch.testing.assert_close(dense(IDS).logits.float(), quantised.float(), rtol=0, atol=1e-3)
    dense.save_pretrained(tmp_path / "dense")
    assert "quantization_config" not in read_json(tmp_path / "dense" / "config.json")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "dense").eval()
    torch.testing.assert_close(again(IDS).logits, dense(IDS).logits, rtol=0, atol=1e-6)


def test_a_folder_gets_its_name_last(tmp_path):
    out = tmp_path / "out"
    partial = partial_of(out)
    partial.mkdir()
    (partial / "left over").write_text("")
    tokenizer = tiny.word_tokenizer()
    save_standalone(tiny.tiny_llama(), tokenizer, partial, {"use": {"distribution": "raw"}})
    assert not (partial / "left over").exists()
    assert read_json(partial / "calmtune_merge.json")["use"] == {"distribution": "raw"}
    out.mkdir()  # an empty folder of that name is no hindrance
    refuse_taken(out)
    keep(partial, out)
    assert (out / "model.safetensors").is_file()
    assert not partial.exists()
    with pytest.raises(ValueError, match="is not empty"):
        refuse_taken(out)
