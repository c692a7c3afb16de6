import json
import math
from collections import Counter

import pytest
import torch
from peft import LoraConfig, get_peft_model
from scipy.stats import chi2_contingency, chisquare

import tiny
from calmtune.bilevel.adjustment import LogitAdjustment
from calmtune.data.prompts import PromptStyle, Renderer
from calmtune.data.rows import MultipleChoice, OpenQuestion
from calmtune.samples import load_samples
from calmtune.scoring.sampling import sample_answers
from calmtune.scoring.sampling_choice import Chooser
from calmtune.scoring.sampling_decode import Decoder
from calmtune.scoring.sampling_settings import SamplingSettings
from calmtune.scoring.sampling_text import end_tokens

VOCAB = 64


def renderer(**tokenizer):
    return Renderer(tiny.word_tokenizer(**tokenizer), PromptStyle("text", "plain" if not tokenizer else "auto"))


def make_rows(count):
    """Questions of different lengths."""
    return [
        OpenQuestion(f"q{i}", "what " + "is the sky " * (i % 5 + 1), ("blue", "deep blue"), "toy") for i in range(count)
    ]


def constant_model(tokenizer, probabilities):
    """A model that gives the same next-token probabilities whatever it has read."""
    logits = torch.full((len(tokenizer),), -40.0)
    for token, value in probabilities.items():
        logits[tokenizer.convert_tokens_to_ids(token)] = math.log(value)
    model = tiny.tiny_gpt2(vocab=len(logits), layers=1)
    with torch.no_grad():
        model.transformer.ln_f.weight.zero_()
        model.transformer.ln_f.bias.zero_()
        model.transformer.ln_f.bias[0] = 1.0
        model.lm_head.weight = torch.nn.Parameter(torch.zeros_like(model.lm_head.weight))
        model.lm_head.weight[:, 0] = logits
    return model


ROWS = make_rows(9)
PROBABILITIES = {" blue": 0.4, " red": 0.3, "</s>": 0.2, "\n": 0.1}


def assert_same(one, other, tolerance=1e-5):
    assert one.ids == other.ids
    for a, b in zip(one, other, strict=True):
        assert a.texts == b.texts
        assert [s.finish for s in a.samples] == [s.finish for s in b.samples]
        assert a.log_probabilities() == pytest.approx(b.log_probabilities(), abs=tolerance)


# ---- closed forms


def test_every_log_probability_by_hand_and_answers_end_where_they_should():
    rendered = renderer()
    model = constant_model(rendered.tokenizer, PROBABILITIES)
    found = sample_answers(model, ROWS, rendered, settings=SamplingSettings(n=20, max_new_tokens=6))
    finishes = Counter()
    for item in found:
        for said in item.samples:
            words = said.text.split()
            ending = {"eos": math.log(0.2), "stop": math.log(0.1), "length": 0.0}[said.finish]
            expected = words.count("blue") * math.log(0.4) + words.count("red") * math.log(0.3) + ending
            assert said.log_probability == pytest.approx(expected, abs=1e-4)
            assert said.tokens == len(words) + (said.finish != "length") == len(said.token_log_probabilities)
            assert set(words) <= {"blue", "red"}
            assert said.finish != "length" or said.tokens == 6
            assert said.adjusted_log_probability is None
            finishes[said.finish] += 1
    # an answer goes on with .7 at every token
    expected = [180 * (1 - 0.7**6) * 2 / 3, 180 * (1 - 0.7**6) / 3, 180 * 0.7**6]
    assert chisquare([finishes["eos"], finishes["stop"], finishes["length"]], expected).pvalue > 1e-3


def test_without_a_stop_text_the_answer_goes_on_over_the_line():
    rendered = renderer()
    model = constant_model(rendered.tokenizer, PROBABILITIES)
    found = sample_answers(model, ROWS, rendered, settings=SamplingSettings(n=20, stop=()))
    assert {s.finish for item in found for s in item.samples} == {"eos"}
    assert any("\n" in text for item in found for text in item.texts)


