"""What may be trained on, what is held out, and at which level."""

import pytest

from toy_training import instructions, questions, trainer


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"upper": []}, "upper_dataset is empty"),
        ({"upper": questions(12, 1)}, "must not share a question"),
        ({"train": instructions(4, 1), "level": "options"}, "has no options"),
        ({"max_length": 4}, "max_length"),
        ({"template": "chat", "max_length": 5}, "max_length"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_step(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        trainer(tmp_path, **change)


def test_levels_follow_the_rows(tmp_path):
    assert trainer(tmp_path).level.name == "options"
    made = trainer(tmp_path, train=instructions(4, 1), upper=instructions(4, 2))
    assert made.level.name == "vocabulary"
    assert made.level.positions == "response"
    assert trainer(tmp_path, scoring="letter", level="vocabulary").level.positions == "first"


def test_the_same_question_with_other_options_is_not_held_out(tmp_path):
    turned = [{**row, "id": f"t{row['id']}", "choices": row["choices"][::-1]} for row in questions(4, 1)]
    with pytest.raises(ValueError, match="must not share a question"):
        trainer(tmp_path, upper=turned, scoring="letter")
