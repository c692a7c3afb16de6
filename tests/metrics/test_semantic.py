"""Semantic confidence, calibration error and entropy: by hand, against theory, against plain loops, and invariance."""

import hashlib
import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calmtune
from calmtune.metrics import expected_calibration_error, semantic_confidence, semantic_ece, semantic_entropy

# confidence .75 and wrong; a tie of four, all wrong; sure and right
TABLE = [["Rome", "Rome", "Milan", "Rome"], [7, 8, 9, 10], ["a", "a", "a", "a"]]
GRADES = [[0, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]]

WORDS = st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=7), min_size=1, max_size=6)


def compositions(n, k):
    """All ways to put n samples into k classes."""
    if k == 1:
        yield (n,)
        return
    for first in range(n + 1):
        for rest in compositions(n - first, k - 1):
            yield (first, *rest)


def multinomial(counts, p):
    ways = math.factorial(sum(counts)) // math.prod(math.factorial(c) for c in counts)
    return ways * math.prod(q**c for q, c in zip(p, counts, strict=True))


def expected_sem1(p, n):
    return sum(multinomial(c, p) * max(c) / n for c in compositions(n, len(p)))


def expected_sem2(p, n):
    """The reading half is independent of the choosing one, so it shows the chosen class with its probability."""
    total = 0.0
    for counts in compositions((n + 1) // 2, len(p)):
        best = [q for q, c in zip(p, counts, strict=True) if c == max(counts)]
        total += multinomial(counts, p) * sum(best) / len(best)
    return total


def sem2_over_all_splits(samples):
    """Mean over every half split of one pool, by enumeration."""
    n = len(samples)
    values = []
    for half in itertools.combinations(range(n), (n + 1) // 2):
        chosen = Counter(samples[k] for k in half)
        rest = [samples[k] for k in range(n) if k not in half]
        best = [name for name, count in chosen.items() if count == max(chosen.values())]
        values.append(np.mean([rest.count(name) / len(rest) for name in best]))
    return float(np.mean(values))


def splitmix64(state):
    """The generator as its authors write it, on Python's integers."""
    mask = 2**64 - 1
    while True:
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        yield z ^ (z >> 31)


def sem2_plain(samples, name, seed, n_splits):
    """Sem2 of one question, a loop over splits: the samples stand in order of their class's size."""
    digest = hashlib.blake2b(f"{seed}\0split 0\0{name}".encode(), digest_size=8).digest()
    stream = splitmix64(int.from_bytes(digest, "big"))
    pool = [rank for rank, (_, count) in enumerate(Counter(samples).most_common()) for _ in range(count)]
    total = 0.0
    for _ in range(n_splits):
        drawn = [next(stream) for _ in pool]
        order = sorted(range(len(pool)), key=drawn.__getitem__)
        left, right = order[: (len(pool) + 1) // 2], order[(len(pool) + 1) // 2 :]
        chosen = Counter(pool[k] for k in left)
        best = [c for c in chosen if chosen[c] == max(chosen.values())]
        total += sum(sum(pool[k] == c for k in right) / len(right) for c in best) / len(best)
    return total / n_splits


def drawn(rng, p, n_questions, n):
    return rng.choice(len(p), size=(n_questions, n), p=p)


# by hand


def test_three_questions_by_hand():
    # Sem1 reads .75, .25 and 1. Sem2: of Rome x3 and Milan, either half that has Milan leaves or makes one of two, so
    # every split reads .5; four different answers never recur; one answer always does.
    sem1, sem2 = (semantic_confidence(TABLE, GRADES, estimator) for estimator in ("sem1", "sem2"))
    np.testing.assert_allclose(sem1.confidence, [0.75, 0.25, 1.0], rtol=0, atol=1e-15)
    np.testing.assert_allclose(sem2.confidence, [0.5, 0.0, 1.0], rtol=0, atol=1e-15)
    for found in (sem1, sem2):
        assert found.correct.tolist() == [False, False, True]
        assert found.modal_class[0] == "Rome"
        assert found.modal_class[1] in TABLE[1]
        assert found.tied.tolist() == [1, 4, 1]
        assert found.n_ties == 1
        assert found.answered.all()
    assert semantic_ece(TABLE, GRADES) == pytest.approx((0.75 + 0.25 + 0.0) / 3)
    assert semantic_ece(TABLE, GRADES, "sem2") == pytest.approx((0.5 + 0.0 + 0.0) / 3)
    # all in one bin: |1/3 - 2/3|
    assert semantic_ece(TABLE, GRADES, n_bins=1) == pytest.approx(1 / 3)


def test_grades_may_be_given_for_questions():
    assert semantic_ece(TABLE, [False, False, True]) == semantic_ece(TABLE, GRADES)
    assert semantic_ece(TABLE, np.array([0, 0, 1]), "sem2") == semantic_ece(TABLE, GRADES, "sem2")
    assert semantic_confidence(TABLE).correct is None


def test_the_modal_class_given_without_grades_is_the_one_to_grade():
    ties = [[0, 1], [5, 6]] * 50
    names = semantic_confidence(ties, seed=3).modal_class
    given = [name in (0, 5) for name in names]
    assert semantic_confidence(ties, given, seed=3).modal_class == names


@pytest.mark.parametrize(
    ("samples", "value"),
    [
        ("AAAAB", 0.8),  # the half of three chooses A; the two others read 1, or 1/2 if B is there (2 of 5): .6 + .2
        ("AAB", 1 / 3),  # AA reads B: 0; AB (2 of 3) ties and reads A: (1 + 0) / 2
        ("ABCA", 1 / 6),  # AA and BC read 0; the four others tie and read (1/2 + 0) / 2
        ("AB", 0.0),
        ("AA", 1.0),
    ],
)
def test_half_splits_in_the_mean(samples, value):
    assert sem2_over_all_splits(samples) == pytest.approx(value)
    confidence = semantic_confidence([list(samples)] * 2000, estimator="sem2").confidence
    # ten splits each have a standard deviation under .5 / sqrt(10); the mean over 2000 questions under .0036
    assert confidence.mean() == pytest.approx(value, abs=0.0125)
    more = semantic_confidence([list(samples)], estimator="sem2", n_splits=20_000).confidence[0]
    assert more == pytest.approx(value, abs=0.0125)


def test_b30_entropies():
    classes, texts = [[0, 0, 0, 0, 1]], [["Rome", "Rome", "Rome", "It's Rome", "Milan"]]
    logs = np.log([[0.5, 0.5, 0.5, 0.2, 0.1]])
    assert semantic_entropy(classes)[0] == pytest.approx(0.500402, abs=1e-6)
    assert semantic_entropy(classes, logs, texts=texts)[0] == pytest.approx(0.376770, abs=1e-6)
    assert semantic_confidence(classes).confidence[0] == 0.8
    # a repeat more changes the frequencies only
    classes, texts, logs = [[0, *classes[0]]], [["Rome", *texts[0]]], [[np.log(0.5), *logs[0]]]
    assert semantic_entropy(classes)[0] == pytest.approx(-(5 / 6 * np.log(5 / 6) + 1 / 6 * np.log(1 / 6)))
    assert semantic_entropy(classes, logs, texts=texts)[0] == pytest.approx(0.376770, abs=1e-6)


def test_entropy_limits():
    assert semantic_entropy([["x"], ["x", "y"], [1, 2, 3, 4]]) == pytest.approx([0.0, np.log(2), np.log(4)])
    assert math.copysign(1, semantic_entropy([["x"]])[0]) == 1.0
    # a class of probability 0 adds nothing; neither does the scale, however small
    assert semantic_entropy([[0, 1, 2]], [[-1.0, -1.0, -np.inf]], texts=[["a", "b", "c"]])[0] == pytest.approx(
        np.log(2)
    )
    tiny = semantic_entropy([[0, 1]], [[-2000.0, -2000.0 + np.log(3)]], texts=[[10, 11]])[0]
    assert tiny == pytest.approx(-(0.25 * np.log(0.25) + 0.75 * np.log(0.75)))
    # the same text from two batches: rounding is not a second text
    near = semantic_entropy([[0, 0, 1]], [[-1.0, -1.0 + 1e-3, -1.0 + 5e-4]], texts=[["a", "a", "b"]])[0]
    assert near == pytest.approx(np.log(2))


# theory and simulation


@pytest.mark.parametrize("p", [(0.5, 0.5), (0.6, 0.3, 0.1), (0.4, 0.2, 0.2, 0.2), (1.0, 0.0)])
@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_small_sample_means_are_those_of_theory(p, n):
    questions = 20_000
    table = drawn(np.random.default_rng(n), p, questions, n)
    sem1, sem2 = (semantic_confidence(table, estimator=name).confidence for name in ("sem1", "sem2"))
    for found, expected in ((sem1, expected_sem1(p, n)), (sem2, expected_sem2(p, n))):
        assert found.mean() == pytest.approx(expected, abs=4.5 * found.std() / np.sqrt(questions) + 1e-12)
    # Sem1 leans upward, Sem2 never does
    assert expected_sem1(p, n) >= max(p) - 1e-12
    assert expected_sem2(p, n) <= max(p) + 1e-12


def test_the_bias_of_a_fair_coin():
    # two samples agree half of the time: (1 + 1/2) / 2
    assert expected_sem1((0.5, 0.5), 2) == 0.75
    assert expected_sem2((0.5, 0.5), 2) == 0.5
    table = drawn(np.random.default_rng(0), (0.5, 0.5), 20_000, 2)
    assert semantic_confidence(table).confidence.mean() == pytest.approx(0.75, abs=0.01)
    assert semantic_confidence(table, estimator="sem2").confidence.mean() == pytest.approx(0.5, abs=0.015)


def test_both_estimators_converge_to_the_true_error():
    # four kinds of question: how sure the model is, and how often its main answer is right
    sure, right = np.array([0.35, 0.55, 0.75, 0.95]), np.array([0.2, 0.5, 0.5, 0.9])
    true_error = np.abs(sure - right).mean()
    rng = np.random.default_rng(4)
    kind = np.repeat(np.arange(4), 100)
    main_right = np.tile(np.arange(100) / 100, 4) < right[kind]
    pool = np.stack([rng.choice(4, 1600, p=[sure[k], *[(1 - sure[k]) / 3] * 3]) for k in kind])
    grades = (pool == 0) & main_right[:, None]  # class 0 is the main answer
    errors = {}
    for n in (4, 16, 100, 1600):
        for name in ("sem1", "sem2"):
            errors[name, n] = abs(semantic_ece(pool[:, :n], grades[:, :n], name) - true_error)
    assert true_error == pytest.approx(0.125)
    for name in ("sem1", "sem2"):
        assert errors[name, 1600] < 0.01
        assert errors[name, 4] > 5 * errors[name, 1600]
        assert errors[name, 100] < errors[name, 4]


def test_ties_are_broken_evenly_whatever_stands_first():
    for grades in ([1, 0, 0, 0], [0, 0, 0, 1]):
        for names in ([0, 1, 2, 3], ["d", "c", "b", "a"]):
            found = semantic_confidence([names] * 4000, [grades] * 4000)
            assert found.correct.mean() == pytest.approx(0.25, abs=0.03)
            shares = Counter(found.modal_class)
            assert all(shares[name] / 4000 == pytest.approx(0.25, abs=0.03) for name in names)
            right = {names[grades.index(1)]}
            assert {m for m, y in zip(found.modal_class, found.correct, strict=True) if y} == right


# plain loops


def test_against_plain_loops():
    rng = np.random.default_rng(5)
    table = [rng.choice(list("abcde"), rng.integers(2, 14), p=[0.4, 0.3, 0.1, 0.1, 0.1]).tolist() for _ in range(150)]
    ids = [f"question {i}" for i in range(150)]
    found = semantic_confidence(table, estimator="sem2", seed=9, ids=ids, n_splits=7).confidence
    plain = [sem2_plain(row, name, 9, 7) for row, name in zip(table, ids, strict=True)]
    np.testing.assert_allclose(found, plain, rtol=0, atol=1e-12)
    once = [max(row.count(name) for name in row) / len(row) for row in table]
    np.testing.assert_allclose(semantic_confidence(table).confidence, once, rtol=0, atol=1e-15)
    entropy = [-sum(c / len(row) * math.log(c / len(row)) for c in Counter(row).values()) for row in table]
    np.testing.assert_allclose(semantic_entropy(table), entropy, rtol=0, atol=1e-12)
    right = [[name in "ac" for name in row] for row in table]
    graded = semantic_confidence(table, right, estimator="sem2", seed=9, ids=ids, n_splits=7)
    assert [name in "ac" for name in graded.modal_class] == graded.correct.tolist()
    for row, name, tied in zip(table, graded.modal_class, graded.tied, strict=True):
        counts = Counter(row)
        assert counts[name] == max(counts.values())
        assert tied == sum(c == counts[name] for c in counts.values())
    error = semantic_ece(table, right, "sem2", seed=9, ids=ids, n_splits=7, n_bins=6)
    assert error == expected_calibration_error(plain, graded.correct, 6)


def test_blocks_of_questions_give_what_one_question_gives():
    rng = np.random.default_rng(6)
    table = rng.integers(0, 20, (9000, 50))  # several blocks
    found = semantic_confidence(table, estimator="sem2").confidence
    for i in (0, 7999, 8000, 8999):
        assert found[i] == pytest.approx(sem2_plain(table[i].tolist(), str(i), 0, 10), abs=1e-12)


# invariance


@settings(max_examples=60, deadline=None)
@given(WORDS, st.integers(0, 10**6), st.sampled_from(["sem1", "sem2"]))
def test_order_and_names_change_nothing(table, shuffle, estimator):
    rng = np.random.default_rng(shuffle)
    right = rng.random((len(table), 4)) < 0.5
    grades = [[bool(right[i, name]) for name in row] for i, row in enumerate(table)]
    ids = [f"q{i}" for i in range(len(table))]
    found = semantic_confidence(table, grades, estimator, ids=ids)
    error = semantic_ece(table, grades, estimator, ids=ids)
    entropy = semantic_entropy(table)

    places = [rng.permutation(len(row)) for row in table]
    renamed = [{name: f"class {new}" for name, new in enumerate(rng.permutation(4))} for _ in table]
    new_table = [[renamed[i][row[k]] for k in places[i]] for i, row in enumerate(table)]
    new_grades = [[row[k] for k in places[i]] for i, row in enumerate(grades)]
    order = rng.permutation(len(table))
    new_table, new_grades, new_ids = ([x[i] for i in order] for x in (new_table, new_grades, ids))
    again = semantic_confidence(new_table, new_grades, estimator, ids=new_ids)
    np.testing.assert_array_equal(again.confidence, found.confidence[order])
    np.testing.assert_array_equal(again.correct, found.correct[order])
    np.testing.assert_array_equal(again.tied, found.tied[order])
    assert semantic_ece(new_table, new_grades, estimator, ids=new_ids) == pytest.approx(error, abs=1e-12)
    np.testing.assert_allclose(semantic_entropy(new_table), entropy[order], rtol=0, atol=1e-12)


def test_the_name_drawn_in_a_tie_is_that_of_no_place():
    table = [[1, "1", "b", 2]] * 100
    names = semantic_confidence(table).modal_class
    assert semantic_confidence([row[::-1] for row in table]).modal_class == names
    assert set(map(repr, names)) == {"1", "'1'", "'b'", "2"}


def test_draws_belong_to_seed_and_id():
    rng = np.random.default_rng(7)
    table = rng.integers(0, 3, (40, 9))
    ids = [f"q{i}" for i in range(40)]
    first = semantic_confidence(table, estimator="sem2", ids=ids).confidence
    np.testing.assert_array_equal(
        first[10:], semantic_confidence(table[10:], estimator="sem2", ids=ids[10:]).confidence
    )
    assert (first != semantic_confidence(table, estimator="sem2", ids=ids, seed=1).confidence).any()
    assert (first != semantic_confidence(table, estimator="sem2").confidence).any()
    # questions with the same answers do not share their splits
    assert len(set(semantic_confidence([[0, 0, 0, 1, 1, 2, 2, 3]] * 30, estimator="sem2").confidence)) > 5


@settings(max_examples=40, deadline=None)
@given(WORDS, st.integers(0, 10**6))
def test_repeated_samples_change_no_likelihood(table, seed):
    rng = np.random.default_rng(seed)
    logs = -rng.exponential(3, (len(table), 4))
    texts = [[f"text {name}" for name in row] for row in table]
    classes = [[name % 2 for name in row] for row in table]
    values = [[logs[i, name] for name in row] for i, row in enumerate(table)]
    doubled = [[*row, *row, row[0]] for row in (*classes, *values, *texts)]
    m = len(table)
    np.testing.assert_allclose(
        semantic_entropy(doubled[:m], doubled[m : 2 * m], texts=doubled[2 * m :]),
        semantic_entropy(classes, values, texts=texts),
        rtol=0,
        atol=1e-12,
    )
    plain = []
    for i, row in enumerate(table):
        p = np.zeros(2)
        for name in set(row):
            p[name % 2] += np.exp(logs[i, name])
        q = p / p.sum()
        plain.append(-sum(x * np.log(x) for x in q if x > 0))
    np.testing.assert_allclose(semantic_entropy(classes, values, texts=texts), plain, rtol=0, atol=1e-9)


# faults


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: semantic_ece(TABLE, None), "correct: expected grades"),
        (lambda: semantic_ece(TABLE, GRADES, "sem3"), "estimator: expected 'sem1' or 'sem2', got 'sem3'"),
        (lambda: semantic_ece([["a", "b"], ["c"]], [1, 1], "sem2"), r"class_ids\[1\] has one sample"),
        (lambda: semantic_ece(TABLE, GRADES, "sem2", n_splits=0), "n_splits"),
        (lambda: semantic_ece(TABLE, GRADES, n_bins=0), "n_bins"),
        (lambda: semantic_ece(TABLE, GRADES, seed=0.5), "seed: expected an integer"),
        (lambda: semantic_entropy([[0]], [[-1.0]]), "texts: expected log_probabilities and texts together"),
        (lambda: semantic_entropy([[0]], texts=[["a"]]), "log_probabilities: expected"),
        (lambda: semantic_entropy([[0, 0]], [[-1.0, math.nan]], texts=[["a", "b"]]), r"\[0\]\[1\] is nan"),
        (lambda: semantic_entropy([[0], [0]], [[-1.0], [0.5]], texts=[["a"], ["b"]]), r"\[1\]\[0\] is 0.5"),
        (lambda: semantic_entropy([[0]], [[math.inf]], texts=[["a"]]), r"\[0\]\[0\] is inf"),
        (lambda: semantic_entropy([[0]], [[-math.inf]], texts=[["a"]]), r"\[0\] are all -inf"),
        (lambda: semantic_entropy([[0, 1]], [[-1.0, -1.0]], texts=[["a", "a"]]), "'a' is in several classes"),
        (lambda: semantic_entropy([[0, 0]], [[-1.0, -2.0]], texts=[["a", "a"]]), "'a' has -2 and -1"),
        (lambda: semantic_entropy([[0, 0]], [[-1.0, -math.inf]], texts=[["a", "a"]]), "'a' has -inf and -1"),
        (lambda: semantic_entropy([[0, 0]], [[-1.0]], texts=[["a", "b"]]), "question 0: expected 2 texts"),
        (lambda: semantic_entropy([[0, 0]], [["x", "y"]], texts=[["a", "b"]]), "question 0: .* real log-prob"),
        (lambda: semantic_entropy([[0]], [[-1.0]], texts=[[None]]), r"texts\[0\]\[0\] is None"),
        (lambda: semantic_entropy([[0]], [[-1.0]], texts=[["a"], ["b"]]), "texts has 2 questions"),
        (lambda: semantic_entropy([[0]], [-1.0], texts=[["a"]]), r"log_probabilities\[0\] is -1.0"),
        (lambda: semantic_entropy([[math.nan]]), r"class_ids\[0\]\[0\] is nan"),
    ],
)
def test_faults(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_public_names():
    assert calmtune.semantic_ece is semantic_ece
    assert calmtune.semantic_entropy is semantic_entropy
