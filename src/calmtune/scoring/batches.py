"""Which items are scored together, and what happens when they do not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from calmtune.data.prompts import EncodedItem
from calmtune.scoring.tries import trie_length

Result = TypeVar("Result")

SHORTEST_SHARE, FULL_SHARE = 0.9, 0.25
"""A batch that is this full takes no row shorter than this share of its longest: padding costs as much as text."""


def plan_batches(items: Sequence[EncodedItem], batch_tokens: int, skip: int = 0) -> list[list[int]]:
    """Indices of the items of each batch: like with like in scoring and length, the longest first.

    Args:
        items: any number.
        batch_tokens: most tokens of a padded batch; a longer item is a batch by itself.
        skip: tokens of every prompt that are in the cache, and so in no batch.

    >>> a, b = (EncodedItem(name, "", [1] * n, [[1], [2]], [1, 1], 0, "", "text") for name, n in (("a", 2), ("b", 5)))
    >>> plan_batches([a, b, a], 8)
    [[1], [0, 2]]
    """
    if batch_tokens < 1:
        raise ValueError(f"batch_tokens must be >= 1, got {batch_tokens}")
    length = [trie_length(item) - skip for item in items]
    order = sorted(range(len(items)), key=lambda index: (items[index].scoring, -length[index], index))
    batches: list[list[int]] = []
    for index in order:
        batch = batches[-1] if batches else []
        # scores of letters are logits and of sequences log-probabilities, so the two never share a batch
        if batch and items[batch[0]].scoring == items[index].scoring:
            width, rows = length[batch[0]], len(batch)
            padded = length[index] < SHORTEST_SHARE * width and rows * width >= FULL_SHARE * batch_tokens
            if (rows + 1) * width <= batch_tokens and not padded:
                batch.append(index)
                continue
        batches.append([index])
    return batches


def halve_until_it_fits(
    score: Callable[[Sequence[EncodedItem], int], list[Result]],
    items: Sequence[EncodedItem],
    most_tokens: int,
    fewest_tokens: int = 32,
) -> list[Result]:
    """Score a batch; when the device runs out of memory, its halves, and an item alone in shorter passes.

    Args:
        score: takes items and the most tokens of one pass, and gives a result an item.
        fewest_tokens: of a pass; what does not fit then does not fit at all.

    Raises:
        torch.OutOfMemoryError: an item alone does not fit in the shortest passes.
    """
    try:
        return score(items, most_tokens)
    except torch.OutOfMemoryError:
        if len(items) == 1 and most_tokens <= fewest_tokens:
            raise
    # out of the handler, so that the error no longer holds on to what it was raised over
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if len(items) == 1:
        return halve_until_it_fits(score, items, max(fewest_tokens, most_tokens // 2), fewest_tokens)
    middle = (len(items) + 1) // 2
    return [
        one
        for part in (items[:middle], items[middle:])
        for one in halve_until_it_fits(score, part, most_tokens, fewest_tokens)
    ]
