"""Refusals and what only looks like one."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calmtune.grading import grade, is_refusal

DATA = Path(__file__).parents[3] / "shared" / "data" / "openqa"


@pytest.mark.parametrize(
    "answer",
    [
        "I don't know",
        "I don’t know.",
        "I do not know who wrote it.",
        "I'm sorry, but I don't know the answer to that question.",
        "Sorry, I don't have any information about that.",
        "I apologize, but I do not have enough information to answer.",
        "I'm not sure.",
        "I am not entirely sure who that is",
        "Not sure",
        "No idea!",
        "I have no idea.",
        "idk",
        "Unknown",
        "The answer is unknown.",
        "I cannot answer this question.",
        "I can't answer that",
        "I'm unable to provide that information.",
        "Unfortunately, I am not able to determine that.",
        "As an AI language model, I do not have personal opinions.",
        "It cannot be determined from the question.",
        "There is not enough information.",
        "I'm afraid I don't recall.",
        "N/A",
        "\nI don't know\nQ: next",
    ],
)
def test_refusals(answer):
    assert is_refusal(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "Paris",
        "The Unknown Soldier",
        "Unknown Pleasures",
        "I Want to Know What Love Is",
        "Now I Know What Made Otis Blue",
        "Know",
        "Sorry",
        "Sorry, Paris",
        "I don't know, but I think it was Paris",
        "I'm not sure, maybe Paris",
        "I'm not sure but it could be 1914",
        "None",
        "Nothing",
        "Nobody",
        "No",
        "Not Fade Away",
        "The cannot",
        "Na",
        "NA",
        "Ivan the Unready",
        "",
        "...",
        "Paris\nI don't know",
    ],
)
def test_answers(answer):
    assert not is_refusal(answer)


def test_a_title_that_reads_like_a_refusal_is_an_answer_where_it_is_accepted():
    title = "I Don't Know Where It Comes From"
    assert is_refusal(title)  # the text alone cannot tell
    assert not is_refusal(title, [title, "Ride"])
    assert is_refusal(title, ["Paris"])
    assert not is_refusal("unknown.", ["Unknown"])


@given(st.text(max_size=40), st.text(min_size=1, max_size=10))
def test_never_both_right_and_refused(answer, alias):
    for aliases in ([alias], [answer]):
        assert not (grade(answer, aliases).correct and is_refusal(answer, aliases))


@pytest.mark.data
@pytest.mark.skipif(not DATA.is_dir(), reason="the shared data sets are not here")
def test_next_to_no_accepted_answer_reads_as_a_refusal():
    taken = set()
    for name in ("popqa.test", "triviaqa.test", "triviaqa.train"):
        with (DATA / f"{name}.jsonl").open("rb") as file:
            for line in file:
                taken |= {alias for alias in json.loads(line)["answers"] if is_refusal(alias)}
    assert taken <= {"I Don't Know Where It Comes From", "Not Sure If", "N A", "N-A"}
