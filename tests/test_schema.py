"""Text typed by the field it is meant for: what YAML's own typing gets wrong, round trips, and messages."""

import enum
from typing import Any, Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from calmtune.schema import Value, convert, nearest, read_flags, read_text, read_yaml, write_yaml


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


def read(text, hint, key="key"):
    entries, faults = read_yaml(f"{key}: {text}", "run.yaml")
    assert faults == []
    return convert(entries[key], hint)


@pytest.mark.parametrize(
    ("text", "hint", "expected"),
    [
        ("1e-4", float, 0.0001),
        ("2e5", float, 200000.0),
        ("1E+3", float, 1000.0),
        (".5", float, 0.5),
        ("5.", float, 5.0),
        ("1_000", int, 1000),
        ("010", int, 10),
        ("1e3", int, 1000),
        ("-1", int, -1),
        ('"0.7"', float, 0.7),
        ("3", float, 3.0),
        ("NO", str, "NO"),
        ("010", str, "010"),
        ("1:30", str, "1:30"),
        ("1e-4", str, "1e-4"),
        ("2024-01-31", str, "2024-01-31"),
        ("=", str, "="),
        ("[A, B, NO, yes]", list[str], ["A", "B", "NO", "yes"]),
        ("[A, B, NO, yes]", tuple[str, ...], ("A", "B", "NO", "yes")),
        ("facts", tuple[str, ...], ("facts",)),
        ("[]", tuple[str, ...], ()),
        ("all-linear", str | tuple[str, ...], "all-linear"),
        ("[q_proj]", str | tuple[str, ...], ("q_proj",)),
        ("yes", bool, True),
        ("False", bool, False),
        ("null", int | None, None),
        ("~", str | None, None),
        ("", str | None, None),
        ('"null"', str | None, "null"),
        ("'~'", str | None, "~"),
        ("4bit", Literal["4bit", "8bit"] | None, "4bit"),
        ("red", Color, "red"),
        ("red", Color | str, "red"),
        ("no", str | bool, False),
        ('"no"', str | bool, "no"),
        ("{a: 1e-4, b: [1, 'x'], c: 'no', d: no, e: true, f: null}", dict[str, Any], {
            "a": 1e-4, "b": [1, "x"], "c": "no", "d": "no", "e": True, "f": None,
        }),
    ],
)  # fmt: skip
def test_the_field_decides_the_type(text, hint, expected):
    result = read(text, hint)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("text", "hint", "message"),
    [
        ("1:30", int, "expected a whole number, got '1:30'"),
        ("1.5", int, "expected a whole number, got '1.5'"),
        ("abc", float, "expected a number, got 'abc'"),
        ("nan", float, "expected a number"),
        (".inf", float, "expected a number"),
        ("1e999", float, "expected a number"),
        ("0x10", int, "expected a whole number"),
        ("1", bool, "expected true or false"),
        ("null", str, r"expected text, got null \(quote it if 'null' is meant as text\)"),
        ("null", int, "expected a whole number, got null"),
        ("", tuple[str, ...], "expected a list of text, got null"),
        ("[A, null]", list[str], "expected text, got null"),
        ("[1, x]", list[int], "expected a whole number, got 'x'"),
        ("[1]", int, "expected a whole number, got a list of 1"),
        ("{a: 1}", str, "expected text, got a mapping"),
        ("clam", Literal["calm", "sft"], "expected one of calm, sft, got 'clam'; did you mean 'calm'"),
        ("rad", Color | str, "expected one of red, blue, got 'rad'; did you mean 'red'"),
    ],
)
def test_what_does_not_fit_is_named(text, hint, message):
    with pytest.raises(ValueError, match=message):
        read(text, hint)


def test_pyyaml_itself_would_change_these():
    """Shows that the test above can fail: the usual loader turns these texts into other values."""
    loaded = yaml.safe_load("lr: 1e-4\nchoices: [A, B, NO, yes]\nid: 010\nt: 1:30")
    assert loaded == {"lr": "1e-4", "choices": ["A", "B", False, True], "id": 8, "t": 90}


leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(),
    st.sampled_from(["NO", "yes", "1e-4", "null", "~", "010", "1:30", "", " a ", "a: b", "- x", "#c", "None", "\x85"]),
)  # fmt: skip


@given(st.one_of(st.text(), st.sampled_from(["NO", "null", "1e-4", "~", "", "=", "<<", "true", "2024-01-31"])))
def test_text_round_trip(text):
    assert round_trip(text, str | None) == text
    assert round_trip(text, str) == text
    assert round_trip((text, "x"), tuple[str, ...]) == (text, "x")


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_number_round_trip_is_exact(number):
    assert round_trip(number, float).hex() == number.hex()


@given(st.integers())
def test_integer_round_trip(number):
    if abs(number) < 10**300:
        assert round_trip(number, int | None) == number


