import dataclasses
import json
import math

import pytest
import torch
from peft import LoraConfig, get_peft_model

import tiny
from calmtune.bilevel.adjustment import LogitAdjustment
from calmtune.data.prompts import PromptStyle, Renderer
from calmtune.data.rows import MultipleChoice
from calmtune.modeling.reading import adjust_options, eval_mode, option_scores
from calmtune.predictions import load_predictions
from calmtune.scoring.batches import plan_batches
from calmtune.scoring.options import score_items
from calmtune.scoring.tries import trie_length

VOCAB = 64
WORDS = ("blue", "green", "red", "deep")


def make_rows(count=9):
    """Rows of different lengths with two to five options of one to three words."""
    rows = []
    for i in range(count):
        options = tuple(" ".join(WORDS[(i + k + j) % 4] for j in range(1 + (k + i) % 3)) for k in range(2 + i % 4))
        options = tuple(f"{text} {chr(65 + k)}" for k, text in enumerate(options))
        rows.append(MultipleChoice(f"q{i}", "what " + "is the sky " * (i % 5 + 1), options, i % 2, "toy"))
    return rows


ROWS = make_rows()


def renderer(scoring="text", **tokenizer):
    return Renderer(tiny.word_tokenizer(**tokenizer), PromptStyle(scoring))


def assert_same(one, other, tolerance=1e-5):
    assert one.ids == other.ids
    for a, b in zip(one, other, strict=True):
        assert a.scores == pytest.approx(b.scores, abs=tolerance)
        assert a.option_mass == pytest.approx(b.option_mass, abs=tolerance)


class NextToken(torch.nn.Module):
    """A causal language model that always says the same next-token logits, whatever it reads."""

    def __init__(self, logits):
        super().__init__()
        self.inner = tiny.tiny_gpt2(vocab=len(logits), layers=1)
        with torch.no_grad():
            self.inner.transformer.ln_f.weight.zero_()
            self.inner.transformer.ln_f.bias.zero_()
            self.inner.transformer.ln_f.bias[0] = 1.0
            self.inner.lm_head.weight = torch.nn.Parameter(torch.zeros_like(self.inner.lm_head.weight))
            self.inner.lm_head.weight[:, 0] = logits


# ---- closed forms


def next_token_model(tokenizer, scores):
    """A model with logits ``scores`` on some tokens and practically no probability on the others."""
    logits = torch.full((len(tokenizer),), -30.0)
    for token, value in scores.items():
        logits[tokenizer.convert_tokens_to_ids(token)] = value
    return NextToken(logits).inner


def test_letters_with_their_space_by_hand_and_a_warning_for_low_mass():
    rendered = renderer("letter", words=("The", "A", "B", "Answer", "Question", "what"))
    model = next_token_model(rendered.tokenizer, {" A": 3, " B": 2, "A": 0, "B": 2, "The": 4})
    row = MultipleChoice("q", "what", ("what", "The"), 0, "toy")
    with pytest.warns(UserWarning, match=r"letters hold 0\.304 .*scoring 'text'"):
        said = score_items(model, [row], rendered)
    assert said[0].scores == pytest.approx((3.0, 2.0), abs=1e-6)
    assert said.confidence_and_correct()[0][0] == pytest.approx(0.731059, abs=1e-6)
    assert said[0].option_mass == pytest.approx(0.303715, abs=1e-6)
    assert bool(said.confidence_and_correct()[1][0])


def test_no_warning_for_high_mass_or_for_texts(recwarn):
    rendered = renderer("letter")
    model = next_token_model(rendered.tokenizer, {" A": 3, " B": 2})
    row = MultipleChoice("q", "what", ("blue", "red"), 0, "toy")
    assert score_items(model, [row], rendered)[0].option_mass == pytest.approx(1.0, abs=1e-6)
    assert score_items(model, [row], renderer("text"))[0].option_mass < 0.5
    assert not [w for w in recwarn if issubclass(w.category, UserWarning) and "letters hold" in str(w.message)]


def test_options_of_two_tokens_are_summed_and_normalised_by_name():
    rendered = renderer("text")
    model = next_token_model(
        rendered.tokenizer, {" blue": math.log(0.5), " red": math.log(0.3), " deep": math.log(0.2)}
    )
    row = MultipleChoice("q", "what", ("red", "deep blue"), 0, "toy")
    red, deep_blue = math.log(0.3), math.log(0.2) + math.log(0.5)
    for normalisation, expected in (
        ("sum", (red, deep_blue)),
        ("token", (red, deep_blue / 2)),
        ("byte", (red / 3, deep_blue / 9)),
    ):
        said = score_items(model, [row], rendered, normalisation=normalisation)
        assert said[0].scores == pytest.approx(expected, abs=1e-5)
        assert said[0].tokens == (1, 2)
        assert said.meta["normalisation"] == normalisation


