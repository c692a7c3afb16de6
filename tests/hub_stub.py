"""A stand-in for the Hub's HTTP interface, as far as the real client needs it to publish a model."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

TOKEN = "hf_stub"


@dataclass
class HubStub:
    """What was published: ``files`` by repository and name, ``private`` by repository, and every request."""

    url: str = ""
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    private: dict[str, bool] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    large: dict[str, bytes] = field(default_factory=dict)

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """Status and JSON for one request."""
        self.requests.append(f"{method} {path}")
        if path == "/api/whoami-v2":
            return 200, {"name": "me", "type": "user"}
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path.startswith("/storage/"):
            self.large[path.rsplit("/", 1)[1]] = body
            return 200, {}
        if path.endswith("/info/lfs/objects/batch"):
            objects = [
                {**one, "actions": {"upload": {"href": f"{self.url}/storage/{one['oid']}"}}}
                for one in json.loads(body)["objects"]
            ]
            return 200, {"transfer": "basic", "objects": objects}
        repo = "/".join(path.removeprefix("/api/models/").split("/")[:2])
        if repo not in self.private:
            return 404, {"error": f"no such request here: {method} {path}"}
        if "/preupload/" in path:
            names = [one["path"] for one in json.loads(body)["files"]]
            return 200, {
                "files": [
                    {
                        "path": name,
                        "uploadMode": "lfs" if name.endswith(".safetensors") else "regular",
                        "shouldIgnore": False,
                    }
                    for name in names
                ]
            }
        if "/commit/" in path:
            return self._commit(repo, [json.loads(line) for line in body.splitlines()])
        return 200, {"id": repo, "private": self.private[repo], "siblings": [], "tags": []}

    def _create(self, asked: dict[str, Any]) -> tuple[int, Any]:
        repo = "/".join(filter(None, (asked.get("organization") or "me", asked["name"].split("/")[-1])))
        url = f"{self.url}/{repo}"
        if repo in self.private:
            return 409, {"error": "it exists", "url": url}
        self.private[repo] = bool(asked.get("private") or asked.get("visibility") == "private")
        self.files[repo] = {}
        return 200, {"url": url, "name": repo}

    def _commit(self, repo: str, lines: list[dict[str, Any]]) -> tuple[int, Any]:
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.commits.append(value["summary"])
            elif line["key"] == "lfsFile":
                self.files[repo][value["path"]] = self.large[value["oid"]]
            else:
                self.files[repo][value["path"]] = base64.b64decode(value["content"])
        return 200, {"commitUrl": f"{self.url}/{repo}/commit/{'0' * 40}", "commitOid": "0" * 40}


@contextmanager
def serve() -> Iterator[HubStub]:
    """The stand-in at an address of this machine, while the block runs."""
    hub = HubStub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            body = self._body()
            known = self.path.startswith("/storage/") or self.headers.get("Authorization") == f"Bearer {TOKEN}"
            status, record = hub.answer(self.command, self.path, body) if known else (401, {"error": "who are you?"})
            content = json.dumps(record).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        do_GET = do_POST = do_PUT = do_HEAD = _handle

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
