"""Multiple choice laid out for scoring: what options begin with alike is there once, and so is what prompts do.

A row is an item's prompt followed by the tree of its options' first tokens, each token standing once however many
options go through it, in an order in which every token is followed by all that continues it::

    options          a b c | a b d | a e f | g      (the last token of an option is only ever predicted)
    tokens           q q q a b e
    last column      5 5 5 5 4 5                    that continues the token

Key k is then visible to query q exactly if k <= q <= last[k]. The tokens that all prompts begin with can be left out of
the rows; they are in the model's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from calmtune.data.encoding import PADDING, Batch
from calmtune.data.prompts import EncodedItem


def shared_prefix(items: Sequence[EncodedItem]) -> list[int]:
    """The tokens that all prompts begin with, without any prompt's last, which is read.

    >>> a, b = (EncodedItem(name, "", ids, [[1], [2]], [1, 1], 0, "", "text") for name, ids in
    ...         (("a", [7, 8, 9]), ("b", [7, 8])))
    >>> shared_prefix([a, b]), shared_prefix([a])
    ([7], [])
    """
    if len(items) < 2:
        return []
    prompts = [item.prompt_ids for item in items]
    first, most = prompts[0], min(map(len, prompts)) - 1
    alike = takewhile(lambda column: all(ids[column] == first[column] for ids in prompts), range(most))
    return [first[column] for column in alike]


def trie_length(item: EncodedItem) -> int:
    """Columns of an item's row, the shared prefix included: its prompt, and each different beginning of an option."""
    return len(item.prompt_ids) + len(_grow(item.option_ids)[0])


def collate_tries(items: Sequence[EncodedItem], pad_id: int, skip: int = 0) -> Batch:
    """Lay items out for scoring, one row an item, padded on the right.

    Args:
        items: at least one.
        pad_id: token put into padding; nothing reads it.
        skip: how many tokens of every prompt are left out, being in the cache.

    Returns:
        What :func:`~calmtune.data.encoding.collate_items` gives, apart from ``segments``, whose place take ``last``
        int64 [B, L], the last column that continues a token (-1 in padding), and ``branches``, whether any row has a
        branch. ``read_index`` has every position once, and different options may read the same one.

    >>> item = EncodedItem("q", "", [5, 6], [[7, 8, 1], [7, 9], [4]], [1, 1, 1], 0, "toy", "text")
    >>> batch = collate_tries([item], 0)
    >>> batch["input_ids"].tolist(), batch["last"].tolist(), batch["position_ids"].tolist()
    ([[5, 6, 7, 8]], [[3, 3, 3, 3]], [[0, 1, 2, 3]])
    >>> batch["read_index"].tolist(), batch["token_read"].tolist(), batch["token_option"].tolist()
    ([1, 2, 3], [0, 1, 2, 0, 1, 0], [0, 0, 0, 1, 1, 2])
    """
    grown = [_grow(item.option_ids) for item in items]
    starts = [len(item.prompt_ids) - skip for item in items]
    width = max(start + len(tokens) for start, (tokens, *_) in zip(starts, grown, strict=True))
    options = max(len(item.option_ids) for item in items)
    rows: list[tuple[list[int], list[int], list[int]]] = []
    read: list[int] = []
    targets: list[tuple[int, int, int]] = []  # position in read, token, option
    for index, (item, start, (tokens, depth, ends, paths)) in enumerate(zip(items, starts, grown, strict=True)):
        end = start + len(tokens) - 1
        rows.append(
            (
                item.prompt_ids[skip:] + tokens,
                [*range(skip, skip + start), *(skip + start + deep for deep in depth)],
                [end] * start + [start + node for node in ends],
            )
        )
        first = len(read)  # node n is read at first + 1 + n
        read += [index * width + start - 1 + place for place in range(len(tokens) + 1)]
        for option, (ids, path) in enumerate(zip(item.option_ids, paths, strict=True)):
            places = [first, *(first + 1 + node for node in path)]
            targets += [(place, token, index * options + option) for place, token in zip(places, ids, strict=True)]
    columns = zip(*targets, strict=True)
    token_read, token_target, token_option = (_tensor(column) for column in columns)
    input_ids, positions, last = (
        _pad([row[part] for row in rows], fill) for part, fill in enumerate((pad_id, 0, PADDING))
    )
    return {
        "kind": "options",
        "ids": [item.id for item in items],
        "input_ids": input_ids,
        "position_ids": positions,
        "last": last,
        "branches": any(tokens for tokens, *_ in grown),
        "read_index": _tensor(read),
        "token_read": token_read,
        "token_target": token_target,
        "token_option": token_option,
        "option_mask": _pad([[1] * len(item.option_ids) for item in items], 0).bool(),
        "option_tokens": _pad([[len(ids) for ids in item.option_ids] for item in items], 0),
        "option_bytes": _pad([item.option_bytes for item in items], 0),
        "labels": _tensor([item.label for item in items]),
        "letter": all(item.scoring == "letter" for item in items),
    }


def visible(last: Tensor, start: int, stop: int, before: int) -> Tensor:
    """Which keys the queries of columns ``start`` to ``stop`` may see.

    Args:
        last: int64 [B, L], see :func:`collate_tries`.
        before: tokens in the cache ahead of column 0; all of them are visible.

    Returns:
        bool [B, stop - start, before + stop]. A padded query sees itself, so that no softmax is over nothing.
    """
    query = torch.arange(start, stop, device=last.device)[:, None]
    key = torch.arange(stop, device=last.device)[None, :]
    own = (key <= query) & (query <= last[:, None, :stop]) | (key == query)
    return torch.nn.functional.pad(own, (before, 0), value=True)


def _grow(option_ids: Sequence[Sequence[int]]) -> tuple[list[int], list[int], list[int], list[list[int]]]:
    """The tree of the options without their last tokens: token, depth and last continuing node of each node, and each
    option's way through the nodes."""
    tokens: list[int] = []
    depth: list[int] = []
    last: list[int] = []
    node_of: dict[tuple[int, int], int] = {}
    paths: list[list[int]] = [[] for _ in option_ids]
    # in sorted order all that continues a token follows it before anything else does
    for option in sorted(range(len(option_ids)), key=lambda index: list(option_ids[index])):
        node = -1
        for deep, token in enumerate(option_ids[option][:-1]):
            step = (node, token)
            if step not in node_of:
                node_of[step] = len(tokens)
                tokens.append(token)
                depth.append(deep)
                last.append(0)
            node = node_of[step]
            paths[option].append(node)
        for passed in paths[option]:
            last[passed] = len(tokens) - 1
    return tokens, depth, last, paths


def _pad(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
    width = max(map(len, rows))
    return _tensor([[*row, *[fill] * (width - len(row))] for row in rows])


def _tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)
