"""Reading hidden states and option scores from models of several architectures."""

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from calmtune.bilevel import LogitAdjustment
from calmtune.data.encoding import collate_items
from calmtune.data.prompts import EncodedItem
from calmtune.modeling.reading import attention_mask, check_readable, eval_mode, option_scores
from tiny import tiny_gpt2, tiny_llama

SHAPE = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0, "initializer_range": 0.2,
}  # fmt: skip


def items():
    """Two items of different size, with options of one to three tokens."""
    return [
        EncodedItem("a", "", [5, 6, 7], [[8, 9, 10], [11], [12, 13]], [9, 2, 5], 0, "toy", "text"),
        EncodedItem("b", "", [20, 21, 22, 23, 24, 25], [[30, 31], [32]], [4, 3], 1, "toy", "text"),
    ]


def reference(model, item):
    """log p of every option's tokens from whole unpadded rows."""
    found = []
    for option in item.option_ids:
        ids = torch.tensor([item.prompt_ids + option])
        with torch.no_grad():
            log_p = torch.log_softmax(model(input_ids=ids, use_cache=False).logits[0].float(), -1)
        start = len(item.prompt_ids) - 1
        found.append(sum(log_p[start + k, token] for k, token in enumerate(option)).item())
    return found


def models():
    """One tiny model for each way of treating positions, windows and logits."""
    torch.manual_seed(0)
    yield "llama", tiny_llama()
    yield "llama-eager", tiny_llama(attn_implementation="eager")
    yield "gpt2", tiny_gpt2()
    capped = Gemma2Config(**SHAPE, final_logit_softcapping=3.0, attn_implementation="eager")
    yield "gemma2, capped logits", Gemma2ForCausalLM(capped)
    yield "mistral, window", MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=64))


@pytest.mark.parametrize(("name", "model"), list(models()), ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("normalisation", ["sum", "token", "byte"])
def test_scores_equal_those_of_whole_rows(name, model, normalisation):
    model.eval()
    batch = collate_items(items(), pad_id=0)
    check_readable(model, batch)
    with torch.no_grad():
        read = option_scores(model, batch, normalisation=normalisation)
    for row, item in enumerate(items()):
        for option, expected in enumerate(reference(model, item)):
            size = {"sum": 1, "token": len(item.option_ids[option]), "byte": item.option_bytes[option]}[normalisation]
            assert read.scores[row, option].item() == pytest.approx(expected / size, abs=2e-5)
        mass = sum(torch.tensor(reference(model, item)).exp())
        assert read.option_mass[row].item() == pytest.approx(mass.item(), abs=1e-6)
    assert torch.isneginf(read.scores[1, 2])


def test_an_architecture_that_changes_its_logits_afterwards_is_refused():
    torch.manual_seed(0)
    shape = {key: value for key, value in SHAPE.items() if key != "head_dim"}
    model = GraniteForCausalLM(GraniteConfig(**shape, logits_scaling=7.0)).eval()
    with pytest.raises(ValueError, match="GraniteForCausalLM: logits read through trunk and head differ"):
        check_readable(model, collate_items(items(), pad_id=0))


def test_a_row_longer_than_the_attention_window_is_refused():
    model = MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=6))
    with pytest.raises(ValueError, match="sliding window of 6"):
        option_scores(model, collate_items(items(), pad_id=0))


def test_scores_under_an_adjusted_vocabulary():
    model = tiny_llama()
    adjustment = LogitAdjustment(64)
    torch.manual_seed(1)
    for parameter in adjustment.parameters():
        parameter.data.normal_(std=0.5)
    with torch.no_grad():
        read = option_scores(model, collate_items(items(), pad_id=0), adjustment=adjustment)
        item = items()[0]
        z = model(input_ids=torch.tensor([item.prompt_ids + item.option_ids[2]])).logits[0]
        log_p = torch.log_softmax(adjustment(z), -1)
    assert read.scores[0, 2].item() == pytest.approx((log_p[2, 12] + log_p[3, 13]).item(), abs=2e-5)


def test_letters_are_scored_by_their_logits():
    model = tiny_llama()
    letters = [EncodedItem("a", "", [5, 6, 7], [[8], [9], [10]], [1, 1, 1], 0, "toy", "letter")]
    with torch.no_grad():
        read = option_scores(model, collate_items(letters, pad_id=0), entropy=True)
        z = model(input_ids=torch.tensor([[5, 6, 7]])).logits[0, -1]
    p = torch.softmax(z, -1)
    assert torch.allclose(read.scores[0], z[[8, 9, 10]], atol=1e-5)
    assert read.option_mass.item() == pytest.approx(p[[8, 9, 10]].sum().item(), abs=1e-6)
    assert read.token_entropy.item() == pytest.approx(torch.special.entr(p).sum().item(), abs=1e-5)


def test_masks_keep_branches_apart_and_leave_no_query_without_a_key():
    segments = torch.tensor([[0, 0, 1, 1, 2, -1]])
    allowed = attention_mask(segments, "sdpa")[0, 0]
    assert allowed[4].tolist() == [True, True, False, False, True, False]
    assert allowed[3].tolist() == [True, True, True, True, False, False]
    assert allowed.any(-1).all()
    assert torch.equal(attention_mask(segments, "eager")[0, 0] == 0, allowed)
    assert attention_mask(torch.tensor([[0, 0, -1]]), "flash_attention_2").tolist() == [[1, 1, 0]]
    with pytest.raises(ValueError, match="takes no branching mask"):
        attention_mask(segments, "flash_attention_2")


def test_modes_are_restored_also_after_an_error():
    model = tiny_gpt2().train()
    model.transformer.h[0].eval()
    with pytest.raises(RuntimeError, match="boom"), eval_mode(model):
        assert not any(module.training for module in model.modules())
        raise RuntimeError("boom")
    assert model.training
    assert not model.transformer.h[0].attn.training
    assert model.transformer.h[1].attn.training
