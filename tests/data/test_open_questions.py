"""How open questions are put, and which accepted answer is taught."""

import pytest

import tiny
from calmtune.data.open_questions import OPEN_PROMPTS, target_answer
from calmtune.data.prompts import PromptStyle, Renderer
from calmtune.data.rows import MultipleChoice, OpenQuestion

ROW = OpenQuestion("a", "what is the sky", ("deep blue", "blue"), "toy")


def renderer(template="plain", **style):
    return Renderer(tiny.word_tokenizer(chat_template=tiny.CHAT), PromptStyle("text", template, **style))


def test_the_plain_question_is_asked_as_before():
    assert renderer().prompt(ROW).prompt_text == "Question: what is the sky\nAnswer:"
    assert "open_prompt" not in renderer().settings()


@pytest.mark.parametrize("name", [name for name in OPEN_PROMPTS if name != "question"])
def test_a_named_prompt_stands_before_the_question(name):
    found = renderer(open_prompt=name).prompt(ROW).prompt_text
    assert found == f"{OPEN_PROMPTS[name]}\n\nQuestion: what is the sky\nAnswer:"
    assert renderer(open_prompt=name).settings()["open_prompt"] == name


def test_in_a_chat_it_is_part_of_the_users_turn():
    found = renderer("chat", open_prompt="short", system_prompt="blue").prompt(ROW).prompt_text
    turn = f"{OPEN_PROMPTS['short']}\n\nQuestion: what is the sky\nAnswer:"
    assert found == f"<|user|>blue<|end|>\n<|user|>{turn}<|end|>\n<|bot|>"


def test_a_system_prompt_stands_first_in_plain_text():
    found = renderer(open_prompt="short", system_prompt="sea").prompt(ROW).prompt_text
    assert found == f"sea\n\n{OPEN_PROMPTS['short']}\n\nQuestion: what is the sky\nAnswer:"


def test_other_rows_are_not_asked_for_short_answers():
    row = MultipleChoice("m", "what is the sky", ("blue", "red"), 0, "toy")
    assert renderer(open_prompt="short").prompt(row).prompt_text == "Question: what is the sky\nAnswer:"


def test_the_answer_and_the_end_of_the_text_carry_the_loss():
    found = renderer()
    encoded = found.open_question(ROW)
    assert found.tokenizer.decode(encoded.input_ids[encoded.answer_start :]) == " deep blue</s>"
    assert encoded.input_ids[: encoded.answer_start] == found.prompt(ROW).prompt_ids
    assert renderer(open_target="central").open_question(ROW).answer_text == "blue"


def test_the_upper_level_is_given_no_answer():
    found = renderer()
    encoded = found.asked(ROW)
    assert encoded.input_ids == [*found.prompt(ROW).prompt_ids, found.tokenizer.eos_token_id]
    assert encoded.answer_text == ""
    with pytest.raises(ValueError, match="more than max_length 3"):
        found.asked(ROW, max_length=3)


@pytest.mark.parametrize(
    ("answers", "first", "central"),
    [
        (("Nice, Alpes", "Paris", "Paris, France", "paris!"), "Nice, Alpes", "Paris"),
        (("x y", "y z"), "x y", "x y"),  # equally central: the shorter, then the first
        (("two words", "one"), "two words", "one"),
        (("...", "!!"), "...", "!!"),
    ],
)
def test_the_central_answer_shares_most_words(answers, first, central):
    assert target_answer(answers, "first") == first
    assert target_answer(answers, "central") == central


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="open_prompt must be one of question"):
        PromptStyle("text", open_prompt="long")
    with pytest.raises(ValueError, match="open_target must be one of first"):
        PromptStyle("text", open_target="last")
