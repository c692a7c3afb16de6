"""Open questions answered by a model behind an OpenAI-compatible address, kept in the same record. Needs no torch."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import calmtune
from calmtune.data.messages import messages_of, plain_text
from calmtune.data.prompts import PromptStyle
from calmtune.data.rows import OpenQuestion
from calmtune.endpoint import Endpoint, EndpointError, Route, request
from calmtune.jsonl import check_distinct, content_digest
from calmtune.samples import AnswerSamples, SampledAnswers, append_samples, open_samples, save_samples
from calmtune.scoring.endpoint_reply import read_reply
from calmtune.scoring.sampling_settings import SamplingSettings

if TYPE_CHECKING:
    import httpx

    from calmtune.samples import Sample

Progress = Callable[[int, int], None]
Server = Literal["openai", "vllm", "llama.cpp", "transformers"]

# decided by the settings, the rows and the endpoint; options may take them away, but not change them
_OURS = frozenset(
    {"model", "messages", "prompt", "n", "temperature", "top_p", "top_k", "max_tokens", "stop", "seed", "stream"}
)


def sample_endpoint(
    endpoint: Endpoint,
    rows: Sequence[OpenQuestion],
    *,
    server: Server,
    style: PromptStyle | None = None,
    settings: SamplingSettings | None = None,
    concurrency: int = 4,
    path: Path | None = None,
    about: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> SampledAnswers:
    """Draw ``settings.n`` answers to every question from a model at an endpoint, one request a sample.

    Log-probabilities are kept where the server gives them and the model's own distribution is sampled (temperature 1,
    top_p 1, top_k 0); otherwise servers differ in what they report, and samples carry none. Whether the token that ends
    an answer counts is the server's choice too.

    Args:
        endpoint: where. Its ``options`` are sent with every request; None takes a field away that the server refuses.
        rows: with distinct ids.
        server: whose fields are sent, so that the server puts no settings of its own or the model's in the place of
            ours: ``openai`` (the standard fields alone; top_k must be 0), ``vllm``, ``llama.cpp`` (also its Python
            server) or ``transformers`` (``transformers serve``, which gives no log-probabilities).
        style: how questions are put. ``template="plain"`` sends text to ``/completions``; any other sends messages to
            ``/chat/completions``, where the server applies the model's template.
        settings: how answers are drawn.
        concurrency: requests at a time.
        path: file to keep finished items in; an interrupted run goes on where it stopped.
        about: more settings for the record, JSON values.
        progress: called with (items done, items in all) after each item.

    Returns:
        Samples in the order of ``rows``; ``meta`` holds what was sent.

    Raises:
        EndpointError: naming the item: the endpoint failed. What was sampled before is kept.
        ValueError: an argument, the key or ``path`` is not as expected. ImportError: httpx is not installed.
    """
    how, style = settings or SamplingSettings(), style or PromptStyle("text")
    route: Route = "completions" if style.template == "plain" else "chat/completions"
    fields = request_fields(endpoint, server, how, route)
    prompts = _prompts(rows, style)
    if concurrency < 1:
        raise ValueError(f"concurrency must be >= 1, got {concurrency}")
    meta = _meta(endpoint, server, style, how, fields, rows, prompts) | dict(about or {})
    done = {item.id: item for item in (open_samples(path, meta) if path else ())}
    asker = _Asker(endpoint, fields, how, route)
    rest = [(row, prompt) for row, prompt in zip(rows, prompts, strict=True) if row.id not in done]
    # closed as soon as something goes wrong here, so that no more is asked
    with closing(asker.answers(rest, concurrency)) as answers:
        for item in answers:
            if path:
                append_samples(path, [item])
            done[item.id] = item
            if progress:
                progress(len(done), len(rows))
    sampled = SampledAnswers(tuple(done[row.id] for row in rows), meta)
    if path:
        save_samples(path, sampled)
    return sampled


def request_fields(endpoint: Endpoint, server: Server, how: SamplingSettings, route: Route) -> dict[str, Any]:
    """The fields of every request but the prompt and the seed, ``endpoint.options`` included.

    Raises:
        ValueError: another server, settings that it cannot follow, or options that contradict the settings.

    >>> endpoint = Endpoint("http://localhost:8000/v1", "m")
    >>> request_fields(endpoint, "vllm", SamplingSettings(), "completions")["top_k"]
    -1
    """
    if server not in get_args(Server):
        raise ValueError(f"server must be one of {', '.join(get_args(Server))}; got {server!r}")
    if server == "openai" and how.top_k:
        raise ValueError(
            f"top_k is {how.top_k}, which the standard fields do not have; name the server, or use top_k 0"
        )
    changed = sorted(name for name in _OURS if endpoint.options.get(name) is not None)
    if changed:
        raise ValueError(f"options hold {', '.join(changed)}, which the sampling settings decide; set them there")
    fields: dict[str, Any] = {
        "model": endpoint.model,
        "temperature": how.temperature,
        "top_p": how.top_p,
        "max_tokens": how.max_new_tokens,
        "stop": list(how.stop) or None,
    }
    if how.is_raw and server != "transformers":
        fields["logprobs"] = True if route == "chat/completions" else 1
    fields |= {
        "openai": {},
        "vllm": {"top_k": how.top_k or -1, "min_p": 0.0, "repetition_penalty": 1.0},
        "llama.cpp": {"top_k": how.top_k, "min_p": 0.0, "typical_p": 1.0, "repeat_penalty": 1.0},
        "transformers": {"generation_config": _generation_config(how)},
    }[server]
    fields |= endpoint.options
    return {name: value for name, value in fields.items() if value is not None}


def _generation_config(how: SamplingSettings) -> str:
    """What ``transformers serve`` needs to sample at all: its default is the model's own settings, mostly greedy."""
    own = {"do_sample": True, "top_k": how.top_k, "min_p": 0.0, "typical_p": 1.0, "repetition_penalty": 1.0}
    return json.dumps({**own, "temperature": how.temperature, "top_p": how.top_p, "max_new_tokens": how.max_new_tokens})


