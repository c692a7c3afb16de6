"""Entailment by a model: labels by name, batches that change nothing, pairs run once."""

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from calmtune.grading import EntailmentModel, Sampled, nli_clusters
from calmtune.grading.nli import entailment_index
from tiny import WORDS, word_tokenizer

LABELS = {0: "contradiction", 1: "ENTAILMENT", 2: "neutral"}
PAIRS = [(one, other) for one in WORDS[:6] for other in ("sky", "deep blue sea is the sky", one, "A B")]


def tiny_bert(seed=0, labels=LABELS, **config):
    """A random classifier whose logits differ clearly between inputs."""
    torch.manual_seed(seed)
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=64,
            initializer_range=0.5,
            id2label=labels,
            label2id={label: index for index, label in labels.items()},
            **config,
        )
    ).eval()


def counted(model):
    """The model, with the shapes of the batches it was given."""
    shapes = []
    model.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    return shapes


def by_rule(model, tokenizer, relation):
    """The model's forward replaced by a table: the label is entailment exactly for the texts in ``relation``."""

    def forward(input_ids, attention_mask, **_):
        texts = [tokenizer.decode(row[mask.bool()]) for row, mask in zip(input_ids, attention_mask, strict=True)]
        wanted = torch.tensor([1 if text in relation else 2 for text in texts])
        return type("Output", (), {"logits": torch.nn.functional.one_hot(wanted, 3).float()})()

    model.forward = forward
    return model


def test_a_batch_of_one_equals_a_batch_of_eight():
    model, tokenizer = tiny_bert(), word_tokenizer()
    entails = EntailmentModel(model, tokenizer, batch_size=8)
    together = torch.cat([entails.logits(PAIRS[start : start + 8]) for start in range(0, len(PAIRS), 8)])
    alone = torch.cat([entails.logits([pair]) for pair in PAIRS])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)
    assert together.std(dim=0).min() > 0.05  # the inputs matter, so that padding read as text would show

    decided = entails(PAIRS)
    assert decided == EntailmentModel(model, tokenizer, batch_size=1)(PAIRS)
    assert decided == (alone.argmax(dim=1) == 1).tolist()
    assert len(set(decided)) == 2


def test_a_pair_is_run_once_and_its_reverse_is_another_pair():
    model = tiny_bert()
    shapes = counted(model)
    entails = EntailmentModel(model, word_tokenizer(), batch_size=4)
    pair = ("sky", "deep blue sea")
    first = entails([pair, pair, ("A", "B")])
    assert first[0] == first[1]
    assert sum(count for count, _ in shapes) == 2
    assert entails([("A", "B"), pair]) == [first[2], first[0]]
    assert sum(count for count, _ in shapes) == 2
    entails([pair[::-1]])
    assert sum(count for count, _ in shapes) == 3


def test_batches_hold_pairs_of_similar_length():
    model = tiny_bert()
    shapes = counted(model)
    long = "deep blue sea is the sky"
    EntailmentModel(model, word_tokenizer(), batch_size=2)([(long, long), ("A", "B"), (long, f"{long} A"), ("B", "A")])
    assert [count for count, _ in shapes] == [2, 2]
    assert shapes[0][1] < 5 < shapes[1][1]


def test_the_cache_is_used_again_and_belongs_to_one_model(tmp_path):
    path = tmp_path / "nli.jsonl"
    first = EntailmentModel(tiny_bert(), word_tokenizer(), cache=path)(PAIRS)
    model = tiny_bert()
    shapes = counted(model)
    assert EntailmentModel(model, word_tokenizer(), cache=path)(PAIRS) == first
    assert shapes == []
    # killed while writing: the torn pair, and no other, is run again
    path.write_bytes(path.read_bytes()[:-9])
    assert EntailmentModel(model, word_tokenizer(), cache=path)(PAIRS) == first
    assert [count for count, _ in shapes] == [1]
    with pytest.raises(ValueError, match="made with .* now .* Delete it or choose another path"):
        EntailmentModel(tiny_bert(seed=1), word_tokenizer(), cache=path)
    swapped = {0: "entailment", 1: "contradiction", 2: "neutral"}
    with pytest.raises(ValueError, match="made with"):
        EntailmentModel(tiny_bert(labels=swapped), word_tokenizer(), cache=path)


def test_the_label_is_found_by_its_name():
    assert entailment_index({0: "entailment", 1: "neutral", 2: "contradiction"}) == 0
    assert entailment_index({0: "not_entailment", 1: "Entailment"}) == 1
    for labels in ({0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}, {0: "not_entailment", 1: "neutral"}):
        with pytest.raises(ValueError, match="one label named 'entailment' in the model's id2label, got .*"):
            entailment_index(labels)
    with pytest.raises(ValueError, match="one label named"):
        EntailmentModel(tiny_bert(labels={0: "LABEL_0", 1: "LABEL_1"}), word_tokenizer())


def test_classes_by_a_model_with_a_known_relation():
    tokenizer = word_tokenizer()
    said = ["what is sky", "what is the sky", "what is sea"]
    relation = {
        tokenizer.decode(tokenizer(one, other)["input_ids"]) for one in said[:2] for other in said[:2] if one != other
    } | {tokenizer.decode(tokenizer(said[0], said[2])["input_ids"])}  # one way only
    model = by_rule(tiny_bert(), tokenizer, relation)
    item = Sampled("what is", ("sky", "the sky", "sea", "sky"))
    assert nli_clusters([item], EntailmentModel(model, tokenizer), normaliser="calmtune-1")[0].ids == (0, 0, 1, 0)
    # "sky" and "the sky" have one form; a relation between unlike forms needs the model
    item = Sampled("", ("deep sea", "blue sea", "sea"))
    relation.clear()
    assert nli_clusters([item], EntailmentModel(model, tokenizer))[0].ids == (0, 1, 2)
    relation |= {tokenizer.decode(tokenizer(a, b)["input_ids"]) for a, b in (("deep sea", "sea"), ("sea", "deep sea"))}
    assert nli_clusters([item], EntailmentModel(model, tokenizer))[0].ids == (0, 1, 0)


def test_what_the_model_cannot_read_is_an_error():
    long = " ".join(["sky"] * 70)
    with pytest.raises(ValueError, match="has 71 tokens, the model reads 64; sample shorter answers"):
        EntailmentModel(tiny_bert(), word_tokenizer())([("A", "B"), (long, "sea")])
    model = tiny_bert()
    model.classifier.bias.data[0] = float("nan")
    with pytest.raises(ValueError, match="not finite for the pairs"):
        EntailmentModel(model, word_tokenizer())([("A", "B")])
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        EntailmentModel(tiny_bert(), word_tokenizer(), batch_size=0)


def test_half_a_surrogate_pair_can_be_compared():
    entails = EntailmentModel(tiny_bert(), word_tokenizer())
    assert len(nli_clusters([Sampled("q", ("sky\ud800", "sea"))], entails)[0].ids) == 2


def test_loaded_from_a_folder(tmp_path):
    from calmtune.grading import load_entailment_model

    model, tokenizer = tiny_bert(), word_tokenizer()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = load_entailment_model(str(tmp_path))
    assert loaded(PAIRS) == EntailmentModel(model, tokenizer)(PAIRS)
    assert loaded.name == str(tmp_path)
