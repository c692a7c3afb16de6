"""Multiple choice: run a model over items once and keep the options' scores.

The scores of an item depend on the item alone: not on the batch it came in, the padding, dropout, or an interruption.
"""

from __future__ import annotations

import string
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from calmtune.bilevel.adjustment import LogitAdjustment
from calmtune.data.prompts import EncodedItem, Renderer
from calmtune.data.rows import MultipleChoice
from calmtune.jsonl import content_digest
from calmtune.modeling.reading import (
    Normalisation,
    adjusted_scores,
    causal_lm,
    eval_mode,
    option_scores,
)
from calmtune.predictions import Prediction, Predictions, append_predictions, open_predictions, save_predictions
from calmtune.scoring.about import about_adjustment, about_model
from calmtune.scoring.batches import halve_until_it_fits
from calmtune.scoring.reader import ItemReader

Level = Literal["options", "vocabulary"]
Progress = Callable[[int, int], None]

TIE_RULE = "sha256(item id, option index)"
LOW_OPTION_MASS = 0.5


def score_items(
    model: nn.Module,
    rows: Sequence[MultipleChoice],
    renderer: Renderer,
    *,
    batch_tokens: int | None = None,
    adjustment: LogitAdjustment | None = None,
    level: Level = "options",
    normalisation: Normalisation = "sum",
    token_entropy: bool = False,
    max_length: int | None = None,
    path: Path | None = None,
    about: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Predictions:
    """Score every option of every row, raw and (with an adjustment) adjusted from the same forward pass.

    Args:
        model: a causal language model, wrapped by PEFT or not; in eval mode while it scores, as it was afterwards.
        rows: with distinct ids.
        renderer: how questions are put; its tokenizer must be the model's.
        batch_tokens: most tokens, padding included, that the model is given at once; a longer item is given in pieces.
            Changes speed and memory only. None finds a number for the device. What does not fit into a GPU's memory is
            halved until it does.
        adjustment: alpha = (l, tau), or None.
        level: what alpha has a class for: an ``options`` index, or a token of the ``vocabulary``.
        normalisation: of text scores: ``sum``, or mean per ``token`` or ``byte``. Single letters are not normalised.
        token_entropy: also keep the mean entropy of the vocabulary distribution where options are read (slower).
        max_length: most tokens a prompt with one option may have; None is the model's limit.
        path: file to keep finished items in. An interrupted run goes on where it stopped, and gives the same file.
        about: more settings for the record, JSON values, e.g. the model's name and revision.
        progress: called with (items done, items in all) after each batch that was scored.

    Returns:
        Predictions in the order of ``rows``; ``meta`` holds what decided the scores.

    Raises:
        ValueError: naming the row or setting: no rows, an id twice, a row that cannot be encoded, more options than
            alpha has classes, or a ``path`` that holds the results of other settings.

    Warns:
        UserWarning: letters hold less than half of the model's probability on average.
    """
    how = _How(
        None if adjustment is None or adjustment.is_identity else adjustment, level, normalisation, token_entropy
    )
    limit = max_length if max_length is not None else getattr(causal_lm(model).config, "max_position_embeddings", None)
    items = [renderer.multiple_choice(row, limit) for row in rows]
    _check(items, how)
    if batch_tokens is not None and batch_tokens < 1:
        raise ValueError(f"batch_tokens must be >= 1, got {batch_tokens}")
    meta = _meta(model, renderer, items, how) | dict(about or {})
    done = {item.id: item for item in (open_predictions(path, meta) if path else ())}
    if len(done) < len(items):
        pad_id = renderer.tokenizer.pad_token_id or 0  # nothing reads it
        with eval_mode(model), torch.no_grad():
            _score_rest(ItemReader(model, items, pad_id, batch_tokens), items, done, how, path, progress)
    predictions = Predictions(tuple(done[item.id] for item in items), meta)
    if path:
        save_predictions(path, predictions)
    _warn_low_mass(predictions, items)
    return predictions


def _score_rest(
    reader: ItemReader,
    items: Sequence[EncodedItem],
    done: dict[str, Prediction],
    how: _How,
    path: Path | None,
    progress: Progress | None,
) -> None:
    """Score what is not yet ``done``, batch by batch, and put it there and into the file."""
    score = partial(_score, reader, how)
    for indices in reader.batches:
        encoded = [items[index] for index in indices]
        # a batch is scored as a whole even when a part of it is done, so that every number comes from the same sums
        if all(item.id in done for item in encoded):
            continue
        new = [item for item in halve_until_it_fits(score, encoded, reader.most_tokens) if item.id not in done]
        if path:
            append_predictions(path, new)
        done |= {item.id: item for item in new}
        if progress:
            progress(len(done), len(items))


@dataclass(frozen=True)
class _How:
    adjustment: LogitAdjustment | None
    level: Level
    normalisation: Normalisation
    token_entropy: bool

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("level", self.level, get_args(Level)),
            ("normalisation", self.normalisation, get_args(Normalisation)),
        ):
            if value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")


