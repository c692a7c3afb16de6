"""Questions under foreign options: none of them answers, the labels are chance, and it depends on the ids alone."""

import random
from collections import Counter

from calmtune.data.rows import MultipleChoice
from calmtune.data.shuffled import shuffled_options


def made(count, options=4, tag=""):
    return [
        MultipleChoice(
            f"{tag}{i}", f"Which {tag} is {i}?", tuple(f"{tag}{i}-{k}" for k in range(options)), i % options, "d"
        )
        for i in range(count)
    ]


def test_no_question_keeps_its_options_and_each_number_of_options_stays_apart():
    rows = [*made(30), *made(20, 3, "t")]
    found = shuffled_options(rows)
    assert [row.id for row in found] == [f"{row.id}~shuffled" for row in rows]
    for before, after in zip(rows, found, strict=True):
        assert after.question == before.question
        assert len(after.choices) == len(before.choices)
        assert not set(after.choices) & set(before.choices)
        assert after.domain == "shuffled"


def test_an_option_that_would_answer_is_never_offered():
    yes_no = [MultipleChoice(f"y{i}", f"Is {i} even?", ("yes", "no"), i % 2, "d") for i in range(10)]
    assert shuffled_options(yes_no) == []
    rows = [*made(3), MultipleChoice("x", "Which is 1 again?", ("1-1", "other", "more", "most"), 0, "d")]
    for row, before in zip(shuffled_options(rows), rows, strict=True):
        assert before.choices[before.label] not in row.choices


def test_labels_are_chance():
    counts = Counter(row.label for row in shuffled_options(made(4000)))
    assert set(counts) == {0, 1, 2, 3}
    assert all(abs(count - 1000) < 4 * (4000 * 0.25 * 0.75) ** 0.5 for count in counts.values())


def test_the_order_of_the_rows_and_nothing_else_is_followed():
    rows = made(25)
    mixed = random.Random(1).sample(rows, len(rows))
    assert {row.id: row for row in shuffled_options(rows)} == {row.id: row for row in shuffled_options(mixed)}
    assert shuffled_options(rows, seed=1) != shuffled_options(rows)


def test_one_question_alone_is_left_out():
    assert shuffled_options(made(1)) == []
