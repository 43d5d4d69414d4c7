"""Requests that may not come in: host, origin, token, content type, size."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from service.guard import host_name
from service.settings import settings_from
from tests.support.serving import CHAT, Served, serving
from tuner.cli.main import run
from tuner.errors import UsageError
from tuner.home import Home

TOKEN = "a-token-of-enough-length"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory):
    """A service with a token and without a generator."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "token").write_text(f"{TOKEN}\nnot this line\n")
    with serving(
        Home(folder / "home"), generator=False, token_file=folder / "token", body_bytes=2048
    ) as served:
        yield served


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost@evil", "[::2]"])
def test_a_foreign_host_name_is_refused(simulated: Served, host: str):
    response = simulated.client.get("/v1/machine", headers={"Host": host})
    assert response.status_code in (400, 421)
    assert "effective" not in response.text


def test_more_names_are_served_where_the_environment_lists_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CPUTUNE_SERVE_ALLOWED_HOSTS", "one.example, two.example")
    assert settings_from().allowed_hosts == ("one.example", "two.example")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:80", "[::1]:8765"])
def test_loopback_by_any_name_is_served(simulated: Served, host: str):
    assert simulated.client.get("/healthz", headers={"Host": host}).status_code == 200


def test_a_page_of_another_site_may_not_call(simulated: Served):
    for origin in ("http://evil.example", "null", "https://localhost.evil.example"):
        response = simulated.client.post("/v1/chat/completions", json=CHAT, headers={"Origin": origin})
        assert response.status_code == 403, origin
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    preflight = simulated.client.options("/v1/chat/completions", headers=asked)
    assert preflight.status_code == 403
    assert [name for name in preflight.headers if name.startswith("access-control")] == []
    own = str(simulated.client.base_url).rstrip("/")
    assert (
        simulated.client.post("/v1/chat/completions", json=CHAT, headers={"Origin": own}).status_code == 200
    )


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_that_a_form_could_send_is_refused(simulated: Served, kind: str):
    response = simulated.client.post(
        "/v1/chat/completions", content=b'{"messages": []}', headers={"Content-Type": kind}
    )
    assert response.status_code == 415


@pytest.mark.parametrize(
    "given", [None, "Bearer wrong-token-of-some-length", f"Basic {TOKEN}", TOKEN, "Bearer"]
)
def test_without_the_token_nothing_but_healthz_is_answered(guarded: Served, given: str | None):
    headers = {} if given is None else {"Authorization": given}
    for path in ("/v1/machine", "/metrics", "/readyz", "/docs", "/openapi.json", "/nowhere"):
        response = guarded.client.get(path, headers=headers)
        assert response.status_code == 401, path
        assert response.headers["WWW-Authenticate"] == "Bearer"
    assert guarded.client.get("/healthz", headers=headers).status_code == 200


def test_with_the_token_it_is(guarded: Served):
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert guarded.client.get("/v1/machine", headers=headers).json()["effective"]["cpu_count"] >= 1


def test_too_large_a_body_is_refused_declared_or_not(guarded: Served):
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    body = b'{"model": "' + b"x" * 4000 + b'"}'
    declared = guarded.client.post("/v1/searches", content=body, headers=headers)
    chunked = guarded.client.post("/v1/searches", content=iter([body[:2000], body[2000:]]), headers=headers)
    for response in (declared, chunked):
        assert response.status_code == 413
        assert "2048" in response.json()["error"]["message"]


def test_a_body_that_does_not_come_is_not_waited_for(simulated: Served, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("service.guard.BODY_S", 0.1)
    address = simulated.client.base_url
    with socket.create_connection((address.host, address.port or 80), timeout=10) as connection:
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: 900\r\n\r\n{{".encode())
        answer = b""
        while not answer.endswith(b"}}"):
            answer += connection.recv(1 << 16)
    assert b" 408 " in answer.splitlines()[0]
    assert b"body_too_slow" in answer


def test_beyond_loopback_a_token_is_needed():
    with pytest.raises(UsageError, match="--token-file"):
        settings_from(host="0.0.0.0").secret()
    with pytest.raises(UsageError, match="at least 16"):
        settings_from(host="0.0.0.0", token="short").secret()


def test_a_token_that_no_header_carries_is_refused():
    with pytest.raises(UsageError, match="no header carries"):
        settings_from(token="pässwörter-of-length").secret()


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "can't be read"), (b"\xff\xfe\x00", "can't be read"), (b"\nin-the-second-line", "0 characters")],
)
def test_a_token_file_that_holds_none_is_one_line(tmp_path: Path, content: bytes | None, problem: str):
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    # Without a token it is open to everybody here: not what was asked for.
    with pytest.raises(UsageError, match=problem):
        settings_from(token_file=file).secret()


def test_a_folder_is_no_token_file(tmp_path: Path):
    with pytest.raises(UsageError, match="can't be read"):
        settings_from(token_file=tmp_path).secret()


def test_the_token_is_in_no_text_of_the_settings():
    assert TOKEN not in repr(settings_from(token=TOKEN))


def test_a_setting_out_of_range_names_itself():
    with pytest.raises(UsageError, match="--port 70000: allowed is what is less than or equal to 65535"):
        settings_from(port=70000)


@pytest.mark.parametrize(
    ("header", "name"),
    [("localhost:80", "localhost"), ("[::1]:80", "::1"), ("[::1]", "::1"), ("a.b", "a.b"), ("", "")],
)
def test_the_name_in_a_host_header(header: str, name: str):
    assert host_name(header) == name


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (("--model", "nothere"), 4, "no model 'nothere' is registered"),
        (("--profile", "p-zzz"), 3, "no profile 'p-zzz'"),
        (("--workload", "chatt"), 2, "did you mean chat"),
        (("--host", "0.0.0.0"), 2, "--token-file"),
    ],
)
def test_a_name_that_is_unknown_ends_serve_before_it_listens(
    home: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, part: str
):
    del home
    assert run(["serve", *arguments]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert part in line


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": "\\ud800"}]}'),
        ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": "x"}], "model": "\\ud800"}'),
        ("/v1/completions", b'{"prompt": "\\udfff"}'),
        ("/v1/searches", b'{"\\ud800": 1}'),
        ("/v1/searches", b'{"limits": ["\\ud800"]}'),
        ("/v1/recommendations", b'{"machine": {"fingerprint": "\\ud800"}}'),
        ("/v1/recommendations", b'{"machine": {"fingerprint": NaN}}'),
        ("/v1/recommendations", b'{"workload": "\\ud800"}'),
        ("/v1/chat/completions", b"[" * 100_000),
    ],
)
def test_what_is_no_text_and_no_document_is_refused(simulated: Served, path: str, body: bytes):
    response = simulated.client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert response.status_code in (400, 422), response.text
    assert response.json()["error"]["type"] == "invalid_request_error"
