"""One stream over a raw socket, with the time of every event: `python -m tests.benchmarks.sse_client`."""

from __future__ import annotations

import argparse
import json
import socket
import sys
import time


def stream(port: int, body: dict[str, object]) -> list[float]:
    """Seconds from sending the request to each piece of text."""
    content = json.dumps({**body, "stream": True}).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.perf_counter()
        connection.sendall(head.encode() + content)
        seconds: list[float] = []
        held = b""
        while data := connection.recv(65536):
            now = time.perf_counter()
            *lines, held = (held + data).split(b"\n")
            # A piece of text: neither the last events nor one without text.
            seconds += [now for line in lines if b'"finish_reason":null' in line]
    return [at - began for at in seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--body", required=True, help="JSON of the request")
    asked = parser.parse_args()
    json.dump(stream(asked.port, json.loads(asked.body)), sys.stdout)


if __name__ == "__main__":
    main()
