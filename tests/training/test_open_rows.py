"""Training on open questions: what is learned from them, and what the upper level never sees."""

from contextlib import nullcontext

import pytest
import torch

import tiny
from calmtune.bilevel import LogitAdjustment
from calmtune.data.prompts import EncodedSequence
from calmtune.data.rows import OpenQuestion
from calmtune.training.own_answers import OwnAnswers
from toy_training import questions, trainer

COLOURS = ("blue", "green", "red")


def open_rows(count, start=0, answer=None):
    return [
        OpenQuestion(f"o{n}", f"what is {n} the {tiny.WORDS[n % 16]} {tiny.WORDS[n // 16]} ?",
                     (answer or COLOURS[n % 3], "deep"), "toy")
        for n in range(start, start + count)
    ]  # fmt: skip


def state_after(tmp_path, **change):
    made = trainer(tmp_path, **{"train": open_rows(16), "upper": open_rows(8, 16), "max_steps": 3, **change})
    made.train()
    alpha = {} if made.adjustment is None else made.adjustment.state_dict()
    theta = {name: p.detach().clone() for name, p in made.model.named_parameters() if p.requires_grad}
    return {**theta, **{name: p.clone() for name, p in alpha.items()}}


@pytest.mark.parametrize("method", ["sft", "label_smoothing", "cft", "regularization", "iterate", "calm"])
def test_every_method_moves_the_model(tmp_path, method):
    change = {"method": method} | ({"label_smoothing_factor": 0.1} if method == "label_smoothing" else {})
    made = trainer(tmp_path, train=open_rows(16), upper=open_rows(8, 16), max_steps=2, **change)
    assert made.level.name == "vocabulary"
    before = [p.detach().clone() for p in made.model.parameters() if p.requires_grad]
    made.train()
    after = [p for p in made.model.parameters() if p.requires_grad]
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("positions", ["auto", "first", "sample"])
def test_the_answers_of_the_upper_questions_change_nothing(tmp_path, positions):
    change = {"entropy_positions": positions} | ({"own_answer_tokens": 3} if positions == "sample" else {})
    one = state_after(tmp_path / "one", **change)
    other = state_after(tmp_path / "other", upper=open_rows(8, 16, answer="sea sea sea"), **change)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_answers_of_the_training_questions_do(tmp_path):
    one = state_after(tmp_path / "one")
    other = state_after(tmp_path / "other", train=open_rows(16, answer="sea sea sea"))
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_where_the_entropy_is_read(tmp_path):
    rows = {"train": open_rows(16), "upper": open_rows(8, 16)}
    assert trainer(tmp_path, **rows).level.positions == "first"
    made = trainer(tmp_path, **rows, entropy_positions="sample", own_answer_tokens=5)
    batches = made.method_step.upper_batches(0)
    counts = sum(made.level.upper_count(batch) for batch in batches)
    answers = sum(len(batch["token_target"]) for batch in batches)
    assert counts == answers > sum(len(batch["ids"]) for batch in batches)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"entropy_positions": "response"}, "reads a reference answer"),
        ({"level": "options"}, "has no options"),
        ({"method": "rcft"}, "needs questions with options"),
        ({"eta": "auto", "calibration": open_rows(8, 40)}, "calibration_dataset needs questions with options"),
        ({"upper": open_rows(4)}, "must not share a question"),
        ({"own_answer_tokens": 5}, "belongs to entropy_positions: sample"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        trainer(tmp_path, **{"train": open_rows(16), "upper": open_rows(8, 16), **change})


def test_options_may_be_held_out_beside_open_questions(tmp_path):
    made = trainer(tmp_path, train=open_rows(16), upper=[*open_rows(4, 16), *questions(4, 3)], max_steps=1)
    made.train()
    assert made.level.positions == "first"


# ---- the model's own answers -----------------------------------------------------------------------------------------


def own(model, tokenizer, adjustment=None, most=6, seed=0):
    return OwnAnswers(model, adjustment, tokenizer, most, seed, nullcontext)


def asked(tokenizer, count=1):
    ids = tokenizer("Question: what is the sky\nAnswer:", add_special_tokens=False)["input_ids"]
    return [EncodedSequence(f"a{n}", [*ids, *([5] * n), 3], len(ids) + n, "toy", "") for n in range(count)]


@pytest.fixture(scope="module")
def small():
    tokenizer = tiny.word_tokenizer()
    return tiny.tiny_llama(len(tokenizer)), tokenizer


def test_an_answer_depends_on_seed_and_step_alone(small):
    model, tokenizer = small
    rows = asked(tokenizer, 3)
    first = [one.input_ids for one in own(model, tokenizer)(rows, 4)]
    assert first == [one.input_ids for one in own(model, tokenizer)(rows, 4)]
    assert first != [one.input_ids for one in own(model, tokenizer)(rows, 5)]
    assert first != [one.input_ids for one in own(model, tokenizer, seed=1)(rows, 4)]
    model.train()
    try:
        assert first == [one.input_ids for one in own(model, tokenizer)(rows, 4)]
        assert model.training
    finally:
        model.eval()


@pytest.mark.parametrize(("token", "length"), [("</s>", 1), ("\n", 1), (" blue", 6)])
def test_it_ends_at_the_end_at_a_line_or_at_the_most_tokens(small, token, length):
    model, tokenizer = small
    wanted = tokenizer.convert_tokens_to_ids(token)
    alpha = LogitAdjustment(len(tokenizer), "vector")
    with torch.no_grad():
        alpha.logit_shift[wanted] = 1e4  # the adjusted distribution is sampled, so nothing else can come
    for one in own(model, tokenizer, alpha)(asked(tokenizer, 2), 0):
        assert one.input_ids[one.answer_start :] == [wanted] * length


def test_the_first_token_is_drawn_from_the_models_own_distribution(small):
    model, tokenizer = small
    rows = asked(tokenizer) * 4000
    with torch.no_grad():
        logits = model(torch.tensor([rows[0].input_ids[: rows[0].answer_start]])).logits[0, -1]
    expected = torch.softmax(logits.float(), -1)
    drawn = own(model, tokenizer, most=1)(rows, 0)
    counts = torch.bincount(torch.tensor([one.input_ids[-1] for one in drawn]), minlength=len(expected)) / len(rows)
    # five standard errors of a share
    assert ((counts - expected).abs() <= 5 * (expected * (1 - expected) / len(rows)).sqrt() + 1e-9).all()


def test_rows_of_other_lengths_do_not_disturb_each_other(small):
    model, tokenizer = small
    rows = asked(tokenizer, 3)
    frozen = LogitAdjustment(len(tokenizer), "scalar", "exp", 1e5)
    frozen.start_at_(1e-4)  # greedy, so that draws of other rows do not matter
    together = own(model, tokenizer, frozen)(rows, 0)
    for row, found in zip(rows, together, strict=True):
        (alone,) = own(model, tokenizer, frozen)([row], 0)
        assert alone.input_ids == found.input_ids