def test_half_precision_models_give_float32_scores_and_a_float32_softmax():
    rendered = renderer("letter")
    values = {" A": 17.28, " B": 17.31, " C": 17.25, " D": 17.22}
    row = MultipleChoice("q", "what", ("blue", "red", "green", "deep"), 1, "toy")
    full = score_items(next_token_model(rendered.tokenizer, values), [row], rendered)
    assert full.confidence_and_correct()[0][0] == pytest.approx(0.2614, abs=1e-4)
    assert full.choices()[0] == 1
    half = score_items(next_token_model(rendered.tokenizer, values).to(torch.bfloat16), [row], rendered)
    assert half[0].scores == (17.25,) * 4
    assert half.ties() == 1
    # .9994 in float32; a softmax in bfloat16 says 1.0
    sure = next_token_model(rendered.tokenizer, {" A": 7.5, " B": 0.0}).to(torch.bfloat16)
    said = score_items(sure, [dataclasses.replace(row, choices=("blue", "red"), label=0)], rendered)
    assert said[0].option_mass == pytest.approx(1.0, abs=1e-6)
    assert said.confidence_and_correct()[0][0] == pytest.approx(1 / (1 + math.exp(-7.5)), abs=1e-6)
    text = score_items(sure, [MultipleChoice("t", "what", ("A", "B"), 0, "toy")], renderer("text"))
    assert text[0].scores[0] == pytest.approx(math.log(1 / (1 + math.exp(-7.5))), rel=1e-3)


def test_the_same_text_twice_ties_exactly_even_where_its_branches_round_differently(monkeypatch):
    def unequal(*args, **options):
        read = option_scores(*args, **options)
        return dataclasses.replace(read, scores=read.scores + 1e-5 * torch.arange(read.scores.shape[1]))

    monkeypatch.setattr("calmtune.scoring.options.option_scores", unequal)
    row = MultipleChoice("q", "what is the sky?", ("deep blue", "red green deep", "deep blue"), 0, "toy")
    for seed in range(5):
        scores = score_items(tiny.tiny_llama(VOCAB, seed), [row], renderer())[0].scores
        assert scores[0] == scores[2] != scores[1]


# ---- one model, one answer


@pytest.mark.parametrize("make", [tiny.tiny_llama, tiny.tiny_gpt2])
@pytest.mark.parametrize("scoring", ["letter", "text"])
@pytest.mark.filterwarnings("ignore:the option letters hold")
def test_scores_do_not_depend_on_batch_size_or_order(make, scoring):
    model = make(VOCAB)
    alone = score_items(model, ROWS, renderer(scoring), batch_tokens=1)
    assert alone.ids == tuple(row.id for row in ROWS)
    assert_same(score_items(model, ROWS, renderer(scoring), batch_tokens=10**6), alone)
    assert_same(score_items(model, ROWS, renderer(scoring), batch_tokens=120), alone)
    backwards = score_items(model, ROWS[::-1], renderer(scoring))
    assert_same(dataclasses.replace(backwards, items=backwards.items[::-1]), alone)


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_tokenizers_padding_side_does_not_matter(side):
    model, rendered = tiny.tiny_gpt2(VOCAB), renderer()
    expected = score_items(model, ROWS, rendered)
    rendered.tokenizer.padding_side = side
    assert repr(score_items(model, ROWS, rendered)) == repr(expected)


@pytest.mark.parametrize("make", [tiny.tiny_llama, tiny.tiny_gpt2])
def test_text_scores_are_the_models_own_sequence_log_probabilities(make):
    model, rendered = make(VOCAB), renderer(adds_bos=True)
    said = score_items(model, ROWS, rendered)
    for row, one in zip(ROWS, said, strict=True):
        for text, score in zip(row.choices, one.scores, strict=True):
            prompt = rendered.tokenizer(f"Question: {row.question.strip()}\nAnswer:")["input_ids"]
            ids = torch.tensor([rendered.tokenizer(f"Question: {row.question.strip()}\nAnswer: {text}")["input_ids"]])
            with torch.no_grad():
                log_p = model(input_ids=ids).logits[0].log_softmax(-1)
            expected = log_p[range(len(prompt) - 1, ids.shape[1] - 1), ids[0, len(prompt) :]].sum().item()
            assert score == pytest.approx(expected, abs=1e-5)


