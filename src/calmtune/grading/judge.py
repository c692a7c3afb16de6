"""Grading by a language model at an OpenAI-compatible endpoint, each item once, remembered on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

from .cache import DecisionCache
from .endpoint import Endpoint, JudgeError, ask
from .verdict import CORRECTION, PROMPT_VERSION, VERDICTS, JudgeItem, Verdict, messages, read_verdict

if TYPE_CHECKING:
    import httpx

FORMAT = "calmtune-judge/1"


def judge(
    items: Sequence[JudgeItem],
    endpoint: Endpoint,
    *,
    cache: Path | str | None = None,
    concurrency: int = 4,
    verdict_retries: int = 2,
) -> list[Verdict]:
    """Verdicts of a judge model, in the items' order; there is no default verdict.

    A reply that is not a strict verdict is sent back with a correction, ``verdict_retries`` times. An item that still
    has none is named in the error at the end, when all others are judged; an endpoint that fails stops the run at once.
    Either way what was decided is in ``cache``, and a second call asks for the rest only.

    Args:
        items: what to judge; equal (question, answer, aliases) are asked once.
        endpoint: where.
        cache: a JSON Lines file of verdicts, keyed by sha256 of question, answer, aliases, model and prompt version.
        concurrency: requests at a time.
        verdict_retries: further tries after a malformed verdict.

    Raises:
        JudgeError: the endpoint failed, or an item got no verdict.
        ValueError: an argument, the cache or the key is not as expected.
        ImportError: httpx is not installed.
    """
    if concurrency < 1 or verdict_retries < 0:
        raise ValueError(f"expected concurrency >= 1 and verdict_retries >= 0; got {concurrency} and {verdict_retries}")
    known = DecisionCache(cache, {"format": FORMAT})
    new = {key: item for item in items if known.get(key := verdict_key(item, endpoint.model)) is None}
    if new:
        with endpoint.client() as client, ThreadPoolExecutor(concurrency) as pool:
            jobs = [
                pool.submit(_judge_one, client, endpoint, key, item, known, verdict_retries)
                for key, item in new.items()
            ]
            _finish(jobs)
        missing = [item.id for key, item in new.items() if known.get(key) is None]
        if missing:
            raise JudgeError(
                f"no verdict for {len(missing)} of {len(items)} items after {verdict_retries + 1} tries each: "
                f"{', '.join(map(repr, missing[:10]))}{', ...' if missing[10:] else ''}. The replies of "
                f"{endpoint.model!r} were not one of the verdicts in JSON; choose another judge, or another prompt"
            )
    return [Verdict(item.id, _known(known, verdict_key(item, endpoint.model)), endpoint.model) for item in items]


def verdict_key(item: JudgeItem, model: str) -> str:
    """sha256 of (question, answer, aliases, model, prompt version); the aliases' order does not count."""
    parts = [item.question, item.answer, sorted(set(item.aliases)), model, PROMPT_VERSION]
    return hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest()


def _judge_one(
    client: httpx.Client, endpoint: Endpoint, key: str, item: JudgeItem, known: DecisionCache, verdict_retries: int
) -> None:
    """Ask until there is a verdict and keep it; keep nothing where none came."""
    conversation = messages(item)
    for _ in range(verdict_retries + 1):
        try:
            reply = ask(client, endpoint, conversation)
        except JudgeError as error:
            raise JudgeError(f"item {item.id!r}: {error}") from error
        verdict = read_verdict(reply)
        if verdict is not None:
            asked = {"question": item.question, "answer": item.answer, "aliases": list(item.aliases)}
            known.add(key, {**asked, "model": endpoint.model, "prompt": PROMPT_VERSION, "verdict": verdict})
            return
        said = reply if isinstance(reply, str) else ""
        conversation = [
            *messages(item),
            {"role": "assistant", "content": said[:2000]},
            {"role": "user", "content": CORRECTION},
        ]


def _finish(jobs: Sequence[Future[None]]) -> None:
    """Wait for all; at the first failure, or when interrupted, start no more and raise it."""
    try:
        done, _ = wait(jobs, return_when=FIRST_EXCEPTION)
        for job in done:
            job.result()
    finally:
        for job in jobs:
            job.cancel()


def _known(known: DecisionCache, key: str) -> str:
    """The verdict on file; one that was edited into something else is no verdict."""
    decision = known.get(key)
    assert decision is not None
    if decision.get("verdict") not in VERDICTS:
        raise ValueError(
            f"{known.path}: the verdict of key {key} is {decision.get('verdict')!r}, expected one of {VERDICTS}; "
            "delete that line"
        )
    return str(decision["verdict"])
