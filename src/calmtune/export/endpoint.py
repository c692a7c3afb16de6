"""A model behind an OpenAI-compatible address, asked for log-probabilities of an item's options.

Prompts are sent as token ids, so that the server's own templates play no part. Letters are read from the most probable
next tokens of one request; texts from the log-probabilities of prompt and option together, one request an option.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from calmtune.data.prompts import EncodedItem
from calmtune.endpoint import Endpoint, request
from calmtune.predictions import Prediction, Predictions

if TYPE_CHECKING:
    import httpx

TOP = 20


def score_served(
    endpoint: Endpoint,
    items: Sequence[EncodedItem],
    token_text: Callable[[int], str],
    *,
    top: int = TOP,
    normalisation: str = "sum",
    progress: Callable[[int, int], None] | None = None,
) -> Predictions:
    """Option scores of every item, as log-probabilities: letters' under the whole vocabulary, texts' by the run's rule.

    Args:
        endpoint: where, and the model's name there.
        token_text: the text of a token id, as the server names tokens.
        top: how many of the most probable tokens are asked for.
        normalisation: of texts: ``sum``, ``token`` or ``byte``.
        progress: called with (items done, items in all).

    Raises:
        EndpointError: no connection, or an error reply.
        ValueError: a reply without what is needed, or a letter that is not among the most probable tokens.
    """
    found = []
    with endpoint.client() as client:
        for number, item in enumerate(items, start=1):
            if item.scoring == "letter":
                said = top_tokens(_choice(client, endpoint, {"prompt": item.prompt_ids, "logprobs": top}))
                scores = _letters(said, item, token_text, top)
            else:
                rule = normalisation if item.scoring == "text" else "sum"
                scores = [_text(client, endpoint, item, place, rule) for place in range(len(item.option_ids))]
            tokens = tuple(map(len, item.option_ids))
            found.append(Prediction(item.id, item.domain, item.label, tuple(scores), tokens=tokens))
            if progress:
                progress(number, len(items))
    return Predictions(tuple(found))


def _letters(said: Mapping[str, float], item: EncodedItem, token_text: Callable[[int], str], top: int) -> list[float]:
    """Log-probabilities of the letters after the prompt."""
    scores = []
    for ids in item.option_ids:
        text = token_text(ids[0])
        keys = [key for key in (f"token_id:{ids[0]}", text) if key in said]
        if not keys:
            raise ValueError(
                f"item {item.id!r}: the letter {text!r} is not among the {len(said)} most probable tokens that the "
                f"server gave, so its probability is not known; let it give more (--top, now {top}), or check the "
                "merged folder itself"
            )
        scores.append(said[keys[0]])
    return scores


def _text(client: httpx.Client, endpoint: Endpoint, item: EncodedItem, place: int, normalisation: str) -> float:
    """Log-probability of one option's tokens after the prompt."""
    ids = item.option_ids[place]
    start = len(item.prompt_ids)
    choice = _choice(client, endpoint, {"prompt": [*item.prompt_ids, *ids], "logprobs": 1, "echo": True})
    total = sum(echoed(choice, start + len(ids))[start : start + len(ids)])
    if normalisation == "sum":
        return total
    return total / max(len(ids) if normalisation == "token" else item.option_bytes[place], 1)


def top_tokens(choice: Mapping[str, Any]) -> dict[str, float]:
    """Log-probabilities of the most probable first tokens, by the server's name of each.

    Args:
        choice: of a completion: ``logprobs.top_logprobs`` a list of objects (the completions form), or
            ``logprobs.content`` a list with ``top_logprobs`` lists (the chat form, which some servers use for both).

    Raises:
        ValueError: neither is there.

    >>> top_tokens({"logprobs": {"top_logprobs": [{" A": -0.1, " B": -2.5}]}})
    {' A': -0.1, ' B': -2.5}
    """
    logprobs = choice.get("logprobs") or {}
    top = logprobs.get("top_logprobs")
    if isinstance(top, list) and top and isinstance(top[0], Mapping):
        return _finite(top[0].items())
    content = logprobs.get("content")
    if isinstance(content, list) and content and isinstance(content[0], Mapping):
        entries = content[0].get("top_logprobs") or []
        # an id, where there is one, is surer than the text
        by_text = [(entry["token"], entry["logprob"]) for entry in entries]
        by_id = [(f"token_id:{entry['id']}", entry["logprob"]) for entry in entries if "id" in entry]
        if entries:
            return _finite([*by_text, *by_id])
    raise ValueError(
        "the reply has no top_logprobs, so letters cannot be read; start the server with log-probabilities "
        "allowed, or check the merged folder itself"
    )


def echoed(choice: Mapping[str, Any], length: int) -> list[float]:
    """Log-probabilities of the prompt's own tokens; the first has none and counts 0.

    Args:
        length: tokens of the prompt.

    Raises:
        ValueError: the server does not give them.
    """
    values = (choice.get("logprobs") or {}).get("token_logprobs")
    if not isinstance(values, list) or len(values) < length:
        got = len(values) if isinstance(values, list) else "none"
        raise ValueError(
            f"option texts are scored by the log-probabilities of the prompt's own tokens (echo with logprobs), "
            f"and of {length} tokens {got} came back. This server does not offer that: check the merged folder itself, "
            "or train with scoring: letter"
        )
    return [0.0 if value is None else float(value) for value in values[:length]]


def _finite(pairs: Any) -> dict[str, float]:
    return {str(key): float(value) for key, value in pairs if value is not None and math.isfinite(value)}


def _choice(client: httpx.Client, endpoint: Endpoint, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first choice of a completion."""

    def read(reply: Any) -> Mapping[str, Any]:
        choice = reply["choices"][0]
        if not isinstance(choice, Mapping):
            raise TypeError("a choice is an object")
        return choice

    sent = {"model": endpoint.model, "max_tokens": 1, "temperature": 0, **body}
    found: Mapping[str, Any] = request(client, endpoint, sent, read, "completions")
    return found
