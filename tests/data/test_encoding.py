import pytest
import torch

import tiny
from calmtune.data.encoding import collate_items, collate_sequences, tree_length
from calmtune.data.prompts import EncodedItem, EncodedSequence
from calmtune.modeling.reading import option_scores, read_hidden

PAD = 0


def item(name, prompt, options, label=0, scoring="text"):
    return EncodedItem(name, "", prompt, options, [3 * len(o) for o in options], label, "toy", scoring)


RAGGED = [
    item("one", [5, 6, 7], [[8, 9, 10], [11], [12, 13]], label=2),
    item("two", [14, 15], [[16], [17, 18, 19, 20]], label=1),
    item("three", [21, 22, 23, 24, 25], [[26, 27], [26, 28], [26, 27], [29]]),
]
MODELS = [tiny.tiny_llama, tiny.tiny_gpt2]


def plain_scores(model, item):
    """Summed log-probability of each option from the model's own logits, an unpadded row an option."""
    scores = []
    for option in item.option_ids:
        ids = torch.tensor([item.prompt_ids + option])
        log_p = model(input_ids=ids).logits[0].double().log_softmax(-1)
        start = len(item.prompt_ids)
        scores.append(sum(log_p[start + k - 1, token].item() for k, token in enumerate(option)))
    return scores


# ---- layout, by hand


def test_tree_by_hand():
    batch = collate_items(RAGGED[:2], PAD)
    assert batch["input_ids"].tolist() == [[5, 6, 7, 8, 9, 12], [14, 15, 17, 18, 19, 0]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 4, 3], [0, 1, 2, 3, 4, 0]]
    assert batch["segments"].tolist() == [[0, 0, 0, 1, 1, 3], [0, 0, 2, 2, 2, -1]]
    assert batch["read_index"].tolist() == [2, 3, 4, 5, 7, 8, 9, 10]
    assert batch["token_target"].tolist() == [8, 9, 10, 11, 12, 13, 16, 17, 18, 19, 20]
    assert batch["token_read"].tolist() == [0, 1, 2, 0, 0, 3, 4, 4, 5, 6, 7]
    assert batch["token_option"].tolist() == [0, 0, 0, 1, 2, 2, 3, 4, 4, 4, 4]
    assert batch["option_mask"].tolist() == [[True, True, True], [True, True, False]]
    assert batch["option_tokens"].tolist() == [[3, 1, 2], [1, 4, 0]]
    assert batch["option_bytes"].tolist() == [[9, 3, 6], [3, 12, 0]]
    assert batch["labels"].tolist() == [2, 1]
    assert (batch["kind"], batch["ids"], batch["letter"]) == ("options", ["one", "two"], False)
    assert [tree_length(row) for row in RAGGED[:2]] == [6, 5]


def test_single_letters_add_nothing_to_the_input():
    batch = collate_items([item("a", [5, 6], [[7], [8]], scoring="letter")], PAD)
    assert batch["input_ids"].tolist() == [[5, 6]]
    assert batch["read_index"].tolist() == [1]
    assert batch["token_read"].tolist() == [0, 0]
    assert batch["letter"] is True


def test_letter_means_every_item_of_the_batch():
    letters, texts = item("a", [5], [[7], [8]], scoring="letter"), item("b", [5], [[7], [8]])
    assert collate_items([letters, texts], PAD)["letter"] is False


def test_sequences_by_hand():
    batch = collate_sequences(
        [EncodedSequence("a", [5, 6, 7, 8], 2, "toy", ""), EncodedSequence("b", [9, 10], 1, "toy", "")], PAD
    )
    assert batch["input_ids"].tolist() == [[5, 6, 7, 8], [9, 10, 0, 0]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3], [0, 1, 0, 0]]
    assert batch["segments"].tolist() == [[0, 0, 0, 0], [0, 0, -1, -1]]
    assert batch["read_index"].tolist() == [1, 2, 4]
    assert batch["token_target"].tolist() == [7, 8, 10]
    assert batch["first_read"].tolist() == [True, False, True]
    assert batch["row_of_read"].tolist() == [0, 0, 1]
    assert "letter_ids" not in batch
    assert (batch["kind"], batch["ids"]) == ("tokens", ["a", "b"])


