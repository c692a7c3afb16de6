"""The record of graded answers: what is refused, and that it comes back as it was."""

import json

import pytest

from calmtune.graded import GradedAnswers, GradedQuestion, load_graded, save_graded

META = {"rule": "exact/a", "rules": {"exact/a": "1/a", "nli/a": "1/a"}, "grade": "exact"}


def question(**change):
    values = {
        "id": "q", "domain": "d", "question": "Who?", "accepted": ("Ann",), "texts": ("Ann", "Bo\u2028b", "?"),
        "classes": {"exact/a": (0, 1, 2), "nli/a": (0, 0, 1)}, "correct": (True, False, False),
        "refused": (False, False, True), "log_probabilities": (-0.1, -2.5, -3.0),
    }  # fmt: skip
    return GradedQuestion(**{**values, **change})


def test_it_comes_back_as_it_was(tmp_path):
    graded = GradedAnswers((question(), question(id="r", log_probabilities=())), META)
    save_graded(tmp_path / "g.jsonl", graded)
    assert load_graded(tmp_path / "g.jsonl") == graded
    assert graded.n_samples == 3
    assert graded.classes("nli/a")[0] == (0, 0, 1)
    assert graded.classes()[0] == (0, 1, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"correct": (True,)}, "1 correct for 3 answers"),
        ({"classes": {"exact/a": (0, 1)}}, "2 classes exact/a for 3 answers"),
        ({"log_probabilities": (-1.0,)}, "1 log_probabilities for 3"),
        ({"correct": (True, False, True)}, "both right and a refusal"),
        ({"classes": {}}, "at least one answer and one class rule"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        question(**change)


def test_every_question_has_the_same_rules_and_another_id():
    with pytest.raises(ValueError, match="'q' occurs twice"):
        GradedAnswers((question(), question()), META)
    with pytest.raises(ValueError, match="expected the class rules"):
        GradedAnswers((question(),), {**META, "rules": {"exact/a": "1/a"}})
    with pytest.raises(ValueError, match=r"rule: expected one of .*got 'other'"):
        GradedAnswers((question(),), {**META, "rule": "other"})


@pytest.mark.parametrize(
    ("field", "value"), [("correct", [2, 0, 0]), ("classes", {"exact/a": ["x"]}), ("texts", "abc"), ("id", None)]
)
def test_a_damaged_line_is_named(tmp_path, field, value):
    path = tmp_path / "g.jsonl"
    save_graded(path, GradedAnswers((question(),), META))
    head, line = path.read_text().splitlines()
    path.write_text(f"{head}\n{json.dumps({**json.loads(line), field: value})}\n")
    with pytest.raises(ValueError, match=rf"g.jsonl:2: the field '{field}'"):
        load_graded(path)
