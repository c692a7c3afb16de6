"""Entailment between two texts, by a transformers sequence-classification model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .cache import DecisionCache

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

ENTAILMENT = "entailment"
FORMAT = "calmtune-nli/1"


class EntailmentModel:
    """Whether premises entail hypotheses: the label with the largest logit is ``entailment``.

    Called with pairs, it returns one truth value each. A pair is run once and remembered; (a, b) and (b, a) are two
    pairs. Pairs run in batches of similar length; which pairs share a batch changes logits by rounding only.

    Args:
        model: a sequence-classification model; one label must be named "entailment" (any case) in ``config.id2label``.
        tokenizer: its tokenizer.
        batch_size: pairs in one forward pass.
        cache: a JSON Lines file of decisions, made if absent, used again if it is of this model; None for memory only.

    Raises:
        ValueError: no label, or more than one, is named entailment; or the cache is of another model.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        batch_size: int = 32,
        cache: Path | str | None = None,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self.entailment = entailment_index(_labels_of(model))
        model.train(False)
        self.model, self.tokenizer, self.batch_size = model, tokenizer, batch_size
        self.name = str(model.config.name_or_path)
        self._cache = DecisionCache(cache, {"format": FORMAT, "model": self.name, "weights": _fingerprint(model)})

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """Whether each (premise, hypothesis) pair is an entailment.

        Raises:
            ValueError: a pair is longer than the model reads; nothing is cut off in silence.
        """
        keys = [_key(pair) for pair in pairs]
        new = {key: pair for key, pair in zip(keys, pairs, strict=True) if self._cache.get(key) is None}
        for batch in self._batches(new):
            for key, label in zip(batch, self._labels([new[key] for key in batch]), strict=True):
                premise, hypothesis = new[key]
                self._cache.add(key, {"premise": premise, "hypothesis": hypothesis, "label": label})
        return [self._known(key) == self.entailment for key in keys]

    def logits(self, pairs: Sequence[tuple[str, str]]) -> Any:
        """Logits of one forward pass, float32 tensor [pairs, labels]."""
        import torch

        premises, hypotheses = zip(*pairs, strict=True)
        encoded = self.tokenizer(list(premises), list(hypotheses), padding=True, return_tensors="pt")
        with torch.inference_mode():
            return self.model(**encoded.to(self.model.device)).logits.float().cpu()

    def _known(self, key: str) -> int:
        decision = self._cache.get(key)
        assert decision is not None
        return int(decision["label"])

    def _labels(self, pairs: Sequence[tuple[str, str]]) -> list[int]:
        import torch

        logits = self.logits(pairs)
        if not bool(torch.isfinite(logits).all()):
            raise ValueError(
                f"model {self.name!r} gave logits that are not finite for the pairs {pairs[0]!r} to {pairs[-1]!r}; "
                "load it in float32"
            )
        labels: list[int] = logits.argmax(dim=-1).tolist()
        return labels

    def _batches(self, pairs: dict[str, tuple[str, str]]) -> list[list[str]]:
        """Keys by length in tokens, cut into batches."""
        limit, lengths = _longest(self.model, self.tokenizer), {}
        for key, (premise, hypothesis) in pairs.items():
            lengths[key] = len(self.tokenizer(premise, hypothesis, verbose=False)["input_ids"])
            if lengths[key] > limit:
                raise ValueError(
                    f"the pair {premise[:80]!r}, {hypothesis[:80]!r} has {lengths[key]} tokens, the model reads "
                    f"{limit}; "
                    "sample shorter answers or choose the rule exact"
                )
        keys = sorted(pairs, key=lambda key: (lengths[key], key))
        return [keys[start : start + self.batch_size] for start in range(0, len(keys), self.batch_size)]


def load_entailment_model(
    name: str, *, device: str = "cpu", batch_size: int = 32, cache: Path | str | None = None
) -> EntailmentModel:
    """An :class:`EntailmentModel` from a hub id or a folder, in float32; code from the hub is never run."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(name, dtype=torch.float32).to(device)
    return EntailmentModel(model, AutoTokenizer.from_pretrained(name), batch_size=batch_size, cache=cache)


def entailment_index(id2label: dict[int, str]) -> int:
    """Index of the label named "entailment".

    Raises:
        ValueError: no label, or more than one, has that name.

    >>> entailment_index({0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"})
    2
    """
    found = [int(index) for index, label in id2label.items() if str(label).strip().casefold() == ENTAILMENT]
    if len(found) != 1:
        raise ValueError(
            f"expected one label named {ENTAILMENT!r} in the model's id2label, got {dict(id2label)}; choose a model "
            "trained for natural language inference, or set config.id2label"
        )
    return found[0]


def _labels_of(model: PreTrainedModel) -> dict[int, str]:
    return {int(index): str(label) for index, label in (model.config.id2label or {}).items()}


def _key(pair: tuple[str, str]) -> str:
    return hashlib.sha256(json.dumps(list(pair)).encode()).hexdigest()


def _longest(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """Tokens the model reads; RoBERTa and its kin count positions from behind the padding id."""
    positions = getattr(model.config, "max_position_embeddings", None) or tokenizer.model_max_length
    if "roberta" in str(model.config.model_type):
        positions -= int(model.config.pad_token_id) + 1
    return int(min(positions, tokenizer.model_max_length))


def _fingerprint(model: PreTrainedModel) -> str:
    """What tells two models at one path apart: the bytes of the last layer and the labels."""
    import torch

    digest = hashlib.sha256(json.dumps(sorted(_labels_of(model).items())).encode())
    for parameter in list(model.parameters())[-2:]:
        digest.update(parameter.detach().to("cpu", torch.float32).contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