def test_the_adjusted_distribution_is_sampled_and_both_log_probabilities_are_kept():
    rendered = renderer()
    model = constant_model(rendered.tokenizer, {" blue": 0.5, "</s>": 0.5})
    alpha = LogitAdjustment(len(rendered.tokenizer))
    alpha.logit_shift.data[rendered.tokenizer.eos_token_id] = math.log(3.0)  # the end: 3 / 4 instead of 1 / 2
    settings = SamplingSettings(n=100, max_new_tokens=30)
    found = sample_answers(model, ROWS, rendered, settings=settings, adjustment=alpha)
    tokens = [said.tokens for item in found for said in item.samples]
    counts = [tokens.count(1), tokens.count(2), sum(t > 2 for t in tokens)]
    assert chisquare(counts, [len(tokens) * p for p in (3 / 4, 3 / 16, 1 / 16)]).pvalue > 1e-3
    for said in (said for item in found for said in item.samples):
        assert said.log_probability == pytest.approx(said.tokens * math.log(0.5), abs=1e-4)
        expected = (said.tokens - 1) * math.log(0.25) + math.log(0.75)
        assert said.adjusted_log_probability == pytest.approx(expected, abs=1e-4)
    assert found.meta["adjustment"]["kind"] == "vector"


def test_the_samples_of_an_item_are_independent():
    rendered = renderer()
    model = constant_model(rendered.tokenizer, {" blue": 0.5, " red": 0.3, " green": 0.2})
    rows = [OpenQuestion(f"q{i}", "sky", ("x",), "toy") for i in range(800)]
    settings = SamplingSettings(n=3, max_new_tokens=1)
    found = sample_answers(model, rows, rendered, settings=settings, batch_rows=600)
    for a, b in ((0, 1), (1, 2)):
        pairs = Counter((item.texts[a], item.texts[b]) for item in found)
        table = [[pairs[x, y] for y in ("blue", "red", "green")] for x in ("blue", "red", "green")]
        assert chi2_contingency(table).pvalue > 1e-3
        assert chisquare([sum(row) for row in table], [400, 240, 160]).pvalue > 1e-3


# ---- reference: a plain forward pass


@pytest.mark.parametrize("make", [tiny.tiny_llama, tiny.tiny_gpt2])
def test_pairs_of_tokens_come_as_often_as_a_plain_forward_pass_says(make):
    model, prompt = make(vocab=8), [4, 5, 6, 7, 4]
    decoder = Decoder(model, Chooser(SamplingSettings(), None), lambda t: "length" if len(t) == 2 else None, 0, 1000)
    with torch.no_grad():
        draws = decoder.draw([prompt], [list(range(4000))])[0]
        first = model(torch.tensor([prompt])).logits[0, -1].double().softmax(-1)
        then = model(torch.tensor([[*prompt, token] for token in range(8)])).logits[:, -1].double().softmax(-1)
    expected = (first[:, None] * then).flatten() * 4000
    counts = torch.bincount(torch.tensor([d.tokens[0] * 8 + d.tokens[1] for d in draws]), minlength=64).double()
    rare = expected < 5  # too rare for the test: counted together
    counts = [*counts[~rare].tolist(), counts[rare].sum().item()]
    assert chisquare(counts, [*expected[~rare].tolist(), expected[rare].sum().item()]).pvalue > 1e-3


