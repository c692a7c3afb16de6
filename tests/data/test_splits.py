"""Splits: by question, stable, disjoint, and loud about overlaps."""

import hashlib
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calmtune.data.rows import Instruction, MultipleChoice, OpenQuestion
from calmtune.data.splits import check_disjoint, drop_shared, fingerprint, normalise_question, question_key, split_rows

SHARES = {"train": 0.5, "upper": 0.2, "calibration": 0.2, "test": 0.1}


def rows(count, start=0):
    return [OpenQuestion(f"q{i}", f"What is {i} plus 1?", (str(i + 1),), "sums") for i in range(start, start + count)]


SAME = [
    "What is the capital of France?",
    "  what is the  capital of FRANCE ",
    "What\u00a0is the capital of France ?!",
    "Ｗhat is the capital of France...",
    "What is the cap\u00adital of France?",
]


@pytest.mark.parametrize("text", SAME)
def test_spellings_of_one_question_are_the_same(text):
    assert normalise_question(text) == "what is the capital of france"


def test_differences_that_matter_stay():
    assert len({normalise_question(t) for t in ("Is 3.14 > 3?", "Is 314 > 3?", "Is -3.14 > 3?", "Is 3.14 < 3?")}) == 4
    assert normalise_question("???") == "???"
    assert normalise_question("cafe\u0301") == normalise_question("caf\u00e9") != normalise_question("cafe")


@given(st.text())
def test_normalising_twice_changes_nothing(text):
    assert normalise_question(normalise_question(text)) == normalise_question(text)


def test_key_is_the_hash_of_the_question_alone():
    first = MultipleChoice("a", "Wet?", ("iron", "water"), 1, "x")
    second = MultipleChoice("b", "wet", ("water", "sand"), 0, "y")
    assert question_key(first) == question_key(second) == hashlib.sha256(b"wet").hexdigest()
    assert question_key(Instruction("c", (("system", "Be brief."), ("user", "Wet?")), "Yes.", "z")) == question_key(
        first
    )


def test_sizes_follow_the_shares_and_every_row_is_somewhere():
    parts = split_rows(rows(4000), SHARES, seed=1)
    assert sorted(row.id for part in parts.values() for row in part) == sorted(row.id for row in rows(4000))
    for name, share in SHARES.items():
        # four standard deviations of a binomial count
        assert abs(len(parts[name]) - 4000 * share) < 4 * (4000 * share * (1 - share)) ** 0.5
    check_disjoint(parts)


def test_adding_rows_moves_no_row():
    few, many = split_rows(rows(300), SHARES, seed=3), split_rows(rows(900), SHARES, seed=3)
    for name in SHARES:
        assert {row.id for row in few[name]} <= {row.id for row in many[name]}


def test_repeats_of_a_question_stay_together_and_seeds_differ():
    twice = rows(400) + [OpenQuestion(f"again{i}", f"what is {i} PLUS 1", ("?",), "sums") for i in range(400)]
    parts = split_rows(twice, SHARES, seed=0)
    check_disjoint(parts)
    assert all(len(part) % 2 == 0 for part in parts.values())
    assert split_rows(twice, SHARES, seed=1)["test"] != parts["test"]


def test_order_is_kept_within_a_split():
    numbers = [int(row.id[1:]) for row in split_rows(rows(200), SHARES, seed=0)["train"]]
    assert numbers == sorted(numbers)


def test_same_in_a_process_with_another_hash_seed():
    code = (
        "from calmtune.data.rows import OpenQuestion as Q; from calmtune.data.splits import split_rows, fingerprint\n"
        "rows = [Q(f'q{i}', f'What is {i} plus 1?', (str(i + 1),), 'sums') for i in range(200)]\n"
        "print(fingerprint(split_rows(rows, {'a': .5, 'b': .5}, 7)['a']))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "123", "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == fingerprint(split_rows(rows(200), {"a": 0.5, "b": 0.5}, 7)["a"])


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"train": 0.5, "test": 0.4}, "add up to 0.9; expected 1"),
        ({"train": 1.2, "test": -0.2}, "share of 'test' is -0.2"),
        ({"train": 1.0, "test": 0.0}, "share of 'test' is 0.0"),
        ({"train": float("nan")}, "nan"),
        ({"train": True}, "True"),
        ({}, "add up to 0"),
    ],
)
def test_wrong_shares_are_refused(shares, message):
    with pytest.raises(ValueError, match=message):
        split_rows(rows(50), shares)


def test_a_split_left_empty_is_an_error():
    with pytest.raises(ValueError, match="leave test without any"):
        split_rows(rows(3), {"train": 0.999, "test": 0.001})


def test_overlaps_are_counted_with_up_to_three_examples_a_pair():
    splits = {"train": rows(10), "test": rows(8, start=5), "other": rows(1, start=9) + rows(5, start=100)}
    with pytest.raises(ValueError) as caught:
        check_disjoint(splits)
    text = str(caught.value)
    assert "train and test share 5 question(s)" in text
    assert "train and other share 1 question(s)" in text
    assert text.count("'What is 5 plus 1?' ('q5' and 'q5')") == 1
    assert "'q8' and 'q8'" not in text
    check_disjoint({"train": drop_shared(rows(10), rows(8, start=5)), "test": rows(8, start=5)})
    assert [row.id for row in drop_shared(rows(3), rows(1, start=1))] == ["q0", "q2"]


def test_fingerprint_sees_every_field_and_the_order():
    base = MultipleChoice("a", "Wet?", ("iron", "water"), 1, "x")
    others = [
        MultipleChoice("b", "Wet?", ("iron", "water"), 1, "x"),
        MultipleChoice("a", "Wet", ("iron", "water"), 1, "x"),
        MultipleChoice("a", "Wet?", ("iron", "wate", "r"), 1, "x"),
        MultipleChoice("a", "Wet?", ("iron", "water"), 0, "x"),
        MultipleChoice("a", "Wet?", ("iron", "water"), 1, "y"),
        OpenQuestion("a", "Wet?", ("iron", "water"), "x"),
    ]
    prints = [fingerprint([row]) for row in (base, *others)]
    assert len(set(prints)) == len(prints)
    assert fingerprint(rows(2)) != fingerprint(rows(2)[::-1])