@given(st.dictionaries(st.text(min_size=1), st.recursive(leaves, lambda inner: st.lists(inner), max_leaves=5)))
def test_free_form_round_trip(mapping):
    assert round_trip(mapping, dict[str, Any]) == mapping


def round_trip(value, hint):
    entries, faults = read_yaml(write_yaml({"key": value}), "run.yaml")
    assert faults == []
    return convert(entries["key"], hint)


@given(st.text())
def test_written_text_is_text_to_every_yaml_reader(text):
    assert yaml.safe_load(write_yaml({"key": text})) == {"key": text}


def test_a_repeated_key_is_a_fault_with_both_lines():
    _, faults = read_yaml("seed: 1\nlearning_rate: 1\nseed: 2\n", "run.yaml")
    assert faults == ["run.yaml:3: the key 'seed' was already set at run.yaml:1; keep one of them"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: [1, 2", "run.yaml:1: not valid YAML"),
        ("- a\n- b", "run.yaml: expected lines of the form key: value, got a list of 2"),
        ("just words", "run.yaml: expected lines of the form key: value, got 'just words'"),
        ("[a]: 1", "run.yaml:1: a key must be plain text"),
        ("a: !!python/object:os.system x", None),
    ],
)
def test_broken_files_are_faults_not_crashes(text, fault):
    _, faults = read_yaml(text, "run.yaml")
    assert [found.startswith(fault) for found in faults] == ([True] if fault else [])


def test_an_empty_file_has_no_entries():
    assert read_yaml("# nothing\n", "run.yaml") == ({}, [])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--max_steps", "-1"], -1),
        (["--max-steps=7"], 7),
    ],
)
def test_flags(words, expected):
    entries, faults = read_flags(words)
    assert faults == []
    assert convert(entries["max_steps"], int) == expected


def test_flag_lists_switches_and_quotes():
    entries, faults = read_flags(
        ["--a", "x", "y", "--b", "[x, 'NO']", "--c", "--d", '"null"', "--e=", "--f", "{k: 1e-4}", "--g=a=b"]
    )
    assert faults == []
    assert convert(entries["a"], tuple[str, ...]) == ("x", "y")
    assert convert(entries["b"], tuple[str, ...]) == ("x", "NO")
    assert convert(entries["c"], bool) is True
    assert convert(entries["d"], str | None) == "null"
    assert convert(entries["e"], str | None) is None
    assert convert(entries["f"], dict[str, Any]) == {"k": 1e-4}
    assert convert(entries["g"], str) == "a=b"


def test_a_flag_without_its_value_is_a_fault():
    entries, _ = read_flags(["--output_dir", "--bf16"])
    with pytest.raises(ValueError, match="expected text after the flag, got nothing"):
        convert(entries["output_dir"], str)


def test_flag_faults():
    assert read_flags(["stray", "--a", "1"])[1] == ["'stray' stands before any flag; write --key value"]
    assert "cannot read '[1'" in read_flags(["--a", "[1"])[1][0]


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--seed", "1", "--seed", "2"], "--seed: 'seed' was already set by --seed; keep one of them"),
        (
            ["--max-steps=1", "--eta", "1", "--max_steps", "1"],
            "--max_steps: 'max_steps' was already set by --max-steps",
        ),
        (["--bf16", "--bf16"], "--bf16: 'bf16' was already set by --bf16"),
        (["--test_ood", "a", "b", "--test_ood", "[c]"], "--test_ood: 'test_ood' was already set by --test_ood"),
    ],
)
def test_a_repeated_flag_is_a_fault_like_a_repeated_key(words, fault):
    assert [found[: len(fault)] for found in read_flags(words)[1]] == [fault]


DEEP = "[" * 3000 + "]" * 3000


@pytest.mark.parametrize("value", [DEEP, DEEP.replace("[", "{a: ").replace("]", "}"), "&a [*a]"])
def test_what_nests_too_deeply_is_a_fault_not_a_crash(value):
    assert read_yaml(f"key: {value}", "run.yaml")[1][0].startswith("run.yaml: nested too deeply")
    if value[0] in "[{":
        assert read_flags(["--key", value])[1][0].startswith("--key: nested too deeply")


@pytest.mark.parametrize("content", [b"a: 1\nb: caf\xe9\n", b"a: 1\n\xff\xfeb", b"\n\xe2\x82"])
def test_text_of_another_encoding_is_named_with_its_line(tmp_path, content):
    path = tmp_path / "run.yaml"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="run.yaml:2: not UTF-8"):
        read_text(path)


def test_nearest_says_nothing_when_nothing_is_near():
    assert nearest("zzz", ["learning_rate"]) == ""


def test_a_scalar_is_one_element_of_a_list_but_a_list_is_no_scalar():
    assert convert(Value("a", "x"), list[str]) == ["a"]
    with pytest.raises(ValueError, match="got a list of 2"):
        convert(Value((Value("a", "x"), Value("b", "x")), "x"), str)