def _score(reader: ItemReader, how: _How, items: Sequence[EncodedItem], most_tokens: int) -> list[Prediction]:
    """The predictions of one batch; its tokens go through the model's trunk once."""
    model = reader.model
    batch, hidden = reader.read(items, most_tokens)
    # letters of several tokens are scored by the sum whatever the normalisation of texts
    normalisation: Normalisation = how.normalisation if items[0].scoring == "text" else "sum"
    raw = option_scores(model, batch, normalisation=normalisation, hidden=hidden, entropy=how.token_entropy)
    raw = replace(raw, scores=_tie(raw.scores, items))
    scores = raw.scores
    adjusted = adjusted_scores(model, batch, raw, how.adjustment, how.level, normalisation=normalisation, hidden=hidden)
    if adjusted is not None and how.level == "vocabulary":
        adjusted = _tie(adjusted, items)
    entropy = torch.full((len(items),), torch.nan) if raw.token_entropy is None else raw.token_entropy
    table = zip(
        items,
        scores.tolist(),
        [None] * len(items) if adjusted is None else adjusted.tolist(),
        raw.option_mass.float().tolist(),
        entropy.float().tolist(),
        strict=True,
    )
    return [
        Prediction(
            id=item.id,
            domain=item.domain,
            label=item.label,
            scores=tuple(own[: len(item.option_ids)]),
            adjusted=None if changed is None else tuple(changed[: len(item.option_ids)]),
            option_mass=mass,
            token_entropy=nats,
            tokens=tuple(map(len, item.option_ids)),
        )
        for item, own, changed, mass, nats in table
    ]


def _tie(scores: Tensor, items: Sequence[EncodedItem]) -> Tensor:
    """Give options of the same tokens the very same score, which their branches have only up to rounding."""
    columns = torch.arange(scores.shape[1]).repeat(len(items), 1)
    for row, item in enumerate(items):
        for option, ids in enumerate(item.option_ids):
            columns[row, option] = item.option_ids.index(ids)
    return scores.gather(1, columns.to(scores.device))


def _check(items: Sequence[EncodedItem], how: _How) -> None:
    if not items:
        raise ValueError("expected at least one row to score, got none")
    seen: set[str] = set()
    alpha = how.adjustment
    most = len(string.ascii_uppercase)
    if alpha is not None and how.level == "options" and alpha.kind == "vector":
        most = alpha.num_classes
    for item in items:
        if item.id in seen:
            raise ValueError(f"item {item.id!r} occurs twice; ids must be unique within one set of predictions")
        seen.add(item.id)
        if len(item.option_ids) > most:
            raise ValueError(
                f"item {item.id!r} has {len(item.option_ids)} options, but the adjustment has classes for {most}; "
                "leave the item out, or score without the adjustment"
            )


def _meta(model: nn.Module, renderer: Renderer, items: Sequence[EncodedItem], how: _How) -> dict[str, Any]:
    """What decided the scores; an interrupted run goes on only where all of it is the same."""
    kinds = sorted({item.scoring for item in items})
    return {
        **about_model(model, renderer),
        "scored_as": kinds,
        "normalisation": how.normalisation if "text" in kinds else None,
        "level": how.level if how.adjustment is not None else None,
        "adjustment": about_adjustment(how.adjustment),
        "token_entropy": how.token_entropy,
        "tie_rule": TIE_RULE,
        "n": len(items),
        "items": content_digest(
            [(item.id, item.label, item.domain, item.prompt_ids, item.option_ids) for item in items]
        ),
    }


def _warn_low_mass(predictions: Predictions, items: Sequence[EncodedItem]) -> None:
    masses = [said.option_mass for said, item in zip(predictions, items, strict=True) if item.scoring != "text"]
    if masses and (mean := sum(masses) / len(masses)) < LOW_OPTION_MASS:
        warnings.warn(
            f"the option letters hold {mean:.3f} of the model's probability on average (under {LOW_OPTION_MASS}): it "
            "would mostly answer with something else, and their softmax says little of that. Try the other template, "
            "a system prompt that asks for a letter, or scoring 'text'; `calmtune inspect` shows what the model gets.",
            stacklevel=3,
        )
