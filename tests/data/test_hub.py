"""The Hub's data sets by short name, on small records of the same shapes."""

import re
import warnings

import pytest

from calmtune.data.hub import HUB, hub_rows
from calmtune.data.rows import Instruction, MultipleChoice

RECORDS = {
    "mmlu": {"question": "How many?", "subject": "counting", "choices": ["0", "1", "2", "3"], "answer": 2},
    "medmcqa": {
        "id": "m1", "question": "Which bone?", "opa": "femur", "opb": "ulna", "opc": "tibia", "opd": "rib", "cop": 2,
        "choice_type": "single", "exp": None, "subject_name": "Bones", "topic_name": None,
    },
    "openbookqa": {
        "id": "o1", "question_stem": "Rain falls", "answerKey": "C",
        "choices": {"text": ["up", "never", "down", "sideways"], "label": ["A", "B", "C", "D"]},
    },
    "arc_challenge": {
        "id": "c1", "question": "Ice melts when", "answerKey": "3",
        "choices": {"text": ["cold", "dark", "warm", "loud"], "label": ["1", "2", "3", "4"]},
    },
    "arc_easy": {
        "id": "e1", "question": "Fire is", "answerKey": "C",
        "choices": {"text": ["wet", "cold", "hot"], "label": ["A", "B", "C"]},
    },
}  # fmt: skip
OPEN = {
    "popqa": {"id": 4, "question": "What is Ann's occupation?", "possible_answers": '["painter", "artist"]'},
    "triviaqa": {
        "question": "Who paints?", "answer": {"value": "painter", "aliases": ["artist", "painter"]},
    },
}  # fmt: skip
ALPACA = {"instruction": "Add.", "input": "1 and 1", "output": "2", "text": "Below is an instruction."}


def from_list(records):
    return lambda data, split, revision: records


@pytest.mark.parametrize("name", RECORDS)
def test_shapes_of_the_hub_become_rows_with_the_third_option_gold(name):
    (row,) = hub_rows(
        f"{name}/test" if "test" in HUB[name].splits else f"{name}/validation", from_list([RECORDS[name]])
    )
    assert isinstance(row, MultipleChoice)
    assert (row.label, row.domain) == (2, name)
    assert row.id == RECORDS[name].get("id", f"{name}/test/0")


@pytest.mark.parametrize("name", OPEN)
def test_open_questions_have_the_sets_own_answer_first(name):
    (row,) = hub_rows(f"{name}/{HUB[name].splits[0]}", from_list([OPEN[name]]))
    assert row.question == OPEN[name]["question"]
    assert row.answers == ("painter", "artist")


def test_alpaca_becomes_instructions():
    (row,) = hub_rows("alpaca/train", from_list([ALPACA]))
    assert row == Instruction("alpaca/train/0", (("user", "Add.\n\n1 and 1"),), "2", "alpaca")


def test_pinned_revision_config_and_split_reach_load_dataset(monkeypatch):
    datasets = pytest.importorskip("datasets")
    calls = []

    def fake(*args, **kwargs):
        calls.append((args, kwargs))
        return [RECORDS["arc_easy"]]

    monkeypatch.setattr(datasets, "load_dataset", fake)
    hub_rows("arc_easy/train")
    hub_rows(f"arc_easy/train@{'ab' * 20}")
    assert calls == [
        (("allenai/ai2_arc", "ARC-Easy"), {"split": "train", "revision": HUB["arc_easy"].revision}),
        (("allenai/ai2_arc", "ARC-Easy"), {"split": "train", "revision": "ab" * 20}),
    ]


def test_no_connection_becomes_one_clear_error(monkeypatch):
    datasets = pytest.importorskip("datasets")

    def fail(*args, **kwargs):
        raise ConnectionError("offline")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(ValueError, match=r"cannot load cais/mmlu@c30699e.* \(offline\)\. Download it"):
        hub_rows("mmlu/test")


@pytest.mark.parametrize("name", HUB)
def test_every_entry_is_pinned_to_a_full_commit(name):
    assert re.fullmatch(r"[0-9a-f]{40}", HUB[name].revision)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hub_rows(f"{name}/{HUB[name].splits[0]}", from_list([{**RECORDS, **OPEN}.get(name, ALPACA)]))


def test_a_moving_revision_is_warned_of():
    with pytest.warns(UserWarning, match="'main' is no commit hash"):
        hub_rows("arc_easy/train@main", from_list([RECORDS["arc_easy"]]))


def test_a_few_unusable_rows_are_left_out_and_counted():
    records = [{**ALPACA, "instruction": f"Add {i}.", "output": "" if i == 3 else "2"} for i in range(150)]
    with pytest.warns(
        UserWarning, match=r"1 of 150 rows left out; the first: hub:alpaca/train row 3: `output` is empty"
    ):
        rows = hub_rows("alpaca/train", from_list(records))
    assert [row.id for row in rows[2:4]] == ["alpaca/train/2", "alpaca/train/4"]


def test_many_unusable_rows_are_an_error():
    records = [{**RECORDS["medmcqa"], "id": str(i), "cop": -1 if i % 10 == 0 else 1} for i in range(50)]
    with pytest.raises(ValueError, match="5 of 50 rows cannot be used"):
        hub_rows("medmcqa/train", from_list(records))


def test_an_id_used_twice_is_an_error():
    with pytest.raises(ValueError, match="the id 'e1' occurs twice"):
        hub_rows("arc_easy/test", from_list([RECORDS["arc_easy"]] * 2))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("arc_hard/train", "with a name out of mmlu, medmcqa"),
        ("arc_easy", "expected hub:<name>/<split>"),
        ("arc_easy/dev", "has the splits train, validation, test"),
        ("medmcqa/test", "with a gold"),
    ],
)
def test_wrong_names_are_refused(spec, message):
    with pytest.raises(ValueError, match=message):
        hub_rows(spec, from_list([]))


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("mmlu", ("question", "choices", "answer")),
        ("medmcqa", ("id", "question", "opa", "opb", "opc", "opd", "cop")),
        ("alpaca", ("instruction", "input", "output")),
        ("arc_easy", ("question", "choices", "answerKey")),
    ],
)
def test_a_column_that_another_revision_lacks_is_named(name, columns):
    for column in columns:
        rest = {key: value for key, value in RECORDS.get(name, ALPACA).items() if key != column}
        with pytest.raises(ValueError, match=f"hub:{name}/.* row 0: "):
            hub_rows(f"{name}/{HUB[name].splits[0]}@{'ab' * 20}", from_list([rest]))
