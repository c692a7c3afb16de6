"""Scores through the cache against plain forward passes, one an option; and what the model is given at once."""

import dataclasses

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import Gemma2Config, Gemma2ForCausalLM, MistralConfig, MistralForCausalLM

import tiny
from calmtune.bilevel.objectives import CHUNK_ELEMENTS
from calmtune.data.prompts import EncodedItem, PromptStyle, Renderer
from calmtune.data.rows import MultipleChoice
from calmtune.modeling.reading import head_of, option_scores
from calmtune.scoring.options import score_items
from calmtune.scoring.passes import automatic_tokens, encode_prefix, read_states, takes_cache, tokens_in, trunk_of
from calmtune.scoring.reader import ItemReader
from calmtune.scoring.tries import collate_tries, shared_prefix

VOCAB = 64
TEXTS = ("deep blue A", "deep blue sea", "deep", "red green", "red", "blue")
ROWS = [
    MultipleChoice(f"q{i}", "what " + "is the sky " * (i % 5 + 1), TEXTS[i % 3 : i % 3 + 2 + i % 3], i % 2, "toy")
    for i in range(9)
]


def renderer():
    return Renderer(tiny.word_tokenizer(), PromptStyle("text"))


def with_adapter():
    torch.manual_seed(0)
    settings = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    return get_peft_model(tiny.tiny_llama(VOCAB), settings).eval()


SHAPE = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0, "initializer_range": 0.2,
}  # fmt: skip

ITEMS = [
    EncodedItem("a", "", [5, 6, 7, 8], [[8, 9, 10], [8, 9, 11, 3], [8], [12, 13]], [1] * 4, 0, "toy", "text"),
    EncodedItem("b", "", [5, 6, 20, 21, 22, 23], [[30, 31], [32]], [1] * 2, 1, "toy", "text"),
    EncodedItem(
        "c", "", [5, 6, *range(9, 60)], [[30, *range(3, 25)], [30, 3, 4], [30, 3, 4]], [1] * 3, 1, "toy", "text"
    ),
]


def plain(model, item):
    """log p of every option from a pass over its own unpadded row."""
    scores = []
    for ids in item.option_ids:
        with torch.no_grad():
            log_p = model(input_ids=torch.tensor([item.prompt_ids + ids]), use_cache=False).logits[0].log_softmax(-1)
        start = len(item.prompt_ids) - 1
        scores.append(sum(log_p[start + place, token].item() for place, token in enumerate(ids)))
    return scores


def models():
    torch.manual_seed(0)
    yield "llama", tiny.tiny_llama(VOCAB)
    yield "llama-eager", tiny.tiny_llama(VOCAB, attn_implementation="eager")
    yield "gpt2", tiny.tiny_gpt2(VOCAB)
    yield "lora", with_adapter()
    yield "mistral, window", MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=100)).eval()
    capped = Gemma2Config(**SHAPE, sliding_window=100, final_logit_softcapping=3.0, attn_implementation="eager")
    yield "gemma2, windows", Gemma2ForCausalLM(capped).eval()