def _prompts(rows: Sequence[OpenQuestion], style: PromptStyle) -> list[dict[str, Any]]:
    """The field that holds each row's prompt."""
    if not rows:
        raise ValueError("expected at least one question to sample answers to, got none")
    check_distinct((row.id for row in rows), "samples")
    if style.template == "plain":
        return [{"prompt": plain_text(messages_of(row, style, "plain"), row.id).rstrip(" ")} for row in rows]
    return [
        {"messages": [{"role": role, "content": text} for role, text in messages_of(row, style, "chat")]}
        for row in rows
    ]


class _Asker:
    """Sends the requests. ``stopping`` is set when nothing more is to be asked."""

    def __init__(self, endpoint: Endpoint, fields: Mapping[str, Any], how: SamplingSettings, route: Route) -> None:
        self.endpoint, self.fields, self.how, self.route = endpoint, fields, how, route
        self.stopping = threading.Event()

    def answers(
        self, rows: Sequence[tuple[OpenQuestion, Mapping[str, Any]]], concurrency: int
    ) -> Iterator[AnswerSamples]:
        """The rows' samples as they come in; after a failure those that are complete, then the failure."""
        failure: BaseException | None = None
        if not rows:
            return
        with self.endpoint.client() as client, ThreadPoolExecutor(concurrency) as pool:
            jobs = [pool.submit(self._row, client, *one) for one in rows]
            try:
                for job in as_completed(jobs):
                    error = None if job.cancelled() else job.exception()
                    if error is not None and not isinstance(error, CancelledError):
                        failure = failure or error
                        for other in jobs:
                            other.cancel()
                    elif error is None and not job.cancelled():
                        yield job.result()
            finally:
                self.stopping.set()
                for job in jobs:
                    job.cancel()
        if failure is not None:
            raise failure

    def _row(self, client: httpx.Client, row: OpenQuestion, prompt: Mapping[str, Any]) -> AnswerSamples:
        try:
            samples = tuple(self._sample(client, {**self.fields, **prompt}, row.id, k) for k in range(self.how.n))
        except EndpointError:
            # at once, before another thread begins its next request
            self.stopping.set()
            raise
        return AnswerSamples(row.id, row.domain, row.question, row.answers, samples)

    def _sample(self, client: httpx.Client, body: Mapping[str, Any], item_id: str, number: int) -> Sample:
        if self.stopping.is_set():
            raise CancelledError
        # most servers keep a seed in 32 bits
        body = {**body, "seed": self.how.sample_seed(item_id, number) % 2**31}
        try:
            sample: Sample = request(client, self.endpoint, body, lambda reply: read_reply(reply, self.how), self.route)
        except EndpointError as error:
            raise EndpointError(f"item {item_id!r}, sample {number}: {error}") from error
        return sample


def _meta(
    endpoint: Endpoint,
    server: Server,
    style: PromptStyle,
    how: SamplingSettings,
    fields: Mapping[str, Any],
    rows: Sequence[OpenQuestion],
    prompts: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """What decided the samples; an interrupted run goes on only where all of it is the same."""
    content = [
        [row.id, row.domain, row.question, row.answers, prompt] for row, prompt in zip(rows, prompts, strict=True)
    ]
    return {
        "base_url": endpoint.base_url,
        "model": endpoint.model,
        "server": server,
        "template": "plain" if style.template == "plain" else "chat, by the server",
        "system_prompt": style.system_prompt,
        "open_prompt": style.open_prompt,
        "sampling": how.record(),
        "request": dict(fields),
        "log_probabilities": "as the server gives them" if "logprobs" in fields else None,
        "n": len(rows),
        "items": content_digest(content),
        "calmtune": calmtune.__version__,
    }
