"""A chat model behind an OpenAI-compatible address: one conversation in, one reply out, or an error that says why."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx

RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
LONGEST_WAIT = 60.0
LARGEST_REPLY = 4_000_000


class JudgeError(RuntimeError):
    """The judge could not be asked, or gave no verdict; the message names the item."""


@dataclass(frozen=True)
class Endpoint:
    """Where and how a judge is asked.

    Args:
        base_url: up to, not including, ``/chat/completions``, e.g. ``"http://localhost:8000/v1"``.
        model: the model's name at that address.
        api_key_env: name of the environment variable that holds the key; None sends none. The key is never stored.
        timeout: seconds for one whole reply.
        retries: further tries after a timeout, a lost connection, a garbled response or a status of 408, 409, 425, 429,
            500, 502, 503, 504 or 529.
        backoff: seconds before the first further try; doubled each time, 60 at most. A longer ``Retry-After`` in
            seconds counts instead.
        options: further fields of the request, e.g. ``{"max_tokens": 64, "seed": 0}``; they replace the defaults
            ``temperature: 0``, and a None takes a default away.
    """

    base_url: str
    model: str
    api_key_env: str | None = None
    timeout: float = 60.0
    retries: int = 4
    backoff: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (
            not self.base_url.startswith(("http://", "https://"))
            or "@" in self.base_url.split("//", 1)[1].split("/")[0]
        ):
            raise ValueError('base_url must start with "http://" or "https://" and hold no password; use api_key_env')
        if self.base_url.rstrip("/").endswith("/chat/completions"):
            raise ValueError(f'base_url {self.base_url!r} must end before "/chat/completions"')
        if not (self.timeout > 0 and self.retries >= 0 and self.backoff >= 0):
            raise ValueError(
                f"expected timeout > 0, retries >= 0 and backoff >= 0; got {self.timeout}, {self.retries} and "
                f"{self.backoff}"
            )

    @property
    def url(self) -> str:
        """Where requests go."""
        return self.base_url.rstrip("/") + "/chat/completions"

    def client(self) -> httpx.Client:
        """An HTTP client that carries the key.

        Raises:
            ImportError: httpx is not installed.
            ValueError: the environment variable of the key is empty or not set.
        """
        try:
            import httpx
        except ImportError as error:
            raise ImportError("the judge needs httpx; install it with: pip install 'calmtune[judge]'") from error
        return httpx.Client(
            timeout=self.timeout, headers={"Authorization": f"Bearer {key}"} if (key := self.key()) else {}
        )

    def key(self) -> str | None:
        """The API key, or None where none is sent."""
        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env, "").strip()
        if not (key and key.isascii() and key.isprintable()):
            raise ValueError(f"the environment variable {self.api_key_env} is not set, or holds no key; set it first")
        return key


def ask(client: httpx.Client, endpoint: Endpoint, messages: Sequence[Mapping[str, str]]) -> object:
    """The content of the model's reply, as it came.

    Raises:
        JudgeError: an HTTP error that trying again does not help, or the last of all tries failed.
    """
    body = {"model": endpoint.model, "messages": list(messages), "temperature": 0, **endpoint.options}
    body = {name: value for name, value in body.items() if value is not None}
    for attempt in range(endpoint.retries + 1):
        fault, wait, content = _try(client, endpoint, body)
        if fault is None:
            return content
        if attempt < endpoint.retries:
            time.sleep(min(max(endpoint.backoff * 2**attempt, wait), LONGEST_WAIT))
    raise JudgeError(f"{endpoint.url}: {fault}; tried {endpoint.retries + 1} times")


def _try(client: httpx.Client, endpoint: Endpoint, body: Mapping[str, Any]) -> tuple[str | None, float, object]:
    """What went wrong (None for nothing), seconds the server asks to wait, and the reply's content."""
    import httpx

    try:
        status, wait, data = _post(client, endpoint, body)
    except httpx.TimeoutException:
        return f"no whole reply within {endpoint.timeout:g} s", 0.0, None
    except httpx.TransportError as error:
        return f"no connection ({type(error).__name__}: {error}); does a server listen there?", 0.0, None
    text = data.decode("utf-8", "replace")
    if status != 200:
        key = endpoint.key()
        shown = (text.replace(key, "[key]") if key else text)[:300]
        fault = f"HTTP {status}: {shown}"
        if status not in RETRIED:
            raise JudgeError(f"{endpoint.url}: {fault}; check base_url, model, the key and options")
        return fault, wait, None
    try:
        return None, 0.0, json.loads(text)["choices"][0]["message"].get("content")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return f"expected a chat completion in JSON, got {text[:200]!r}", 0.0, None


def _post(client: httpx.Client, endpoint: Endpoint, body: Mapping[str, Any]) -> tuple[int, float, bytes]:
    """Status, seconds to wait and content, read against one deadline: httpx alone would wait anew for every byte."""
    import httpx

    deadline, data = time.monotonic() + endpoint.timeout, b""
    with client.stream("POST", endpoint.url, json=body) as response:
        for chunk in response.iter_bytes():
            data += chunk
            if time.monotonic() > deadline or len(data) > LARGEST_REPLY:
                raise httpx.ReadTimeout("the reply did not end in time")
    after = response.headers.get("retry-after", "")
    return response.status_code, float(after) if after.isascii() and after.isdigit() else 0.0, data
