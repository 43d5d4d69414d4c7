"""Hubs on this machine: as much of Hugging Face's and of ModelScope's protocol as fetching a file needs."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Files = dict[str, bytes]
COMMIT = "c0ffee" + "0" * 34


@dataclass
class Hub:
    """`repositories` hold files by their path; what was asked is in `requests`, with the headers.

    `gated` repositories want `token`. `cut` says after how many bytes a file's connection breaks, once.
    `instead` is what is sent in place of a file, whose size and hash are told as if it were right.
    """

    repositories: dict[str, Files] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    token: str = ""
    cut: dict[str, int] = field(default_factory=dict)
    instead: Files = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    url: str = ""

    def fetched(self) -> list[str]:
        """The paths of files whose content was sent."""
        return [
            path
            for method, path, _headers in self.requests
            if method == "GET" and ("/resolve/" in path or "FilePath=" in path)
        ]


@contextmanager
def serving(hub: Hub, handler: type[_Handler]) -> Iterator[Hub]:
    """Serve a hub on a free port of this machine, and end it."""
    bound = type("Bound", (handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), bound)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def closed_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *_arguments: object) -> None:
        """Nothing: what was asked is in the hub."""

    def _answer(self) -> None:
        self.hub.requests.append((self.command, unquote(self.path), dict(self.headers)))
        url = urlsplit(self.path)
        self.answer(unquote(url.path).strip("/").split("/"), parse_qs(url.query))

    def answer(self, path: list[str], query: dict[str, list[str]]) -> None:
        """Answer a request."""
        raise NotImplementedError

    def may_read(self, repository: str) -> bool:
        """Whether this request may see a gated repository."""
        sent = self.headers.get("Authorization", "") + self.headers.get("Cookie", "")
        return repository not in self.hub.gated or bool(self.hub.token and self.hub.token in sent)

    def send(self, status: int, body: bytes = b"", **headers: str) -> None:
        """A whole answer."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def send_json(self, document: Any) -> None:
        """A JSON document."""
        self.send(200, json.dumps(document).encode(), Content_Type="application/json")

    def send_file(self, name: str, data: bytes, **headers: str) -> None:
        """A file's content, from where the client asks on, or broken off."""
        body = self.hub.instead.get(name, data)
        begin = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}")
        for header, value in {"Content-Length": str(len(body) - begin), **headers}.items():
            self.send_header(header.replace("_", "-"), value)
        self.end_headers()
        if self.command != "GET":
            return
        if name in self.hub.cut:
            self.wfile.write(body[begin : self.hub.cut.pop(name)])
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.wfile.write(body[begin:])


class HuggingFace(_Handler):
    """What a repository and its tree hold, which is public, and its files."""

    def answer(self, path: list[str], query: dict[str, list[str]]) -> None:
        """As huggingface_hub expects it."""
        repository = "/".join(path[2:4] if path[:2] == ["api", "models"] else path[:2])
        files = self.hub.repositories.get(repository)
        if files is None:
            self.send(401, X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
        elif path[:2] == ["api", "models"] and path[4:5] == ["tree"]:
            self.send_json(
                [
                    {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha256(data).hexdigest()}
                    for name, data in files.items()
                ]
            )
        elif path[:2] == ["api", "models"]:
            siblings = [{"rfilename": name} for name in files]
            self.send_json({"id": repository, "sha": COMMIT, "siblings": siblings})
        elif not self.may_read(repository):
            self.send(401, X_Error_Code="GatedRepo", X_Error_Message="Access to this model is restricted")
        elif (name := "/".join(path[4:])) in files:
            etag = f'"{hashlib.sha256(files[name]).hexdigest()}"'
            size = str(len(files[name]))
            self.send_file(
                name, files[name], ETag=etag, X_Repo_Commit=COMMIT, X_Linked_Size=size, X_Linked_ETag=etag
            )
        else:
            self.send(404, X_Error_Code="EntryNotFound", X_Repo_Commit=COMMIT)


class ModelScope(_Handler):
    """The listing of a repository, and its files."""

    def answer(self, path: list[str], query: dict[str, list[str]]) -> None:
        """As modelscope_hub expects it."""
        repository = "/".join(path[3:5])
        files = self.hub.repositories.get(repository)
        if path[:3] != ["api", "v1", "models"] or files is None:
            self.send(404, b'{"Code": 10010205001, "Message": "not found", "Success": false}')
        elif not self.may_read(repository):
            self.send(403, b'{"Code": 10990101002, "Message": "no permission", "Success": false}')
        elif path[5:] == ["repo", "files"]:
            listed = [
                {
                    "Path": name,
                    "Size": len(data),
                    "Sha256": hashlib.sha256(data).hexdigest(),
                    "Type": "blob",
                }
                for name, data in files.items()
            ]
            self.send_json({"Code": 200, "Data": {"Files": listed}, "Success": True})
        else:
            name = query["FilePath"][0]
            self.send_file(name, files[name])
