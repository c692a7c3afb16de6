"""Asking a judge: one conversation in, the text of one reply out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from calmtune.endpoint import Endpoint, EndpointError, request

if TYPE_CHECKING:
    import httpx

__all__ = ["Endpoint", "JudgeError", "ask"]


class JudgeError(RuntimeError):
    """The judge could not be asked, or gave no verdict; the message names the item."""


def ask(client: httpx.Client, endpoint: Endpoint, messages: Sequence[Mapping[str, str]]) -> object:
    """The content of the model's reply at temperature 0, as it came.

    Raises:
        JudgeError: an HTTP error that trying again does not help, or the last of all tries failed.
    """
    body = {"model": endpoint.model, "messages": list(messages), "temperature": 0}
    try:
        return request(client, endpoint, body, _content)
    except EndpointError as error:
        raise JudgeError(str(error)) from error


def _content(reply: Any) -> object:
    return reply["choices"][0]["message"].get("content")
