"""Classes of meaning: worked by hand, and the same however the answers are ordered."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calmtune.grading import Clusters, Sampled, exact_clusters, nli_clusters


def table(*pairs):
    """An entailment relation given as pairs of (premise, hypothesis), with what it was asked."""

    def entails(asked):
        entails.asked.append(list(asked))
        return [pair in pairs for pair in asked]

    entails.asked = []
    return entails


def both(one, other):
    return (one, other), (other, one)


def test_exact_by_hand():
    answers = ["Rome", "It's Rome", "rome.", "Milan", "ROME\nQ: more", "1,000", "1000"]
    assert exact_clusters(answers) == Clusters((0, 1, 0, 2, 0, 3, 3), "exact", "1/calmtune-1")
    assert exact_clusters(["5", "-5"]).ids == (0, 1)
    assert exact_clusters(["5", "-5"], normaliser="squad-1.1") == Clusters((0, 0), "exact", "1/squad-1.1")
    assert exact_clusters([]).ids == ()


def test_an_empty_answer_is_equal_to_nothing():
    assert exact_clusters(["", "...", "Rome", "", "..."]).ids == (0, 1, 2, 3, 4)
    yes = nli_clusters([Sampled("q", ("", "...", "Rome", ""))], lambda pairs: [True] * len(pairs))
    assert yes[0].ids == (0, 1, 2, 3)


def test_refused_answers_share_a_class_whatever_their_words():
    answers, refused = ["I don't know", "Rome", "no idea", "Milan"], [True, False, True, False]
    assert exact_clusters(answers, refused=refused) == Clusters((0, 1, 0, 2), "exact", "1/calmtune-1", 0)
    entails = table()
    (found,) = nli_clusters([Sampled("q", tuple(answers), tuple(refused))], entails)
    assert found == Clusters((0, 1, 0, 2), "nli", "1/calmtune-1", 0)
    assert {text for pair in entails.asked[0] for text in pair} == {"q Rome", "q Milan"}
    assert exact_clusters(answers).refusal_id is None
    with pytest.raises(ValueError, match="1 refusal marks for 2 answers"):
        exact_clusters(["a", "b"], refused=[True])


def test_entry_b30_rome_three_times_and_it_is_rome():
    answers = ("Rome", "Rome", "Rome", "It's Rome", "Milan")
    entails = table(*both("Capital? Rome", "Capital? It's Rome"))
    assert nli_clusters([Sampled("Capital?", answers)], entails)[0].ids == (0, 0, 0, 0, 1)
    # three distinct texts: three pairs, then the reverse of the one that held; repeats are not compared
    assert [len(asked) for asked in entails.asked] == [3, 1]


def test_one_direction_is_not_enough():
    paris = ("q Paris in France", "q Paris")
    for pairs in ([paris], [paris[::-1]]):
        assert nli_clusters([Sampled("q", ("Paris", "Paris in France"))], table(*pairs))[0].ids == (0, 1)
    assert nli_clusters([Sampled("q", ("Paris", "Paris in France"))], table(*both(*paris)))[0].ids == (0, 0)


def test_a_chain_is_one_class_in_any_order():
    # a ~ b and b ~ c, not a ~ c: comparing with first members only would make the classes depend on the order
    entails = table(*both("q a1", "q b1"), *both("q b1", "q c1"))
    for answers in (("a1", "b1", "c1", "d1"), ("a1", "c1", "b1", "d1"), ("c1", "a1", "d1", "b1")):
        ids = nli_clusters([Sampled("q", answers)], entails)[0].ids
        by_answer = dict(zip(answers, ids, strict=True))
        assert by_answer["a1"] == by_answer["b1"] == by_answer["c1"] != by_answer["d1"]
        assert ids[0] == 0


def test_a_star_and_two_chains_that_meet_are_one_class():
    star = table(*both("q a1", "q c1"), *both("q a1", "q d1"), *both("q a1", "q e1"))
    assert nli_clusters([Sampled("q", ("c1", "b1", "d1", "e1", "a1"))], star)[0].ids == (0, 1, 0, 0, 0)
    meet = table(*both("q a1", "q e1"), *both("q b1", "q e1"), *both("q b1", "q d1"), *both("q c1", "q d1"))
    assert nli_clusters([Sampled("q", ("a1", "b1", "c1", "d1", "e1"))], meet)[0].ids == (0,) * 5


def test_questions_do_not_mix_and_share_two_calls():
    items = [Sampled("Where?", ("x1", "y1")), Sampled("Who?", ("x1", "y1")), Sampled("Why?", ())]
    entails = table(*both("Where? x1", "Where? y1"))
    assert [found.ids for found in nli_clusters(items, entails)] == [(0, 0), (0, 1), ()]
    assert len(entails.asked) == 2


def test_texts_with_one_form_are_compared_once_by_the_same_text_in_any_order():
    asked = set()
    for answers in (("rome.", "Rome", "Milan"), ("Milan", "Rome", "rome.")):
        entails = table()
        nli_clusters([Sampled("", answers)], entails)
        asked.add(tuple(entails.asked[0]))
    assert asked == {(("Milan", "Rome"),)}


@given(
    st.lists(st.sampled_from(["a1", "b1", "c1", "d1", "e1", "E1.", "", "no idea"]), max_size=10),
    st.sets(st.tuples(st.sampled_from("abcde"), st.sampled_from("abcde")), max_size=12),
    st.randoms(use_true_random=False),
)
def test_the_partition_does_not_depend_on_the_order(answers, relation, shuffled: random.Random):
    def entails(pairs):
        return [(premise[2].lower(), hypothesis[2].lower()) in relation for premise, hypothesis in pairs]

    def partition(order):
        said = tuple(answers[index] for index in order)
        (found,) = nli_clusters([Sampled("q", said, tuple(text == "no idea" for text in said))], entails)
        assert [i for n, i in enumerate(found.ids) if i not in found.ids[:n]] == list(range(len(set(found.ids))))
        groups: dict[int, set[int]] = {}
        for index, number in zip(order, found.ids, strict=True):
            groups.setdefault(number, set()).add(index)
        return {frozenset(group) for group in groups.values()}

    order = list(range(len(answers)))
    first = partition(order)
    shuffled.shuffle(order)
    assert partition(order) == first


def test_a_wrong_number_of_decisions_is_an_error():
    with pytest.raises(ValueError, match="expected 1 decisions from `entails`, one a pair; got 0"):
        nli_clusters([Sampled("q", ("x1", "y1"))], lambda pairs: [])
