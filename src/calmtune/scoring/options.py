"""Multiple choice: run a model over items once and keep the options' scores.

The scores of an item depend on the item alone: not on the batch it came in, the padding, dropout, or an interruption.
"""

from __future__ import annotations

import hashlib
import json
import string
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
import transformers
from torch import Tensor, nn

import calmtune
from calmtune.bilevel.adjustment import LogitAdjustment
from calmtune.data.encoding import Batch, collate_items, tree_length
from calmtune.data.prompts import EncodedItem, Renderer
from calmtune.data.rows import MultipleChoice
from calmtune.modeling.loading import fingerprint
from calmtune.modeling.reading import (
    Normalisation,
    adjusted_scores,
    causal_lm,
    check_readable,
    eval_mode,
    option_scores,
    read_hidden,
)
from calmtune.predictions import Prediction, Predictions, append_predictions, open_predictions, save_predictions

Level = Literal["options", "vocabulary"]
Progress = Callable[[int, int], None]

TIE_RULE = "sha256(item id, option index)"
LOW_OPTION_MASS = 0.5


def score_items(
    model: nn.Module,
    rows: Sequence[MultipleChoice],
    renderer: Renderer,
    *,
    batch_tokens: int = 4096,
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
        batch_tokens: most tokens of a padded batch (a longer item is a batch by itself); changes speed and memory only.
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
    batches = plan_batches(items, batch_tokens)
    meta = _meta(model, renderer, items, how) | dict(about or {})
    done = {item.id: item for item in (open_predictions(path, meta) if path else ())}
    pad_id = renderer.tokenizer.pad_token_id or 0  # nothing reads it
    with eval_mode(model), torch.no_grad():
        if len(done) < len(items):
            check_readable(model, _collate(items[:1], pad_id, model))
        for indices in batches:
            encoded = [items[index] for index in indices]
            # a batch is scored as a whole even when a part of it is done, so that every number comes from the same sums
            if all(item.id in done for item in encoded):
                continue
            new = [item for item in _score(model, encoded, pad_id, how) if item.id not in done]
            if path:
                append_predictions(path, new)
            done |= {item.id: item for item in new}
            if progress:
                progress(len(done), len(items))
    predictions = Predictions(tuple(done[item.id] for item in items), meta)
    if path:
        save_predictions(path, predictions)
    _warn_low_mass(predictions, items)
    return predictions


def plan_batches(items: Sequence[EncodedItem], batch_tokens: int) -> list[list[int]]:
    """Indices of the items of each batch: like with like in scoring and length, the longest first.

    >>> a, b = (EncodedItem(name, "", [1] * n, [[1], [2]], [1, 1], 0, "", "text") for name, n in (("a", 2), ("b", 5)))
    >>> plan_batches([a, b, a], 8)
    [[1], [0, 2]]
    """
    if batch_tokens < 1:
        raise ValueError(f"batch_tokens must be >= 1, got {batch_tokens}")
    order = sorted(range(len(items)), key=lambda index: (items[index].scoring, -tree_length(items[index]), index))
    batches: list[list[int]] = []
    for index in order:
        first = items[batches[-1][0]] if batches else None
        fits = first is not None and (len(batches[-1]) + 1) * tree_length(first) <= batch_tokens
        # scores of letters are logits and of sequences log-probabilities, so the two never share a batch
        if first is not None and fits and first.scoring == items[index].scoring:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


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


def _score(model: nn.Module, items: Sequence[EncodedItem], pad_id: int, how: _How) -> list[Prediction]:
    """The predictions of one batch; one pass through the model's trunk."""
    batch = _collate(items, pad_id, model)
    hidden = read_hidden(model, batch)
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


def _collate(items: Sequence[EncodedItem], pad_id: int, model: nn.Module) -> Batch:
    device = next(model.parameters()).device
    batch = collate_items(items, pad_id)
    return {key: value.to(device) if isinstance(value, Tensor) else value for key, value in batch.items()}


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
    base = causal_lm(model)
    alpha = how.adjustment
    kinds = sorted({item.scoring for item in items})
    content = [(item.id, item.label, item.domain, item.prompt_ids, item.option_ids) for item in items]
    return {
        "model": type(base).__name__,
        "weights": fingerprint(model, adapters=True),
        "dtype": str(base.dtype).removeprefix("torch."),
        **renderer.settings(),
        "scored_as": kinds,
        "normalisation": how.normalisation if "text" in kinds else None,
        "level": how.level if alpha is not None else None,
        "adjustment": None
        if alpha is None
        else {"kind": alpha.kind, "form": alpha.form, "sha256": _alpha_digest(alpha)},
        "token_entropy": how.token_entropy,
        "tie_rule": TIE_RULE,
        "n": len(items),
        "items": hashlib.sha256(json.dumps(content).encode()).hexdigest(),
        "calmtune": calmtune.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def _alpha_digest(alpha: LogitAdjustment) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(alpha.state_dict().items()):
        digest.update(name.encode() + value.detach().double().cpu().numpy().tobytes())
    return digest.hexdigest()


def _warn_low_mass(predictions: Predictions, items: Sequence[EncodedItem]) -> None:
    masses = [said.option_mass for said, item in zip(predictions, items, strict=True) if item.scoring != "text"]
    if masses and (mean := sum(masses) / len(masses)) < LOW_OPTION_MASS:
        warnings.warn(
            f"the option letters hold {mean:.3f} of the model's probability on average (under {LOW_OPTION_MASS}): it "
            "would mostly answer with something else, and their softmax says little of that. Try the other template, "
            "a system prompt that asks for a letter, or scoring 'text'; `calmtune inspect` shows what the model gets.",
            stacklevel=3,
        )