@pytest.mark.parametrize(("name", "model"), list(models()), ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("most", [1, 7, 64, 10**6])
def test_scores_are_those_of_plain_passes(name, model, most):
    with torch.no_grad():
        reader = ItemReader(model, ITEMS, 0, most)
        found = {}
        for indices in reader.batches:
            some = [ITEMS[index] for index in indices]
            batch, states = reader.read(some, most)
            scores = option_scores(model, batch, hidden=states).scores
            found |= {one.id: row[: len(one.option_ids)].tolist() for one, row in zip(some, scores, strict=True)}
    assert reader.in_pieces == ("window" not in name)
    assert reader.skip == (2 if reader.in_pieces else 0)
    for one in ITEMS:
        assert found[one.id] == pytest.approx(plain(model, one), abs=1e-4)
    assert found["c"][1] == found["c"][2]


@pytest.mark.parametrize("make", [tiny.tiny_llama, tiny.tiny_gpt2])
def test_rows_without_branches_go_through_the_cache_too(make):
    model = make(VOCAB)
    letters = [
        EncodedItem(name, "", ids, [[8], [9], [10]], [1] * 3, 0, "toy", "letter")
        for name, ids in (("a", [5, 6, 7, 8, 9]), ("b", [5, 6, 7]))
    ]
    ids = shared_prefix(letters)
    with torch.no_grad():
        prefix = encode_prefix(model, ids, 1)
        batch = collate_tries(letters, 0, len(ids))
        for most in (2, None):
            scores = option_scores(model, batch, hidden=read_states(model, batch, prefix, most)).scores
            for row, one in zip(scores, letters, strict=True):
                expected = model(input_ids=torch.tensor([one.prompt_ids])).logits[0, -1, [8, 9, 10]]
                torch.testing.assert_close(row, expected, atol=1e-5, rtol=0)


def watched(model):
    """Tokens of every pass of the trunk and logits of every call of the head, as they happen."""
    tokens, logits = [], []
    trunk_of(model).register_forward_pre_hook(
        lambda module, args, kwargs: tokens.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    head_of(model).register_forward_hook(lambda module, args, output: logits.append(output.numel()))
    return tokens, logits


def test_no_pass_has_more_tokens_than_allowed_however_long_an_item_is():
    model = tiny.tiny_llama(VOCAB)
    tokens, _ = watched(model)
    long = dataclasses.replace(ROWS[0], question="what " + "is the sky " * 70)
    said = score_items(model, [long, *ROWS[1:]], renderer(), batch_tokens=80)
    # the check of the model's own logits passes one short row, whatever is allowed; no other pass may be larger
    assert max(tokens) <= 80
    assert max(tokens) > 60
    item = renderer().multiple_choice(long)
    assert len(item.prompt_ids) > 200
    assert said[0].scores == pytest.approx(plain(model, item), abs=1e-4)


def test_logits_exist_at_read_positions_alone_and_in_chunks():
    vocab = 2**15
    model = tiny.tiny_llama(vocab)
    items = [
        EncodedItem(f"q{n}", "", [5, 6, 7 + n], [[n, *range(20)], [n + 1, *range(20)]], [1, 1], 0, "", "text")
        for n in range(20)
    ]
    with torch.no_grad():
        reader = ItemReader(model, items, 0, 10**6)
        _, logits = watched(model)
        batch, states = reader.read(items, 10**6)
        option_scores(model, batch, hidden=states)
    # 41 positions of each item are read, out of 43 tokens
    assert sum(logits) == 20 * 41 * vocab
    assert max(logits) <= CHUNK_ELEMENTS < sum(logits)


def test_what_prompts_begin_with_is_given_once():
    model = tiny.tiny_llama(VOCAB)
    reader = ItemReader(model, ITEMS, 0, 1000)
    tokens, _ = watched(model)
    with torch.no_grad():
        for indices in reader.batches:
            reader.read([ITEMS[index] for index in indices], 1000)
    assert sum(tokens) == sum(
        len(indices) * max(collate_tries([ITEMS[i]], 0, 2)["input_ids"].numel() for i in indices)
        for indices in reader.batches
    )
    assert reader.prefix[0][0].shape[-2] == 2


def test_a_batch_that_does_not_fit_into_memory_gives_the_same_scores():
    model = tiny.tiny_llama(VOCAB)
    expected = score_items(model, ROWS, renderer(), batch_tokens=400)
    sizes = []

    def limited(module, args, kwargs):
        sizes.append(kwargs["input_ids"].numel())
        if sizes[-1] > 35:
            raise torch.OutOfMemoryError("no room")

    # what is checked first is small
    handle = trunk_of(model).register_forward_pre_hook(limited, with_kwargs=True)
    found = score_items(model, ROWS, renderer(), batch_tokens=400)
    handle.remove()
    assert max(sizes) > 100
    for one, other in zip(found, expected, strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-5)


def test_a_model_that_forgets_its_cache_is_given_whole_rows():
    model = tiny.tiny_llama(VOCAB)
    expected = score_items(model, ROWS, renderer())
    forward = model.model.forward

    def forgetful(input_ids, attention_mask, position_ids, cache=None, use_cache=False, **rest):
        keys = input_ids.shape[1]
        return forward(
            input_ids=input_ids, attention_mask=attention_mask[..., -keys:], position_ids=position_ids, use_cache=False
        )

    model.model.forward = forgetful
    assert takes_cache(model)
    reader = ItemReader(model, [renderer().multiple_choice(row) for row in ROWS], 0)
    assert not reader.in_pieces
    assert reader.skip == 0
    for one, other in zip(score_items(model, ROWS, renderer()), expected, strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-5)


def test_rows_longer_than_a_window_are_refused():
    model = MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=20)).eval()
    with pytest.raises(ValueError, match="sliding window of 20"):
        score_items(model, ROWS, renderer())


def test_tokens_are_found_for_the_device():
    model = tiny.tiny_llama(VOCAB)
    assert automatic_tokens(model) == 512
    sizes = [tokens_in(free, model) for free in range(0, 2**31, 2**26)]
    assert sizes == sorted(sizes)
    assert all(size & (size - 1) == 0 for size in sizes)
    wide = tiny.tiny_llama(VOCAB, hidden=256)
    assert tokens_in(2**29, wide) < tokens_in(2**29, model)
    assert tokens_in(2**29, wide.to(torch.bfloat16)) > tokens_in(2**29, wide.float())
