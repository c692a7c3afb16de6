"""A model behind an OpenAI-compatible address: one request in, one reply out, or an error that says why."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import httpx

Route = Literal["chat/completions", "completions"]

RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
LONGEST_WAIT = 60.0
LARGEST_REPLY = 4_000_000


class EndpointError(RuntimeError):
    """The model at an endpoint could not be asked."""


@dataclass(frozen=True)
class Endpoint:
    """Where and how a model is asked.

    Args:
        base_url: up to, not including, ``/chat/completions``, e.g. ``"http://localhost:8000/v1"``.
        model: the model's name at that address.
        api_key_env: name of the environment variable that holds the key; None sends none. The key is never stored.
        timeout: seconds for one whole reply.
        retries: further tries after a timeout, a lost connection, a garbled response or a status of 408, 409, 425, 429,
            500, 502, 503, 504 or 529.
        backoff: seconds before the first further try; doubled each time, 60 at most. A longer ``Retry-After`` in
            seconds counts instead.
        options: further fields of the request, e.g. ``{"max_tokens": 64, "seed": 0}``; they replace what is sent
            otherwise, and a None takes a field away.
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

    def url(self, route: Route = "chat/completions") -> str:
        """Where requests go."""
        return f"{self.base_url.rstrip('/')}/{route}"

    def client(self) -> httpx.Client:
        """An HTTP client that carries the key.

        Raises:
            ImportError: httpx is not installed.
            ValueError: the environment variable of the key is empty or not set.
        """
        try:
            import httpx
        except ImportError as error:
            raise ImportError("endpoints need httpx; install it with: pip install 'calmtune[judge]'") from error
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


def request(
    client: httpx.Client,
    endpoint: Endpoint,
    body: Mapping[str, Any],
    read: Callable[[Any], Any],
    route: Route = "chat/completions",
) -> Any:
    """What ``read`` finds in the reply to one request; tried again as the endpoint's settings say.

    Args:
        body: the request's fields; ``endpoint.options`` come on top, and fields that are None are left out.
        read: gets the reply's JSON; a ValueError, LookupError, TypeError or AttributeError from it means a garbled
            reply, which is asked for again.

    Raises:
        EndpointError: an HTTP error that trying again does not help, or the last of all tries failed.
    """
    fields = {name: value for name, value in {**body, **endpoint.options}.items() if value is not None}
    for attempt in range(endpoint.retries + 1):
        fault, wait, found = _try(client, endpoint, fields, read, route)
        if fault is None:
            return found
        if attempt < endpoint.retries:
            time.sleep(min(max(endpoint.backoff * 2**attempt, wait), LONGEST_WAIT))
    raise EndpointError(f"{endpoint.url(route)}: {fault}; tried {endpoint.retries + 1} times")


def _try(
    client: httpx.Client, endpoint: Endpoint, fields: Mapping[str, Any], read: Callable[[Any], Any], route: Route
) -> tuple[str | None, float, Any]:
    """What went wrong (None for nothing), seconds the server asks to wait, and what was read of the reply."""
    import httpx

    try:
        status, wait, data = _post(client, endpoint, fields, route)
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
            raise EndpointError(f"{endpoint.url(route)}: {fault}; check base_url, model, the key and options")
        return fault, wait, None
    try:
        return None, 0.0, read(json.loads(text))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        kind = "a chat completion" if route == "chat/completions" else "a completion"
        return f"expected {kind} in JSON, got {text[:200]!r} ({type(error).__name__}: {error})", 0.0, None


def _post(
    client: httpx.Client, endpoint: Endpoint, fields: Mapping[str, Any], route: Route
) -> tuple[int, float, bytes]:
    """Status, seconds to wait and content, read against one deadline: httpx alone would wait anew for every byte."""
    import httpx

    deadline, data = time.monotonic() + endpoint.timeout, b""
    with client.stream("POST", endpoint.url(route), json=fields) as response:
        for chunk in response.iter_bytes():
            data += chunk
            if time.monotonic() > deadline or len(data) > LARGEST_REPLY:
                raise httpx.ReadTimeout("the reply did not end in time")
    after = response.headers.get("retry-after", "")
    return response.status_code, float(after) if after.isascii() and after.isdigit() else 0.0, data
