"""One reply of an OpenAI-compatible endpoint as a sample; whatever is not as it should be is a ValueError."""

from __future__ import annotations

import math
from typing import Any

from calmtune.samples import Finish, Sample
from calmtune.scoring.sampling_settings import SamplingSettings


def read_reply(reply: Any, how: SamplingSettings) -> Sample:
    """The sample in a reply of ``/chat/completions`` or ``/completions``.

    Args:
        reply: the reply's JSON.
        how: its stop texts cut the answer once more, for servers that leave them in; log-probabilities are read where
            its settings sample the model's own distribution.

    Raises:
        ValueError, LookupError, TypeError, AttributeError: no such reply.

    >>> choice = {"message": {"content": "Paris\\n"}, "finish_reason": "stop"}
    >>> read_reply({"choices": [choice]}, SamplingSettings()).text
    'Paris'
    """
    choice = reply["choices"][0]
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    if not isinstance(text, str):
        raise ValueError(f"expected text, got {text!r:.60}")
    # pairs of surrogates that came as two characters become one; half a pair becomes the replacement character
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    finish = _finish(choice)
    terms = _terms(choice.get("logprobs")) if how.is_raw else []
    place = min((found for stop in how.stop if (found := text.find(stop)) >= 0), default=None)
    if place is not None:
        finish, terms = "stop", _until_stop(terms, how)
    tokens = len(terms) or (reply.get("usage") or {}).get("completion_tokens") or 0
    values = tuple(value for _, value in terms)
    return Sample(how.cut(text), math.fsum(values) if values else None, int(tokens), finish, None, values)


def _finish(choice: dict[str, Any]) -> Finish:
    """Why the answer ended. A server says ``stop`` for the model's own end and for a stop text; some name the text."""
    reason = choice["finish_reason"]
    if reason == "length":
        return "length"
    if reason in ("eos", "eos_token"):
        return "eos"
    if reason != "stop":
        raise ValueError(f"finish_reason is {reason!r:.60}; expected 'stop' or 'length'")
    # vLLM names the stop text, or says null for the model's own end
    return "eos" if "stop_reason" in choice and choice["stop_reason"] is None else "stop"


def _terms(logprobs: Any) -> list[tuple[str, float]]:
    """Text and log-probability of each token, from either of the two forms in use; empty where there are none."""
    if logprobs is None:
        return []
    if logprobs.get("content") is not None:
        terms = [(one["token"], one["logprob"]) for one in logprobs["content"]]
    elif logprobs.get("token_logprobs") is not None:
        terms = list(zip(logprobs["tokens"], logprobs["token_logprobs"], strict=True))
    else:
        return []
    for _, value in terms:
        if not isinstance(value, int | float) or isinstance(value, bool) or not -math.inf < value <= 1e-3:
            raise ValueError(f"a token's log-probability is {value!r:.60}")
    return terms


def _until_stop(terms: list[tuple[str, float]], how: SamplingSettings) -> list[tuple[str, float]]:
    """The tokens up to the one that completes a stop text; none where that is not to be found among them."""
    text = ""
    for count, (token, _) in enumerate(terms, start=1):
        text += token
        if any(stop in text for stop in how.stop):
            return terms[:count]
    return []