@pytest.mark.parametrize("make", [tiny.tiny_llama, tiny.tiny_gpt2])
@pytest.mark.parametrize("batch_rows", [4, 64])
def test_log_probabilities_equal_those_of_a_plain_forward_pass(make, batch_rows):
    model = make(vocab=VOCAB)
    prompts = [[7, 8, 9], list(range(10, 30)), [31, 5]]
    alpha = LogitAdjustment(VOCAB)
    generator = torch.Generator().manual_seed(0)
    alpha.logit_shift.data = torch.randn(VOCAB, generator=generator)
    alpha.temperature_parameter.data = 0.3 * torch.randn(VOCAB, generator=generator)

    def finish(tokens):
        return "eos" if tokens[-1] < 12 else "length" if len(tokens) == 9 else None

    decoder = Decoder(model, Chooser(SamplingSettings(temperature=1.3), alpha), finish, 0, batch_rows)
    with torch.no_grad():
        drawn = decoder.draw(prompts, [[10 * i + j for j in range(6)] for i in range(3)])
    lengths = set()
    for prompt, draws in zip(prompts, drawn, strict=True):
        for own in draws:
            lengths.add(len(own.tokens))
            with torch.no_grad():
                z = model(torch.tensor([prompt + own.tokens])).logits[0, len(prompt) - 1 : -1].double()
            index = torch.tensor(own.tokens)[:, None]
            assert own.raw == pytest.approx(z.log_softmax(-1).gather(1, index)[:, 0].tolist(), abs=1e-4)
            changed = alpha(z).log_softmax(-1).gather(1, index)[:, 0]
            assert own.adjusted == pytest.approx(changed.tolist(), abs=1e-4)
    assert len(lengths) > 3  # rows ended at different steps


# ---- invariance


@pytest.mark.parametrize("make", [tiny.tiny_llama, tiny.tiny_gpt2])
def test_samples_do_not_depend_on_the_batch(make):
    rendered, model = renderer(), make(vocab=len(tiny.word_tokenizer()))
    settings = SamplingSettings(n=4, max_new_tokens=12)
    whole = sample_answers(model, ROWS, rendered, settings=settings, batch_rows=64)
    assert len({text for item in whole for text in item.texts}) > 20
    for batch_rows in (1, 3, 4, 8):  # 1 and 3: fewer than the samples of one item
        assert_same(whole, sample_answers(model, ROWS, rendered, settings=settings, batch_rows=batch_rows))
    assert_same(sample_answers(model, ROWS[4:5], rendered, settings=settings), whole.__class__(whole.items[4:5]))
    reordered = sample_answers(model, ROWS[::-1], rendered, settings=settings)
    assert_same(whole, whole.__class__(reordered.items[::-1]))


def test_neither_the_side_of_padding_nor_training_mode_matters():
    rendered, model = renderer(), tiny.tiny_gpt2(vocab=len(tiny.word_tokenizer()))
    settings = SamplingSettings(n=3)
    rendered.tokenizer.padding_side = "left"
    left = sample_answers(model, ROWS, rendered, settings=settings)
    rendered.tokenizer.padding_side = "right"
    model.train()
    right = sample_answers(model, ROWS, rendered, settings=settings)
    assert model.training
    assert left == right


def test_fewer_samples_are_the_first_of_more_and_another_seed_gives_others():
    rendered, model = renderer(), tiny.tiny_llama(vocab=len(tiny.word_tokenizer()))
    many = sample_answers(model, ROWS, rendered, settings=SamplingSettings(n=8))
    few = sample_answers(model, ROWS, rendered, settings=SamplingSettings(n=3))
    assert [item.texts for item in few] == [item.texts[:3] for item in many]
    other = sample_answers(model, ROWS, rendered, settings=SamplingSettings(n=8, seed=1))
    assert all(a.texts != b.texts for a, b in zip(many, other, strict=True))


def test_an_adapter_is_sampled_with():
    rendered, model = renderer(), tiny.tiny_llama(vocab=len(tiny.word_tokenizer()))
    base = sample_answers(model, ROWS, rendered, settings=SamplingSettings(n=2))
    tuned = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))
    found = sample_answers(tuned, ROWS, rendered, settings=SamplingSettings(n=2))
    assert found.meta["weights"] != base.meta["weights"]
    assert found.items != base.items


# ---- the work that is done


def test_a_prompt_goes_through_the_model_once_and_finished_rows_leave_the_batch():
    rendered = renderer()
    model = constant_model(rendered.tokenizer, {" blue": 0.5, "</s>": 0.5})
    shapes = []
    model.transformer.wte.register_forward_pre_hook(lambda module, args: shapes.append(tuple(args[0].shape)))
    sample_answers(model, ROWS[:4], rendered, settings=SamplingSettings(n=16, max_new_tokens=30))
    assert shapes[0] == (4, max(len(rendered.prompt(row).prompt_ids) for row in ROWS[:4]))
    assert all(width == 1 for _, width in shapes[1:])
    rows = [count for count, _ in shapes[1:]]
    assert 16 < rows[0] < 48  # about half of 64 ended at once
    assert rows[-1] <= 4
    assert rows == sorted(rows, reverse=True)