def test_letter_ids_are_padded_and_only_there_when_every_row_has_them():
    two, three = (
        EncodedSequence(n, [5, 6], 1, "toy", "A", letters) for n, letters in (("a", (6, 7)), ("b", (6, 7, 8)))
    )
    assert collate_sequences([two, three], PAD)["letter_ids"].tolist() == [[6, 7, -1], [6, 7, 8]]
    assert "letter_ids" not in collate_sequences([two, EncodedSequence("c", [5, 6], 1, "toy", "")], PAD)


def test_integers_are_int64_and_masks_bool():
    for batch in (collate_items(RAGGED, PAD), collate_sequences([EncodedSequence("a", [5, 6], 1, "toy", "")], PAD)):
        for key, value in batch.items():
            if isinstance(value, torch.Tensor):
                assert value.dtype == (torch.bool if key in ("option_mask", "first_read") else torch.int64), key


# ---- errors


def test_too_long_empty_and_answerless_rows_are_refused():
    assert collate_items(RAGGED[:1], PAD, max_length=6)["ids"] == ["one"]
    with pytest.raises(ValueError, match="'one' has 6 tokens, more than max_length 5"):
        collate_items(RAGGED[:1], PAD, max_length=5)
    with pytest.raises(ValueError, match="'a' has 3 tokens"):
        collate_sequences([EncodedSequence("a", [5, 6, 7], 1, "toy", "")], PAD, max_length=2)
    for start in (0, 2):
        with pytest.raises(ValueError, match=f"'a': the answer starts at {start} of 2"):
            collate_sequences([EncodedSequence("a", [5, 6], start, "toy", "")], PAD)
    for collate in (collate_items, collate_sequences):
        with pytest.raises(ValueError, match="at least one row"):
            collate([], PAD)


# ---- against plain forward passes


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@torch.no_grad()
def test_tree_gives_the_scores_of_one_plain_row_an_option(make, attention):
    model = make(attn_implementation=attention)
    scores = option_scores(model, collate_items(RAGGED, PAD)).scores
    assert scores.dtype == torch.float32
    for row, encoded in enumerate(RAGGED):
        expected = plain_scores(model, encoded)
        torch.testing.assert_close(
            scores[row, : len(expected)].double(), torch.tensor(expected).double(), atol=1e-5, rtol=0
        )
        assert torch.isneginf(scores[row, len(expected) :]).all()


@pytest.mark.parametrize("make", MODELS)
@torch.no_grad()
def test_letters_are_the_models_own_logits(make):
    model = make()
    letters = [item("a", [5, 6, 7], [[8], [9]], scoring="letter"), item("b", [10], [[8], [9], [11]], scoring="letter")]
    scores = option_scores(model, collate_items(letters, PAD)).scores
    for row, encoded in enumerate(letters):
        logits = model(input_ids=torch.tensor([encoded.prompt_ids])).logits[0, -1]
        expected = logits[[ids[0] for ids in encoded.option_ids]]
        torch.testing.assert_close(scores[row, : len(expected)], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("make", MODELS)
@torch.no_grad()
def test_batch_of_one_is_batch_of_many_and_the_padding_token_does_not_matter(make):
    model = make()
    together = option_scores(model, collate_items(RAGGED, PAD)).scores
    other_pad = option_scores(model, collate_items(RAGGED, 31)).scores
    torch.testing.assert_close(other_pad, together, atol=0, rtol=0)
    for row, encoded in enumerate(RAGGED):
        alone = option_scores(model, collate_items([encoded], PAD)).scores[0]
        torch.testing.assert_close(together[row, : len(alone)], alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("make", MODELS)
@torch.no_grad()
def test_padded_sequences_read_what_the_unpadded_row_says(make):
    model = make()
    rows = [
        EncodedSequence("short", [5, 6, 7, 8], 3, "toy", ""),
        EncodedSequence("long", list(range(5, 25)), 2, "toy", ""),
    ]
    batch = collate_sequences(rows, PAD)
    logits = model.get_output_embeddings()(read_hidden(model, batch))
    own = [model(input_ids=torch.tensor([row.input_ids])).logits[0, row.answer_start - 1 : -1] for row in rows]
    torch.testing.assert_close(logits, torch.cat(own), atol=1e-5, rtol=0)
    # the sum over the short row's answer counts its tokens and no padding
    log_p = logits.log_softmax(-1)[torch.arange(len(logits)), batch["token_target"]]
    short = log_p[batch["row_of_read"] == 0].sum()
    torch.testing.assert_close(short, own[0].log_softmax(-1)[0, 8], atol=1e-5, rtol=0)
