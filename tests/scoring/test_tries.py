"""The layout of tries: every token once, seeing what its option sees."""

import random

import pytest
import torch

from calmtune.data.prompts import EncodedItem
from calmtune.scoring.batches import halve_until_it_fits, plan_batches
from calmtune.scoring.tries import collate_tries, shared_prefix, trie_length, visible


def item(prompt, options, name="q", scoring="text"):
    return EncodedItem(name, "", list(prompt), [list(ids) for ids in options], [1] * len(options), 0, "toy", scoring)


def random_items(count, seed=0):
    """Items whose options share beginnings, are beginnings of each other, and are sometimes equal."""
    rng = random.Random(seed)
    return [
        item(
            [1, 2, *(rng.randrange(3, 9) for _ in range(rng.randrange(1, 6)))],
            [[rng.randrange(3) for _ in range(rng.randrange(1, 5))] for _ in range(rng.randrange(2, 7))],
            f"q{index}",
        )
        for index in range(count)
    ]


@pytest.mark.parametrize("skip", [0, 2])
def test_every_option_token_is_read_where_exactly_what_precedes_it_is_seen(skip):
    items = random_items(20)
    batch = collate_tries(items, pad_id=99, skip=skip)
    length = batch["input_ids"].shape[1]
    sees = visible(batch["last"], 0, length, skip)
    found = {}
    for place, token, option in zip(
        *(batch[key].tolist() for key in ("token_read", "token_target", "token_option")), strict=True
    ):
        row, column = divmod(batch["read_index"][place].item(), length)
        assert sees[row, column, :skip].all()
        keys = sees[row, column, skip:].nonzero().squeeze(1)
        # each key at the position after the one before it, and the query itself the last
        assert batch["position_ids"][row, keys].tolist() == list(range(skip, skip + len(keys)))
        assert keys[-1] == column
        found.setdefault(option, []).append((batch["input_ids"][row, keys].tolist(), token))
    most = max(len(one.option_ids) for one in items)
    for index, one in enumerate(items):
        for option, ids in enumerate(one.option_ids):
            whole = one.prompt_ids + ids
            start = len(one.prompt_ids)
            expected = [(whole[skip : start + k], token) for k, token in enumerate(ids)]
            assert found.pop(index * most + option) == expected
    assert not found


def test_every_beginning_stands_once():
    for one in random_items(30, seed=1):
        beginnings = {tuple(ids[:k]) for ids in one.option_ids for k in range(1, len(ids))}
        assert trie_length(one) == len(one.prompt_ids) + len(beginnings)
        batch = collate_tries([one], 0)
        assert batch["input_ids"].shape[1] == trie_length(one)
        assert len(batch["read_index"]) == 1 + len(beginnings)
        assert batch["branches"] == bool(beginnings)


def test_a_padded_query_sees_itself_and_nothing_of_its_row():
    batch = collate_tries([item([5], [[1], [2]]), item([5, 6, 7], [[1], [2]])], 0)
    assert visible(batch["last"], 1, 3, 1)[0].tolist() == [[True, False, True, False], [True, False, False, True]]


def test_shared_prefixes():
    assert shared_prefix([item([1, 2, 3], [[1], [2]]), item([1, 2, 4], [[1], [2]])]) == [1, 2]
    assert shared_prefix([item([1, 2], [[1], [2]])] * 2) == [1]  # the last token of a prompt is read
    assert shared_prefix([item([1], [[1], [2]]), item([2], [[1], [2]])]) == []


def test_rows_much_shorter_than_a_batchs_longest_wait_for_the_next_one():
    items = [item(range(n), [[1], [2]]) for n in (100, 99, 98, 50, 49, 48)]
    assert plan_batches(items, 400) == [[0, 1, 2], [3, 4, 5]]
    assert plan_batches(items, 1000) == [[0, 1, 2], [3, 4, 5]]
    # a batch that is hardly begun is filled all the same
    assert plan_batches(items, 10**6) == [[0, 1, 2, 3, 4, 5]]
    assert plan_batches(items, 400, skip=48) == [[0, 1, 2], [3, 4, 5]]
    assert plan_batches(items, 99) == [[0], [1], [2], [3], [4, 5]]


def test_what_does_not_fit_is_halved_and_an_item_alone_cut():
    calls = []

    def score(items, most_tokens):
        calls.append((len(items), most_tokens))
        if len(items) > 2 or most_tokens > 100:
            raise torch.OutOfMemoryError("no room")
        return [one * 10 for one in items]

    assert halve_until_it_fits(score, [1, 2, 3, 4, 5], 80) == [10, 20, 30, 40, 50]
    assert calls == [(5, 80), (3, 80), (2, 80), (1, 80), (2, 80)]
    assert halve_until_it_fits(score, [7], 400) == [70]
    assert calls[-3:] == [(1, 400), (1, 200), (1, 100)]
    with pytest.raises(torch.OutOfMemoryError, match="no room"):
        halve_until_it_fits(score, [7], 400, fewest_tokens=150)
