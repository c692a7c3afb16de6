"""The gold of the letters, by place in the alphabet and never by code point."""

import pytest

from calmtune.data.gold import LETTERS, gold_index


@pytest.mark.parametrize("place", range(26))
def test_every_letter_is_its_place(place):
    texts = tuple(f"text {i}" for i in range(26))
    assert gold_index({"answerKey": LETTERS[place]}, texts, None) == place
    assert gold_index({"answerKey": str(place + 1)}, texts, None) == place


def test_lower_case_letter_that_is_also_an_options_text_is_ambiguous():
    with pytest.raises(ValueError, match="text of option 1 and the label of option 0"):
        gold_index({"answer": "a"}, ("an", "a"), None)
    assert gold_index({"answer": "an"}, ("an", "a"), None) == 0


def test_blood_group_o_is_a_text_and_no_letter_of_four_options():
    assert gold_index({"answer": "O"}, ("A", "B", "AB", "O"), None) == 3
