"""Batches of encoded rows as dictionaries of tensors.

Multiple choice is laid out as a tree: an item's prompt stands once, followed by its options as branches, each of which
sees the prompt and itself alone. A branch holds an option's tokens without the last, which is only ever predicted::

    tokens     q q q | a1 a2 | b1          options a1 a2 a3 and b1 b2; c1 is an option of one token
    segments   0 0 0 | 1  1  | 2
    positions  0 1 2 | 3  4  | 3

The first token of every option is read at the prompt's last position, token k at the branch position of token k - 1.
Options of one token (letters) therefore add nothing to the input, and letters and texts are the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from calmtune.data.prompts import EncodedItem, EncodedSequence

Batch = dict[str, Any]

PADDING = -1


def collate_items(items: Sequence[EncodedItem], pad_id: int, max_length: int | None = None) -> Batch:
    """Lay multiple-choice items out as trees, one row an item, padded on the right.

    Args:
        items: at least one.
        pad_id: token put into padding; nothing reads it.
        max_length: most tokens a prompt with one option may have.

    Returns:
        Tensors, with B items, L the longest row, K the most options, Q read positions and P option tokens in all:

        * ``input_ids``, ``position_ids``, ``segments`` int64 [B, L]: segment 0 is the prompt, j the branch of option
          j - 1, -1 padding; positions go on from the prompt in every branch.
        * ``read_index`` int64 [Q]: sorted flat indices ``row * L + column`` whose next-token distribution is read.
        * ``token_read``, ``token_target``, ``token_option`` int64 [P]: for each option token where in ``read_index`` it
          is predicted, its id, and its option as ``item * K + option``.
        * ``option_mask`` bool [B, K]; ``option_tokens``, ``option_bytes`` int64 [B, K], 0 where absent; ``labels``
          int64 [B].
        * ``letter`` bool: every item is scored by single letters, so that scores are logits; else log-probabilities.
        * ``kind`` ``"options"`` and ``ids``, the items' ids.

    Raises:
        ValueError: no items, or one longer than ``max_length``.

    >>> item = EncodedItem("q", "", [5, 6], [[7, 8], [9]], [2, 1], 0, "toy", "text")
    >>> batch = collate_items([item], pad_id=0)
    >>> batch["input_ids"].tolist(), batch["segments"].tolist(), batch["read_index"].tolist()
    ([[5, 6, 7]], [[0, 0, 1]], [1, 2])
    """
    _refuse_empty(items)
    for item in items:
        _check_length(item.id, len(item.prompt_ids) + max(map(len, item.option_ids)), max_length)
    rows = [_tree(item) for item in items]
    tokens, positions, segments = (
        _pad([row[part] for row in rows], fill) for part, fill in ((0, pad_id), (1, 0), (2, PADDING))
    )
    width, options = tokens.shape[1], max(len(item.option_ids) for item in items)
    read: list[int] = []
    token_read: list[int] = []
    token_target: list[int] = []
    token_option: list[int] = []
    for index, item in enumerate(items):
        prompt_end = len(item.prompt_ids) - 1
        prompt_read, column = len(read), prompt_end
        read.append(index * width + prompt_end)
        for option, ids in enumerate(item.option_ids):
            for place, token in enumerate(ids):
                if place > 0:
                    column += 1
                    read.append(index * width + column)
                token_read.append(prompt_read if place == 0 else len(read) - 1)
                token_target.append(token)
                token_option.append(index * options + option)
    return {
        "kind": "options",
        "ids": [item.id for item in items],
        "input_ids": tokens,
        "position_ids": positions,
        "segments": segments,
        "read_index": _tensor(read),
        "token_read": _tensor(token_read),
        "token_target": _tensor(token_target),
        "token_option": _tensor(token_option),
        "option_mask": _pad([[1] * len(item.option_ids) for item in items], 0).bool(),
        "option_tokens": _pad([[len(ids) for ids in item.option_ids] for item in items], 0),
        "option_bytes": _pad([item.option_bytes for item in items], 0),
        "labels": _tensor([item.label for item in items]),
        "letter": all(item.scoring == "letter" for item in items),
    }


def collate_sequences(sequences: Sequence[EncodedSequence], pad_id: int, max_length: int | None = None) -> Batch:
    """Stack prompts with their answers, padded on the right.

    Args:
        sequences: at least one.
        pad_id: token put into padding; nothing reads it.
        max_length: most tokens of a sequence.

    Returns:
        Tensors, with B rows, L the longest and Q answer tokens in all:

        * ``input_ids``, ``position_ids``, ``segments`` int64 [B, L]: segment 0 is text, -1 padding.
        * ``read_index`` int64 [Q]: sorted flat indices of the positions whose next token belongs to an answer;
          ``token_target`` int64 [Q]: that token; ``row_of_read`` int64 [Q]: its row; ``first_read`` bool [Q]: it is the
          answer's first.
        * ``letter_ids`` int64 [B, K], only if every row has them: ids of the item's letters, -1 where absent.
        * ``kind`` ``"tokens"`` and ``ids``, the rows' ids.

    Raises:
        ValueError: no rows, one longer than ``max_length``, or one without a prompt or an answer.

    >>> batch = collate_sequences([EncodedSequence("r", [5, 6, 7, 8], 2, "toy", "")], pad_id=0)
    >>> batch["read_index"].tolist(), batch["token_target"].tolist(), batch["first_read"].tolist()
    ([1, 2], [7, 8], [True, False])
    """
    _refuse_empty(sequences)
    for row in sequences:
        _check_length(row.id, len(row.input_ids), max_length)
        if not 0 < row.answer_start < len(row.input_ids):
            raise ValueError(
                f"row {row.id!r}: the answer starts at {row.answer_start} of {len(row.input_ids)} tokens; "
                "expected at least one token before it and one in it"
            )
    tokens = _pad([row.input_ids for row in sequences], pad_id)
    lengths = torch.tensor([len(row.input_ids) for row in sequences])[:, None]
    columns = torch.arange(tokens.shape[1])[None, :].expand_as(tokens)
    starts = torch.tensor([row.answer_start for row in sequences])[:, None]
    real = columns < lengths
    row_of_read, column_of_read = ((columns >= starts - 1) & (columns < lengths - 1)).nonzero(as_tuple=True)
    batch: Batch = {
        "kind": "tokens",
        "ids": [row.id for row in sequences],
        "input_ids": tokens,
        "position_ids": torch.where(real, columns, 0),
        "segments": torch.where(real, 0, PADDING),
        "read_index": row_of_read * tokens.shape[1] + column_of_read,
        "token_target": tokens[row_of_read, column_of_read + 1],
        "first_read": column_of_read == starts[row_of_read, 0] - 1,
        "row_of_read": row_of_read,
    }
    if all(row.letter_ids for row in sequences):
        batch["letter_ids"] = _pad([list(row.letter_ids) for row in sequences], -1)
    return batch


def tree_length(item: EncodedItem) -> int:
    """Tokens an item takes in a batch: its prompt and its options without their last tokens."""
    return len(item.prompt_ids) + sum(len(ids) - 1 for ids in item.option_ids)


def _tree(item: EncodedItem) -> tuple[list[int], list[int], list[int]]:
    """Tokens, positions and segments of one item, unpadded."""
    start = len(item.prompt_ids)
    tokens, positions, segments = list(item.prompt_ids), list(range(start)), [0] * start
    for branch, ids in enumerate(item.option_ids, start=1):
        tokens += ids[:-1]
        positions += range(start, start + len(ids) - 1)
        segments += [branch] * (len(ids) - 1)
    return tokens, positions, segments


def _pad(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
    width = max(map(len, rows))
    return _tensor([[*row, *[fill] * (width - len(row))] for row in rows])


def _tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)


def _refuse_empty(rows: Sequence[Any]) -> None:
    if not rows:
        raise ValueError("expected at least one row to collate, got none")


def _check_length(row_id: str, length: int, max_length: int | None) -> None:
    if max_length is not None and length > max_length:
        raise ValueError(f"row {row_id!r} has {length} tokens, more than max_length {max_length}; rows are never cut")