def test_batches_keep_within_the_budget_and_never_mix_scorings():
    items = [renderer("text").multiple_choice(row) for row in ROWS] + [
        renderer("letter").multiple_choice(r) for r in ROWS
    ]
    for budget in (1, 60, 200, 10**6):
        batches = plan_batches(items, budget)
        assert sorted(index for batch in batches for index in batch) == list(range(len(items)))
        for batch in batches:
            assert len({items[index].scoring for index in batch}) == 1
            size = len(batch) * max(trie_length(items[index]) for index in batch)
            assert size <= budget or len(batch) == 1
    assert len(plan_batches(items, 10**6)) == 2
    with pytest.raises(ValueError, match="batch_tokens"):
        plan_batches(items, 0)


# ---- eval mode


def with_dropout():
    torch.manual_seed(0)
    model = get_peft_model(
        tiny.tiny_llama(VOCAB),
        LoraConfig(
            r=4, lora_dropout=0.5, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM"
        ),
    )
    assert any(module.training for module in model.modules())
    return model


def test_scores_are_without_dropout_and_every_module_gets_its_mode_back():
    model = with_dropout()
    model.base_model.model.model.layers[0].eval()
    before = [module.training for module in model.modules()]
    first, second = score_items(model, ROWS[:2], renderer()), score_items(model, ROWS[:2], renderer())
    assert repr(first) == repr(second)
    assert [module.training for module in model.modules()] == before
    assert len(set(before)) == 2
    with model.disable_adapter():
        base = score_items(model, ROWS[:2], renderer())
    assert base[0].scores != pytest.approx(first[0].scores, abs=1e-3)


def test_the_mode_comes_back_after_an_exception():
    model = with_dropout()
    with eval_mode(model):
        assert not any(module.training for module in model.modules())
    assert model.training

    def stop(done, total):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        score_items(model, ROWS, renderer(), progress=stop)
    assert model.training


# ---- adjustment


def alpha(classes, kind="vector", seed=0):
    torch.manual_seed(seed)
    adjustment = LogitAdjustment(classes, kind=kind)
    with torch.no_grad():
        adjustment.temperature_parameter.uniform_(-0.5, 0.5)
        adjustment.logit_shift.uniform_(-1, 1)
    return adjustment


@pytest.mark.parametrize("kind", ["vector", "scalar"])
def test_option_level_adjustment_is_z_over_tau_plus_l_of_the_option_scores(kind):
    adjustment = alpha(6, kind)
    said = score_items(tiny.tiny_llama(VOCAB), ROWS, renderer(), adjustment=adjustment)
    tau, shift = adjustment.log_temperature.exp().expand(6).tolist(), adjustment.logit_shift.expand(6).tolist()
    for one in said:
        expected = [z / tau[k] + shift[k] for k, z in enumerate(one.scores)]
        assert one.adjusted == pytest.approx(expected, abs=1e-5)
    assert said.meta["level"] == "options"
    assert said.meta["adjustment"]["kind"] == kind


@pytest.mark.parametrize("scoring", ["letter", "text"])
@pytest.mark.filterwarnings("ignore:the option letters hold")
def test_vocabulary_level_adjustment_is_that_of_a_model_with_alpha_folded_into_its_head(scoring):
    rendered = renderer(scoring)
    model, adjustment = tiny.tiny_llama(VOCAB, tie_word_embeddings=False), alpha(VOCAB)
    said = score_items(model, ROWS, rendered, adjustment=adjustment, level="vocabulary")
    raw = score_items(model, ROWS, rendered)
    assert [one.scores for one in said] == [one.scores for one in raw]
    weight, bias = adjustment.fold(model.lm_head.weight)
    model.lm_head = torch.nn.Linear(*weight.shape[::-1])
    model.lm_head.weight, model.lm_head.bias = torch.nn.Parameter(weight), torch.nn.Parameter(bias)
    folded = score_items(model, ROWS, rendered)
    for one, other in zip(said, folded, strict=True):
        assert one.adjusted == pytest.approx(other.scores, abs=1e-4)
        assert one.adjusted != pytest.approx(one.scores, abs=1e-3)


def test_without_alpha_there_are_no_adjusted_scores():
    for adjustment in (None, LogitAdjustment(4, kind="none")):
        said = score_items(tiny.tiny_llama(VOCAB), ROWS[:2], renderer(), adjustment=adjustment)
        assert not said.has_adjusted
        assert said.meta["adjustment"] is None


def test_narrow_items_use_the_first_classes_of_a_wide_alpha():
    adjustment = alpha(5)
    scores = torch.tensor([[1.0, 2.0, -torch.inf], [0.5, 0.0, -1.0]])
    wide = adjustment(torch.nn.functional.pad(scores, (0, 2)))[:, :3]
    torch.testing.assert_close(adjust_options(scores, adjustment), wide, atol=0, rtol=0)
    with pytest.raises(ValueError, match=r"'q3' has 5 options, but the adjustment has classes for 4"):
        score_items(tiny.tiny_llama(VOCAB), ROWS, renderer(), adjustment=alpha(4))


# ---- interruption


