"""A samples file: every answer comes back as it was said, and what a crash left is gone on with."""

import json
import math

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as profile
from hypothesis import strategies as st

from calmtune.samples import (
    FORMAT,
    AnswerSamples,
    Sample,
    SampledAnswers,
    append_samples,
    load_samples,
    open_samples,
    save_samples,
)

ODD = "a\u2028b\u2029c\x85d\x1ce\x0bf\r\ng\th\x00 🚁 e\u0301 \ufeff \ud83d"
ITEM = AnswerSamples(
    "q/1",
    "toy",
    f"Who? {ODD}",
    ("Ann", ODD),
    (
        Sample("Ann", -0.1234567890123456789, 2, "eos", -0.5, (-0.1, -0.0234567890123456789)),
        Sample(ODD, -3.0, 9, "stop"),
        Sample("", None, 0, "length"),
    ),
)
META = {"model": "toy", "sampling": {"n": 3, "stop": ["\n", "\u2028"]}}


def items(count):
    return [
        AnswerSamples(f"q{i}\u2028", "toy", "Who?", ("A",), (Sample(f"é\u2028{i}", -0.5, 1, "eos"),))
        for i in range(count)
    ]


def test_what_was_said_comes_back_exactly(tmp_path):
    path = tmp_path / "said.jsonl"
    save_samples(path, SampledAnswers((ITEM,), META))
    assert load_samples(path) == SampledAnswers((ITEM,), META)
    open_samples(path, META)
    assert load_samples(path).items == (ITEM,)


def test_readers_that_cut_at_other_ends_of_lines_see_the_same_lines(tmp_path):
    path = tmp_path / "said.jsonl"
    save_samples(path, SampledAnswers((ITEM, *items(2)), META))
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) == len(text.split("\n")) - 1 == 4
    assert "🚁" in text  # what is harmless stays readable


def test_lines_that_others_wrote_without_escapes_are_whole(tmp_path):
    path = tmp_path / "said.jsonl"
    save_samples(path, SampledAnswers(tuple(items(2)), META))
    text = path.read_text(encoding="utf-8").replace("\\u2028", "\u2028")
    assert "\u2028" in text
    path.write_text(text, encoding="utf-8")
    assert load_samples(path).items == tuple(items(2))


def test_a_file_cut_at_any_byte_goes_on(tmp_path):
    whole, path = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    all_items = items(4)
    save_samples(whole, SampledAnswers(tuple(all_items), META))
    content = whole.read_bytes()
    for end in range(len(content)):
        path.write_bytes(content[:end])
        done = open_samples(path, META)
        assert list(done) == all_items[: max(0, content[:end].count(b"\n") - 1)]
        append_samples(path, all_items[len(done) :])
        assert path.read_bytes() == content


def test_other_settings_are_refused_and_named(tmp_path):
    path = tmp_path / "said.jsonl"
    save_samples(path, SampledAnswers((ITEM,), META))
    content = path.read_bytes()
    with pytest.raises(
        ValueError, match=r"said.jsonl was made with other settings \(sampling: file has .*'n': 3.*asked"
    ):
        open_samples(path, {**META, "sampling": {"n": 4, "stop": ["\n", "\u2028"]}})
    with pytest.raises(ValueError, match="revision: file has None, asked for 'b'"):
        open_samples(path, {**META, "revision": "b"})
    assert path.read_bytes() == content


def test_an_item_twice_is_told(tmp_path):
    path = tmp_path / "said.jsonl"
    save_samples(path, SampledAnswers((ITEM,), META))
    append_samples(path, [ITEM])
    for read in (load_samples, lambda path: open_samples(path, META)):
        with pytest.raises(ValueError, match="said.jsonl: item 'q/1' occurs twice; .* one set of samples"):
            read(path)
    with pytest.raises(ValueError, match="item 'q/1' occurs twice"):
        SampledAnswers((ITEM, ITEM))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"finish": "done"}, "finish is 'done'; expected one of eos, stop, length"),
        ({"tokens": -1}, "tokens is -1"),
        ({"log_probability": math.nan}, "log_probability is nan; expected a finite number"),
        ({"log_probability": 0.5}, "log_probability is 0.5; .* 0 at most"),
        ({"adjusted_log_probability": -math.inf}, "adjusted_log_probability is -inf"),
        ({"token_log_probabilities": (-1.0,)}, "are 1 with sum -1; expected 2 .tokens. with sum -1.0"),
        ({"token_log_probabilities": (-1.0, -1.0)}, "are 2 with sum -2; expected 2"),
        ({"token_log_probabilities": (-0.5, -0.5), "log_probability": None}, "with sum None"),
    ],
)
def test_a_sample_that_cannot_be_is_named(fields, message):
    with pytest.raises(ValueError, match=message):
        Sample(**{"text": "a", "log_probability": -1.0, "tokens": 2, "finish": "eos", **fields})


def test_what_is_not_there_is_asked_for_in_vain():
    assert ITEM.texts == ("Ann", ODD, "")
    with pytest.raises(ValueError, match="item 'q/1': a sample has no log-probability; the endpoint gave none"):
        ITEM.log_probabilities()
    with pytest.raises(ValueError, match="no adjusted log-probability; it was sampled without alpha"):
        ITEM.log_probabilities(adjusted=True)
    found = SampledAnswers((ITEM, *items(2)))
    assert not found.has_log_probabilities
    assert SampledAnswers(tuple(items(2))).has_log_probabilities
    assert found.domains == ("toy",)
    assert found.of_domain("other").ids == ()
    assert found[1:][0].log_probabilities() == (-0.5,)
    with pytest.raises(ValueError, match="item 'x': expected at least one sample"):
        AnswerSamples("x", "toy", "Who?", ("A",), ())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)


@profile(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["id", "domain", "question", "answers", "samples", "text", "log_probability", "tokens", "finish",
                        "adjusted_log_probability", "token_log_probabilities"]), VALUES)  # fmt: skip
def test_any_value_in_the_place_of_a_field_is_read_or_told(tmp_path, name, value):
    path = tmp_path / "said.jsonl"
    save_samples(path, SampledAnswers((ITEM,), {}))
    header, line = path.read_text(encoding="utf-8").split("\n")[:2]
    record = json.loads(line)
    (record if name in record else record["samples"][0])[name] = value
    path.write_text(f"{header}\n{json.dumps(record)}\n", encoding="utf-8")
    try:
        load_samples(path)
    except ValueError as error:
        assert str(error).startswith(f"{path}:2: ")  # noqa: PT017


def test_another_kind_of_file_is_told(tmp_path):
    path = tmp_path / "said.jsonl"
    path.write_text('{"format": "calmtune-predictions/1", "meta": {}}\n')
    with pytest.raises(ValueError, match=f"expected a first line with format '{FORMAT}'.*samples file.*sample again"):
        load_samples(path)
