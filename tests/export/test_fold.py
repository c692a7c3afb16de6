"""A folded head gives z~ / T by itself, for every architecture that can hold it; what cannot be folded is refused."""

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, Gemma2ForCausalLM

import export_run
import tiny
from calmtune.bilevel.adjustment import LogitAdjustment
from calmtune.export.fold import (
    fold_into,
    head_adjustment,
    letter_tokens,
    needs_shift,
    refuse_architecture,
    refuse_unfoldable,
    untie_head,
)
from calmtune.export.use import Use
from calmtune.report.scaling import Vector

V = 64
IDS = torch.tensor([[2, 5, 9, 17, 33]])


MODELS = {
    "llama": lambda: tiny.tiny_llama(V),
    "llama tied": lambda: tiny.tiny_llama(V, tie_word_embeddings=True),
    "gpt2 tied": lambda: tiny.tiny_gpt2(V),
    "phi": lambda: export_run.tiny_phi(V),
}


@torch.no_grad()
def logits(model):
    return model(IDS).logits.double()


@pytest.mark.parametrize("name", MODELS)
def test_saved_and_loaded_logits_are_the_adjusted_ones(name, tmp_path):
    model, alpha = MODELS[name](), export_run.random_alpha(V, shift=name == "phi")
    temperature = 1.7
    # z~ / T by the definition, from the parameters
    expected = (
        logits(model) * torch.exp(-alpha.temperature_parameter.double()) + alpha.logit_shift.double()
    ) / temperature
    embeddings = model.get_input_embeddings().weight.detach().clone()
    fold_into(model, head_adjustment(Use(True, "TS", temperature), alpha, "vocabulary", vocabulary=V))
    model.save_pretrained(tmp_path)
    loaded, info = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    torch.testing.assert_close(logits(loaded.eval()), expected, rtol=0, atol=2e-5)
    # what is put in is what it was: a tied head was given weights of its own
    assert torch.equal(loaded.get_input_embeddings().weight, embeddings)
    assert not loaded.config.tie_word_embeddings


def test_a_head_that_needs_nothing_stays_tied():
    model = tiny.tiny_gpt2(V)
    fold_into(model, head_adjustment(Use(False, "none"), None, "vocabulary", vocabulary=V))
    assert model.lm_head.weight is model.transformer.wte.weight


def test_transformers_does_not_tie_the_head_again():
    model = tiny.tiny_gpt2(V)
    assert untie_head(model)
    assert not untie_head(model)
    model.tie_weights()
    assert model.lm_head.weight is not model.transformer.wte.weight


def test_a_scalar_alpha_is_one_temperature_and_its_shift_is_left_out():
    alpha = LogitAdjustment(V, "scalar")
    alpha.start_at_(2.0)
    alpha.logit_shift.data.fill_(0.7)
    folded = head_adjustment(Use(True, "TS", 1.5), alpha, "options", vocabulary=V)
    assert not needs_shift(folded)
    model = tiny.tiny_llama(V)
    expected = logits(model) / 3.0
    fold_into(model, folded)
    torch.testing.assert_close(logits(model), expected, rtol=0, atol=1e-5)


def test_an_alpha_of_option_places_changes_the_letters_alone():
    alpha = export_run.random_alpha(3)
    model = export_run.tiny_phi(V)
    before = logits(model)
    fold_into(model, head_adjustment(Use(True, "none"), alpha, "options", vocabulary=V, letters=(10, 11)))
    after = logits(model)
    others = torch.ones(V, dtype=torch.bool)
    others[[10, 11]] = False
    assert torch.equal(after[..., others], before[..., others])
    expected = before[..., [10, 11]] * torch.exp(-alpha.temperature_parameter[:2]) + alpha.logit_shift[:2]
    torch.testing.assert_close(after[..., [10, 11]], expected, rtol=0, atol=1e-5)


def test_raw_leaves_alpha_out():
    folded = head_adjustment(Use(False, "none"), export_run.random_alpha(V), "vocabulary", vocabulary=V)
    assert (folded.kind, folded.temperature_parameter.item()) == ("scalar", 0.0)


