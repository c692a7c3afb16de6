"""A predictions file that is not as it was written: one message that names the file and the line, whatever happened."""

import json

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as profile
from hypothesis import strategies as st

from calmtune.predictions import FORMAT, Prediction, Predictions, load_predictions, open_predictions, save_predictions

ITEM = Prediction("a", "toy", 1, (0.5, -1.0), (0.25, 0.75), 0.9, 1.5, (1, 2))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "said.jsonl"
    save_predictions(path, Predictions((ITEM,), {"model": "toy"}))
    return path


def rewrite(path, header=None, item=None):
    """Put other JSON values in the place of the header or the item."""
    lines = path.read_text(encoding="utf-8").split("\n")
    lines[0] = lines[0] if header is None else json.dumps(header)
    lines[1] = lines[1] if item is None else json.dumps(item)
    path.write_text("\n".join(lines), encoding="utf-8")


def test_the_untouched_file_comes_back(path):
    assert load_predictions(path).items == (ITEM,)


@pytest.mark.parametrize(
    "header",
    [[], 3, "x", {}, {"format": FORMAT}, {"meta": {}}, {"format": FORMAT, "meta": None}, {"format": "x/2", "meta": {}}],
)
def test_a_damaged_header_is_told(path, header):
    rewrite(path, header)
    with pytest.raises(ValueError, match=r"said.jsonl:?1?: expected a (first line with format|JSON object)"):
        load_predictions(path)


@pytest.mark.parametrize("name", ["id", "domain", "label", "scores"])
def test_a_missing_field_is_named_with_its_line(path, name):
    item = json.loads(path.read_text().split("\n")[1])
    del item[name]
    rewrite(path, item=item)
    with pytest.raises(ValueError, match=f"said.jsonl:2: the field '{name}' is missing; delete the file"):
        load_predictions(path)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("id", 3, "text"),
        ("domain", None, "text"),
        ("label", "1", "a whole number"),
        ("label", True, "a whole number"),
        ("scores", {"0": 1.0}, "a list of numbers"),
        ("scores", [1.0, "2"], "a list of numbers"),
        ("adjusted", None, "a list of numbers"),
        ("option_mass", "x", "a number"),
        ("token_entropy", [], "a number"),
        ("tokens", [1.5], "a list of whole numbers"),
    ],
)
def test_a_wrong_type_is_named_with_its_line(path, name, value, expected):
    rewrite(path, item={**json.loads(path.read_text().split("\n")[1]), name: value})
    with pytest.raises(
        ValueError, match=f"said.jsonl:2: the field '{name}' is .*; expected {expected}; delete the file"
    ):
        load_predictions(path)


@pytest.mark.parametrize("content", [b"caf\xe9", b"{", b"\xff\xfe{\x00", b"[" * 100_000, b"[]", b"3"])
def test_a_line_that_is_no_object_is_named(path, content):
    path.write_bytes(path.read_bytes() + content + b"\n")
    with pytest.raises(ValueError, match="said.jsonl:3: "):
        load_predictions(path)
    with pytest.raises(ValueError, match="said.jsonl:3: "):
        open_predictions(path, {"model": "toy"})


def test_an_item_twice_names_the_file(path):
    path.write_bytes(path.read_bytes() + path.read_bytes().split(b"\n")[1] + b"\n")
    with pytest.raises(ValueError, match="said.jsonl: item 'a' occurs twice"):
        load_predictions(path)


@profile(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["id", "domain", "label", "scores", "adjusted", "option_mass", "token_entropy", "tokens"]), VALUES
)
def test_any_value_in_the_place_of_a_field_is_read_or_told(path, name, value):
    save_predictions(path, Predictions((ITEM,), {}))
    rewrite(path, item={**json.loads(path.read_text().split("\n")[1]), name: value})
    assert fault_of(path).startswith((f"{path}:2: ", "none"))


def fault_of(path):
    try:
        load_predictions(path)
    except ValueError as error:
        return str(error)
    return "none"
