"""An OpenAI-compatible completions server over a tiny model, in a thread: real log-probabilities in public formats."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch


class Completions(BaseHTTPRequestHandler):
    """One completion of one token, with log-probabilities.

    Class attributes: ``model``, ``tokenizer``; ``form`` is ``legacy`` (top_logprobs as objects by text, echo offered),
    ``content`` (the chat form with ids, no echo) or ``none`` (no log-probabilities); ``most`` top tokens at most;
    ``bodies`` collects what was asked.
    """

    model: Any
    tokenizer: Any
    form = "legacy"
    most = 1000
    bodies: list[dict[str, Any]]

    def log_message(self, *args: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        """Answer."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.bodies.append({**body, "authorization": self.headers.get("Authorization")})
        with torch.no_grad():
            log_p = torch.log_softmax(self.model(torch.tensor([body["prompt"]])).logits[0].double(), -1)
        data = json.dumps({"choices": [{"text": "", "logprobs": self.logprobs(body, log_p)}]}).encode()
        self.send_response(200 if self.path == "/v1/completions" else 404)
        self.end_headers()
        self.wfile.write(data)

    def logprobs(self, body: dict[str, Any], log_p: torch.Tensor) -> dict[str, Any] | None:
        """The part of the reply that is asked about."""
        values, ids = log_p[-1].topk(min(body["logprobs"], self.most, log_p.shape[-1]))
        top = list(zip(ids.tolist(), values.tolist(), strict=True))
        if self.form == "none":
            return None
        if self.form == "content":
            entries = [{"id": token, "token": self.tokenizer.decode([token]), "logprob": value} for token, value in top]
            return {"content": [{"token": entries[0]["token"], "logprob": top[0][1], "top_logprobs": entries}]}
        own: list[float | None] = []
        if body.get("echo"):
            own = [None, *(log_p[n, token].item() for n, token in enumerate(body["prompt"][1:]))]
        said = {self.tokenizer.decode([token]): value for token, value in top}
        return {"token_logprobs": [*own, top[0][1]], "top_logprobs": [*([{}] * len(own)), said][-1:]}


@contextmanager
def serve(model: Any, tokenizer: Any, **settings: Any) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The base URL of a running server, and the requests it was sent."""
    bodies: list[dict[str, Any]] = []
    fields = {"model": model, "tokenizer": tokenizer, "bodies": bodies, **settings}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Completions,), fields))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", bodies
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