# ---- what ends an answer, and what is not taken over


def test_generation_settings_of_the_model_are_named_and_not_used():
    rendered, model = renderer(), tiny.tiny_llama(vocab=len(tiny.word_tokenizer()))
    plain = sample_answers(model, ROWS, rendered)
    assert plain.meta["generation_config_not_used"] == {}
    model.generation_config.update(temperature=0.1, top_k=1, repetition_penalty=2.0, do_sample=True, max_new_tokens=1)
    found = sample_answers(model, ROWS, rendered)
    assert found.items == plain.items
    assert found.meta["generation_config_not_used"] == {
        "do_sample": True,
        "temperature": 0.1,
        "top_k": 1,
        "repetition_penalty": 2.0,
        "max_new_tokens": 1,
    }
    assert found.meta["sampling"] == {
        "n": 10, "max_new_tokens": 32, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "stop": ["\n"], "seed": 0,
    }  # fmt: skip


def test_ends_are_the_tokenizers_the_models_and_the_templates():
    rendered = renderer(chat_template=tiny.CHAT)
    model = tiny.tiny_llama(vocab=len(rendered.tokenizer))
    model.generation_config.eos_token_id = [3, 40]
    turn_end = rendered.tokenizer.convert_tokens_to_ids("<|end|>")
    assert end_tokens(model, rendered) == sorted({3, 40, turn_end})
    assert end_tokens(tiny.tiny_llama(vocab=len(rendered.tokenizer)), renderer()) == [3]
    said = constant_model(rendered.tokenizer, {" blue": 0.5, "<|end|>": 0.5})
    found = sample_answers(said, ROWS, rendered)
    assert {s.finish for item in found for s in item.samples} == {"eos"}
    assert {text.replace("blue", "").strip() for item in found for text in item.texts} == {""}


# ---- the record


def test_an_interrupted_run_goes_on_and_gives_the_same_file(tmp_path):
    rendered, model = renderer(), tiny.tiny_llama(vocab=len(tiny.word_tokenizer()))
    settings = SamplingSettings(n=2)
    whole = tmp_path / "whole.jsonl"
    expected = sample_answers(model, ROWS, rendered, settings=settings, path=whole, batch_rows=6)
    path, seen = tmp_path / "cut.jsonl", []

    def stop_at(count):
        def progress(done, total):
            seen.append((done, total))
            if done >= count:
                raise KeyboardInterrupt

        return progress

    for count in (3, 6):
        with pytest.raises(KeyboardInterrupt):
            sample_answers(model, ROWS, rendered, settings=settings, path=path, batch_rows=6, progress=stop_at(count))
    # the crash cuts the last line short, and takes a line of a batch that was done
    path.write_bytes(path.read_bytes()[:-9])
    assert seen == [(3, 9), (6, 9)]
    found = sample_answers(model, ROWS, rendered, settings=settings, path=path, batch_rows=6)
    assert found == expected == load_samples(path)
    assert path.read_bytes() == whole.read_bytes()
    stamp = path.stat().st_mtime_ns
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Decoder, "draw", None)
        assert sample_answers(model, ROWS, rendered, settings=settings, path=path) == expected
    assert path.stat().st_mtime_ns >= stamp


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"settings": SamplingSettings(n=2, temperature=0.7)}, "sampling"),
        ({"adjustment": LogitAdjustment(37)}, "adjustment"),
        ({"about": {"revision": "b"}}, "revision"),
        ({"rows": ROWS[:8]}, "items"),
    ],
)
def test_a_file_of_other_settings_is_refused_by_name(tmp_path, change, name):
    rendered, model = renderer(), tiny.tiny_llama(vocab=len(tiny.word_tokenizer()))
    usual = {"rows": ROWS, "settings": SamplingSettings(n=2), "about": {"revision": "a"}, "path": tmp_path / "a.jsonl"}

    def sample(rows, **options):
        return sample_answers(model, rows, rendered, **options)

    sample(**usual)
    with pytest.raises(ValueError, match=f"made with other settings .*{name}: file has"):
        sample(**{**usual, **change})


