"""Grades against accepted answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calmtune.grading import Grade, first_line, grade, token_f1

# answer, accepted answer, right by exact match: entry B27 of the reported faults
B27 = [
    ("A", "a", True),
    ("B", "A", False),
    ("xyz", "The The", False),
    ("(3.14)", "3.14", True),
    ("314", "3.14", False),
    ("1,000", "1000", True),
    ("01", "0,1", False),
    ("\u22125", "-5", True),
    ("5", "-5", False),
    ("cafe\u0301", "caf\u00e9", True),
    ("The Beatles", "beatles", True),
    ("", "Paris", False),
    ("...", "Paris", False),
    ("", "", False),
    ("...", "?!", False),
]


@pytest.mark.parametrize(("answer", "alias", "right"), B27)
def test_exact_both_ways_round(answer, alias, right):
    assert grade(answer, [alias]).correct is right
    assert grade(alias, [answer]).correct is right


@pytest.mark.parametrize("rule", ["exact", "containment"])
@pytest.mark.parametrize("normaliser", ["calmtune-1", "squad-1.1"])
@pytest.mark.parametrize("empty", ["", "...", " \n ", "?"])
def test_an_empty_form_matches_nothing(rule, normaliser, empty):
    assert not grade(empty, ["Paris", "", "..."], rule, normaliser).correct
    assert not grade("Paris is in France", ["", "...", empty], rule, normaliser).correct
    assert token_f1(empty, ["", "...", "Paris"], normaliser) == 0


def test_articles_alone_are_empty_in_squad_and_match_nothing_there():
    assert not grade("A", ["a"], "exact", "squad-1.1").correct
    assert not grade("Paris", ["The The"], "containment", "squad-1.1").correct


def test_every_alias_is_tried_and_the_one_that_matched_is_named():
    aliases = ["The Beatles", "Fab Four"]
    assert grade("fab four!", aliases) == Grade(True, "exact", "1", "calmtune-1", "Fab Four")
    assert grade("Oasis", aliases) == Grade(False, "exact", "1", "calmtune-1", None)


def test_only_the_first_line_counts():
    assert first_line("\n\n  Paris \r\nQ: Rome?") == "Paris"
    assert [first_line(text) for text in ("", " \n\t", "a\u2028b", "a\rb")] == ["", "", "a", "a"]
    assert grade("\nParis\nQ: ...", ["Paris"]).correct
    for rule in ("exact", "containment"):
        assert not grade("Lyon\nParis", ["Paris"], rule).correct
    assert token_f1("Lyon\nParis", ["Paris"]) == 0


def test_containment_takes_whole_words_and_numbers_and_only_by_its_name():
    def inside(answer, alias):
        return grade(answer, [alias], "containment").correct

    assert inside("It is the Eiffel Tower in Paris", "Eiffel Tower")
    assert not grade("It is the Eiffel Tower in Paris", ["Eiffel Tower"]).correct
    assert not inside("Comparison", "Paris")
    assert not inside("Parisian", "Paris")
    assert not inside("Tower of Eiffel", "Eiffel Tower")
    assert not inside("about 3.14", "14")
    assert not inside("-5 degrees", "5")
    assert not inside("it costs 1,000", "1")
    assert not inside("Paris", "Paris in France")
    assert not inside("a banana", "A")  # an article is no answer, though "A" alone is
    assert inside("Hepatitis A", "A")


def test_token_f1_by_hand():
    # {tall, eiffel, tower} and {eiffel, tower}: P = 2/3, R = 1
    assert token_f1("the tall Eiffel Tower", ["Eiffel Tower"]) == pytest.approx(0.8)
    assert token_f1("the tall Eiffel Tower", ["Lyon", "tall"]) == pytest.approx(0.5)
    # a word counts as often as both have it: {no, no, no} and {no, yes}: 1 shared of 3 and of 2
    assert token_f1("no no no", ["no yes"]) == pytest.approx(2 / 5)
    assert token_f1("Spider-Man", ["Spiderman"], "squad-1.1") == 1
    assert token_f1("Lyon", ["Paris"]) == 0


@given(st.text(max_size=20), st.lists(st.text(max_size=20), min_size=1, max_size=4))
def test_f1_is_one_where_exact_holds_and_containment_holds_too(answer, aliases):
    f1 = token_f1(answer, aliases)
    assert 0 <= f1 <= 1
    if grade(answer, aliases).correct:
        assert f1 == 1
        assert grade(answer, aliases, "containment").correct


def test_faulty_arguments_are_named():
    with pytest.raises(ValueError, match=r"rule of \['containment', 'exact'\], got 'contains'"):
        grade("a", ["a"], "contains")
    for call in (grade, token_f1):
        with pytest.raises(ValueError, match="at least one accepted answer, got 'Paris'"):
            call("a", "Paris")
        with pytest.raises(ValueError, match="at least one accepted answer"):
            call("a", [])