def stop_after(count):
    def progress(done, total):
        if done >= count:
            raise InterruptedError

    return progress


@pytest.mark.parametrize("count", [1, 4, 7, 9])
def test_an_interrupted_run_goes_on_and_writes_the_same_file(tmp_path, count):
    model, rendered = tiny.tiny_llama(VOCAB), renderer()
    whole = score_items(model, ROWS, rendered, batch_tokens=40, path=tmp_path / "whole.jsonl")
    part = tmp_path / "part.jsonl"
    with pytest.raises(InterruptedError):
        score_items(model, ROWS, rendered, batch_tokens=40, path=part, progress=stop_after(count))
    kept = load_predictions(part)
    assert count <= len(kept)
    assert (len(kept) < len(ROWS)) == (count < len(ROWS))
    counts = []
    resumed = score_items(
        model, ROWS, rendered, batch_tokens=40, path=part, progress=lambda done, total: counts.append((done, total))
    )
    assert part.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert repr(resumed) == repr(whole) == repr(load_predictions(part))
    assert [len(kept), *(done for done, _ in counts)] == sorted({len(kept), *(done for done, _ in counts)})
    assert counts[-1:] == ([(len(ROWS), len(ROWS))] if count < len(ROWS) else [])


def test_a_batch_cut_in_the_middle_is_completed_with_the_same_numbers(tmp_path):
    model, rendered, path = tiny.tiny_llama(VOCAB), renderer(), tmp_path / "said.jsonl"
    score_items(model, ROWS, rendered, batch_tokens=10**4, path=path)
    whole = path.read_bytes()
    lines = whole.split(b"\n")
    path.write_bytes(b"\n".join(lines[:4]) + b"\n" + lines[4][:20])
    sizes = []
    model.model.register_forward_pre_hook(
        lambda module, args, kwargs: sizes.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    score_items(model, ROWS, rendered, batch_tokens=10**4, path=path)
    assert path.read_bytes() == whole
    # in the batch they would have been in, not in a smaller one that rounds differently
    assert max(sizes) == len(ROWS)


def test_a_finished_file_is_read_without_running_the_model(tmp_path):
    model, rendered, path = tiny.tiny_llama(VOCAB), renderer(), tmp_path / "said.jsonl"
    said = score_items(model, ROWS, rendered, path=path)
    calls = []
    model.register_forward_pre_hook(lambda *args: calls.append(args))
    model.model.register_forward_pre_hook(lambda *args: calls.append(args))
    assert repr(score_items(model, ROWS, rendered, path=path)) == repr(said)
    assert calls == []


@pytest.mark.parametrize("change", ["model", "rows", "normalisation", "template", "adjustment"])
def test_a_file_made_otherwise_is_refused(tmp_path, change):
    path = tmp_path / "said.jsonl"
    score_items(tiny.tiny_llama(VOCAB), ROWS[:3], renderer(), path=path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="made with other settings"):
        score_items(
            tiny.tiny_llama(VOCAB, seed=1 if change == "model" else 0),
            ROWS[:4] if change == "rows" else ROWS[:3],
            renderer(chat_template=tiny.CHAT) if change == "template" else renderer(),
            normalisation="token" if change == "normalisation" else "sum",
            adjustment=alpha(5) if change == "adjustment" else None,
            path=path,
        )
    assert path.read_bytes() == before


# ---- record and errors


def test_the_record_says_what_produced_it():
    said = score_items(tiny.tiny_llama(VOCAB), ROWS[:2], renderer(), about={"name": "toy-model"}, token_entropy=True)
    wanted = {
        "model": "LlamaForCausalLM",
        "name": "toy-model",
        "scoring": "text",
        "scored_as": ["text"],
        "normalisation": "sum",
        "template": "plain",
        "n": 2,
    }
    assert wanted.items() <= said.meta.items()
    assert {"tie_rule", "calmtune", "torch", "transformers", "weights", "items"} <= said.meta.keys()
    assert json.loads(json.dumps(said.meta)) == said.meta
    assert all(0 < one.token_entropy < math.log(VOCAB) for one in said)


def test_unusable_input_is_refused():
    model = tiny.tiny_llama(VOCAB)
    for rows, options, message in (
        ([], {}, "at least one row"),
        ([ROWS[0], ROWS[0]], {}, "'q0' occurs twice"),
        (ROWS, {"max_length": 10}, "'q0' has .* max_length 10"),
        ([dataclasses.replace(ROWS[0], question="sky " * 300)], {}, "'q0' has .* max_length 256"),
        (ROWS, {"normalisation": "chars"}, "normalisation must be one of"),
        (ROWS, {"level": "token"}, "level must be one of"),
    ):
        with pytest.raises(ValueError, match=message):
            score_items(model, rows, renderer(), **options)