def test_the_settings_are_json(tmp_path):
    rendered, model = renderer(), tiny.tiny_llama(vocab=len(tiny.word_tokenizer()))
    found = sample_answers(model, ROWS[:1], rendered)
    assert json.loads(json.dumps(found.meta)) == found.meta


def test_out_of_memory_takes_fewer_at_a_time_and_gives_the_same(monkeypatch):
    rendered, model = renderer(), tiny.tiny_llama(vocab=len(tiny.word_tokenizer()))
    settings = SamplingSettings(n=4, max_new_tokens=8)
    expected = sample_answers(model, ROWS, rendered, settings=settings)
    decode, seen = Decoder._decode, []

    def small_memory(self, state, noise):
        seen.append(len(state.mask))
        if len(state.mask) > 3:
            raise torch.OutOfMemoryError
        return decode(self, state, noise)

    monkeypatch.setattr(Decoder, "_decode", small_memory)
    assert_same(sample_answers(model, ROWS, rendered, settings=settings), expected)
    assert seen[:5] == [36, 20, 12, 8, 4]
    monkeypatch.setattr(Decoder, "_decode", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError))
    with pytest.raises(torch.OutOfMemoryError):
        sample_answers(model, ROWS, rendered, settings=settings)


# ---- what is refused


def test_what_cannot_be_sampled_is_refused_before_the_model_runs():
    rendered, model = renderer(), tiny.tiny_llama(vocab=len(tiny.word_tokenizer()))
    model.forward = None
    with pytest.raises(ValueError, match="expected at least one question"):
        sample_answers(model, [], rendered)
    with pytest.raises(ValueError, match="item 'q0' occurs twice"):
        sample_answers(model, [*ROWS, ROWS[0]], rendered)
    with pytest.raises(ValueError, match="row 'm' is no open question"):
        sample_answers(model, [MultipleChoice("m", "what", ("blue", "red"), 0, "toy")], rendered)
    with pytest.raises(ValueError, match="row 'q3': a prompt of .* more than 40, the most"):
        sample_answers(model, ROWS, rendered, max_length=40, settings=SamplingSettings(max_new_tokens=24))
    with pytest.raises(ValueError, match="more than 256, the most the model reads"):
        sample_answers(model, ROWS, rendered, settings=SamplingSettings(max_new_tokens=250))
    with pytest.raises(ValueError, match=r"level: options.*calmtune evaluate"):
        sample_answers(model, ROWS, rendered, adjustment=LogitAdjustment(4), level="options")
    with pytest.raises(ValueError, match="batch_rows must be >= 1"):
        sample_answers(model, ROWS, rendered, batch_rows=0)


def test_weights_that_are_no_numbers_are_told_with_the_rows():
    rendered, model = renderer(), tiny.tiny_llama(vocab=len(tiny.word_tokenizer()))
    model.model.norm.weight.data[0] = math.nan
    with pytest.raises(ValueError, match=r"one of the rows .*'q4'.*logits hold NaN"):
        sample_answers(model, ROWS, rendered)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n": 0}, "n must be a whole number, 1 or more; got 0"),
        ({"temperature": 0.0}, "temperature must be > 0, got 0.0; .* top_k = 1"),
        ({"temperature": math.nan}, "temperature must be > 0"),
        ({"top_p": 0.0}, "top_p must be above 0"),
        ({"top_k": -1}, "top_k must be a whole number, 0 or more"),
        ({"max_new_tokens": 2.5}, "max_new_tokens must be a whole number"),
        ({"stop": "\n"}, "stop must be a tuple"),
        ({"stop": ("",)}, "stop holds an empty text"),
    ],
)
def test_settings_that_cannot_be_meant_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        SamplingSettings(**settings)