def test_half_precision_stays_half_and_is_rounded_once():
    model = tiny.tiny_llama(V).to(torch.bfloat16)
    weight, alpha = model.lm_head.weight.detach().clone(), export_run.random_alpha(V, shift=False)
    fold_into(model, head_adjustment(Use(True, "none"), alpha, "vocabulary", vocabulary=V))
    expected = (weight.double() * torch.exp(-alpha.temperature_parameter.double())[:, None]).to(torch.bfloat16)
    assert torch.equal(model.lm_head.weight, expected)


def test_a_shift_without_a_bias_is_refused_or_goes_to_generate(tmp_path):
    alpha = export_run.random_alpha(V)
    folded = head_adjustment(Use(True, "TS", 1.3), alpha, "vocabulary", vocabulary=V)
    model = tiny.tiny_llama(V)
    with pytest.raises(ValueError, match=r"the head of LlamaForCausalLM has none.*--shift generation"):
        fold_into(model, folded)
    expected = (logits(model)[0, -1] * torch.exp(-alpha.temperature_parameter) + alpha.logit_shift) / 1.3
    fold_into(model, folded, shift_in="generation")
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    out = loaded.generate(IDS, max_new_tokens=1, do_sample=False, output_scores=True, return_dict_in_generate=True)
    torch.testing.assert_close(out.scores[0][0].double(), expected, rtol=0, atol=2e-5)


def test_a_soft_cap_is_refused():
    config = Gemma2Config(vocab_size=V, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                          num_attention_heads=4, num_key_value_heads=2, head_dim=8)  # fmt: skip
    config.final_logit_softcapping = 30.0
    with torch.device("meta"):
        model = Gemma2ForCausalLM(config)
    with pytest.raises(ValueError, match="Gemma2ForCausalLM bends its logits with a soft cap"):
        refuse_architecture(model, shift=False)


VS = Use(False, "VS", vector=Vector((1.0, 2.0), (0.0, 0.0)))


@pytest.mark.parametrize(("use", "level", "scoring", "message"), [
    (VS, "options", "letter", r"no output head can hold; choose --use 'raw \+ TS'"),
    (VS, "options", "text", r"no output head can hold; choose --use 'raw', or apply scale"),
    (Use(False, "TS", 2.0), "vocabulary", "text", r"scores of whole texts by 2; .*Choose --use 'raw'"),
    (Use(True, "TS", 2.0), "options", "text", r"level: options.*Choose --use raw"),
    (Use(True, "none"), "options", "text", r"level: options.*CalmModel.option_distributions"),
])  # fmt: skip
def test_what_no_head_can_hold_is_refused_with_an_alternative(use, level, scoring, message):
    with pytest.raises(ValueError, match=message):
        refuse_unfoldable(use, export_run.random_alpha(4), level, scoring)


@pytest.mark.parametrize(("use", "level", "scoring"), [
    (Use(True, "none"), "vocabulary", "text"), (Use(True, "TS", 2.0), "vocabulary", "letter"),
    (Use(True, "TS", 2.0), "options", "letter"), (Use(False, "none"), "options", "text"),
])  # fmt: skip
def test_what_a_head_can_hold_is_not_refused(use, level, scoring):
    refuse_unfoldable(use, export_run.random_alpha(4), level, scoring)


def test_letters_that_differ_or_take_several_tokens():
    with pytest.raises(ValueError, match="letter of option 1 is 2 tokens"):
        letter_tokens([[[5], [6, 7]]])
    with pytest.raises(ValueError, match="token 6 in one item, 9 in another"):
        letter_tokens([[[5], [6]], [[5], [9]]])


def test_an_alpha_of_another_vocabulary():
    with pytest.raises(ValueError, match="alpha has 5 classes, but the head has 64 rows"):
        head_adjustment(Use(True, "none"), export_run.random_alpha(5), "vocabulary", vocabulary=V)
