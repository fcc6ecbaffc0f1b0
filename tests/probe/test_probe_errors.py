"""What keeps a probe from asking: one line that says so, exit code 2, and JSON all the same."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import threading
import time

import pytest
from reading import Probed, check, states
from speaking import Behaviour, Model, Refuse, speaking

from ascend_hotfix.cli import main
from ascend_hotfix.probe.client import Client, ProbeError, base_url
from ascend_hotfix.sim.server import free_port

HTML = "<!doctype html><html><head><title>Welcome to nginx!</title></head></html>"


def said(capsys, *arguments: str) -> str:
    """The one line about what went wrong; nothing is on stdout."""
    assert main(["probe", *arguments]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    plan, line = found.err.splitlines()
    assert "requests" in plan or "请求" in plan
    assert line.startswith("ascend-hotfix: ")
    return line


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("http://localhost:8000", "http://localhost:8000"),
        ("localhost:8000", "http://localhost:8000"),
        ("10.0.0.7", "http://10.0.0.7"),
        ("http://host:1/v1/", "http://host:1"),
        ("https://host/api/openai/v1", "https://host/api/openai"),
        ("http://host:1/v1/completions", "http://host:1"),
        ("http://host:1/v1/chat/completions", "http://host:1"),
        ("http://[::1]:8000/", "http://[::1]:8000"),
    ],
)
def test_urls_as_people_write_them(given: str, meant: str) -> None:
    assert base_url(given) == meant


@pytest.mark.parametrize(
    "url",
    ["", "   ", "ftp://host", "http://", "http://host:port", "http://host:99999", "http://a b", "http://höst", "x?y=1"],
)
def test_what_is_no_url(url: str, capsys) -> None:
    assert "is not the URL of a server" in said(capsys, url)


def test_a_password_in_the_url_is_not_repeated(capsys) -> None:
    line = said(capsys, "http://me:secret@host:1")
    assert "OPENAI_API_KEY" in line and "secret" not in line


def test_nobody_listens(capsys) -> None:
    assert "connection refused" in said(capsys, f"http://127.0.0.1:{free_port()}")


def test_no_such_host(capsys) -> None:
    assert "no such host" in said(capsys, "http://host.invalid")


ANSWERS = {
    "html": ((200, "text/html", HTML), "Welcome to nginx!"),
    "html that calls itself JSON": ((200, "application/json", HTML), "web page"),
    "text": ((200, "text/plain", "hello"), "not JSON"),
    "cut off": ((200, "application/json", '{"data": ['), "not JSON"),
    "nothing": ((200, "application/json", ""), "not JSON"),
    "another API": ((200, "application/json", "[]"), "not one of the OpenAI completions API"),
    "no models": ((200, "application/json", '{"data": []}'), "lists no model"),
    "forbidden": ((403, "application/json", '{"detail": "no"}'), "wants an API key"),
    "busy": ((429, "application/json", '{"error": {"message": "slow down"}}'), "slow down"),
    "crash": ((500, "text/plain", "Internal Server Error"), "HTTP 500: Internal Server Error"),
    "loading": ((503, "application/json", '{"error": {"message": "Loading model"}}'), "still loads"),
    "moved": ((307, "text/plain", ""), "redirects are not followed"),
    "not there": ((404, "application/json", '{"detail": "Not Found"}'), "--model"),
    "deep": ((200, "application/json", "[" * 100_000), "not JSON"),
    "control characters": ((500, "text/plain", "a\x1b[31mb\nc"), "a [31mb c"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_that_are_none(name: str, capsys) -> None:
    answer, words = ANSWERS[name]
    with speaking(Behaviour(answer=answer)) as url:
        assert words in said(capsys, url)


def test_a_server_without_completions(capsys) -> None:
    missing = (404, "application/json", '{"detail": "Not Found"}')
    with speaking(Behaviour(answer=missing, answer_path="/v1/completions")) as url:
        assert "no completions API" in said(capsys, url)


@pytest.mark.parametrize("body", ["{}", '{"choices": null}', '{"choices": []}', '{"choices": [7]}', "null"])
def test_completions_that_are_none(body: str, capsys) -> None:
    with speaking(Behaviour(answer=(200, "application/json", body), answer_path="/v1/completions")) as url:
        assert "not one of the OpenAI completions API" in said(capsys, url)


def test_what_answers_does_not_speak_http(capsys) -> None:
    with _raw(b"SSH-2.0-OpenSSH_9.2\r\n") as url:
        assert "does not speak HTTP" in said(capsys, url)


def test_a_connection_that_is_closed(capsys) -> None:
    with _raw(b"") as url:
        assert "closed the connection" in said(capsys, url)
    with _raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{") as url:
        assert "closed the connection" in said(capsys, url)


class _raw:
    """A server that answers every connection with the same bytes and closes it."""

    def __init__(self, content: bytes, context: ssl.SSLContext | None = None) -> None:
        self.content, self.context = content, context

    def __enter__(self) -> str:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()
        return f"{'https' if self.context else 'http'}://127.0.0.1:{self.listening.getsockname()[1]}"

    def _serve(self) -> None:
        while True:
            connection, _ = self.listening.accept()
            with connection:
                if self.content == b"stop" or not connection.recv(
                    65536 if self.context is None else 1, socket.MSG_PEEK
                ):
                    return
                try:
                    with (
                        self.context.wrap_socket(connection, server_side=True)
                        if self.context
                        else connection as wrapped
                    ):
                        wrapped.recv(65536)
                        wrapped.sendall(self.content)
                except OSError:
                    continue

    def __exit__(self, *_: object) -> None:
        self.content = b"stop"
        socket.create_connection(self.listening.getsockname()).close()
        self.thread.join()
        self.listening.close()


def test_tls_where_there_is_none(capsys) -> None:
    with speaking() as url:
        assert "name it with http://" in said(capsys, url.replace("http://", "https://"))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_a_certificate_that_nobody_trusts(capsys, tmp_path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    subprocess.run([*make, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with _raw(b"", context) as url:
        line = said(capsys, url)
    assert "not trusted" in line and "SSL_CERT_FILE" in line


# -- keys, models, waiting ------------------------------------------------------------------------------------------------


def test_a_key_is_wanted_refused_and_taken(capsys, monkeypatch) -> None:
    with speaking(Behaviour(key="right-key")) as url:
        assert "OPENAI_API_KEY" in said(capsys, url)
        line = said(capsys, url, "--api-key", "wrong-key")
        assert "does not accept this API key" in line
        assert "wrong-key" not in line and "***" in line
        assert main(["probe", url, "--api-key", "right-key"]) == 0
        monkeypatch.setenv("OPENAI_API_KEY", "right-key")
        assert main(["probe", url, "--json"]) == 0
        assert "right-key" not in capsys.readouterr().out
    assert "API key holds characters" in said(capsys, url, "--api-key", "a\nb")


def test_each_server_gets_its_own_key(probed: Probed) -> None:
    one, other = Behaviour(key="one"), Behaviour(key="other")
    assert probed(one, "--api-key", "one", "--against-api-key", "other", against=other)[0] == 0
    assert {headers["Authorization"] for *_, headers in other.seen} == {"Bearer other"}
    code, report = probed(one, "--api-key", "one", against=Behaviour(key="other"))
    assert (code, report["error"]["code"]) == (2, "key-missing")


def test_several_models(capsys, probed: Probed) -> None:
    several = Behaviour(models=({"id": "one"}, {"id": "two"}))
    with speaking(several) as url:
        assert "one, two" in said(capsys, url)
        assert "has no model 'tow'; it has two" in said(capsys, url, "--model", "tow")
    code, report = probed(several, "--model", "two")
    assert (code, report["server"]["model"]) == (0, "two")


def test_names_of_one_model_and_adapters_are_no_choice(probed: Probed) -> None:
    cards = ({"id": "a", "root": "/m"}, {"id": "b", "root": "/m"}, {"id": "lora", "root": "/l", "parent": "a"})
    code, report = probed(Behaviour(models=cards))
    assert (code, report["server"]["model"]) == (0, "a")


def test_a_loading_server_is_waited_for(capsys, probed: Probed) -> None:
    code, _ = probed(Behaviour(loading=1), "--wait", "30")
    assert code == 0
    with speaking(Behaviour(loading=99)) as url:
        assert "still loads" in said(capsys, url, "--wait", "1.5")


def test_a_slow_server(capsys) -> None:
    with speaking(Behaviour(delay=2.0)) as url:
        assert "no whole answer in 0.2 s" in said(capsys, url, "--timeout", "0.2")


def test_what_was_found_is_told_when_the_server_dies_midway(probed: Probed) -> None:
    class Dying(Behaviour):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)

        @property
        def lists(self):
            self.answer = (500, "text/plain", "engine died")
            return True

        @lists.setter
        def lists(self, value):
            pass

    code, report = probed(Dying())
    assert code == 2
    assert states(report) == {"language": "right", "answers": "right", "batch": "right", "decode": "unchecked"}
    assert "engine died" in check(report, "decode")["message"]


def test_the_whole_time_is_bounded() -> None:
    with speaking() as url, pytest.raises(ProbeError, match="the time for the whole probe is over"):
        Client(url, None, timeout=5, deadline=0.0).get("/v1/models")


def test_an_answer_that_comes_after_the_whole_time_is_no_fault_of_the_time_for_one_answer() -> None:
    with speaking(Behaviour(delay=2.0)) as url, pytest.raises(ProbeError, match="the time for the whole probe is over"):
        Client(url, None, timeout=600, deadline=time.monotonic() + 0.2).get("/v1/models")


class _LaterDead(Model):
    """Answers the one token that goes with each text, and no longer completion."""

    def row(self, context):
        self.asked = getattr(self, "asked", 0) + 1
        if self.asked > 40:
            raise Refuse("the engine has died")
        return super().row(context)


def test_what_compares_answers_is_unchecked_for_the_reason_that_they_are(probed: Probed) -> None:
    code, report = probed(Behaviour(decoding=_LaterDead()))
    assert code == 2
    assert states(report) == {"language": "right", "answers": "unchecked", "batch": "unchecked", "decode": "unchecked"}
    assert len({check(report, name)["message"] for name in ("answers", "batch", "decode")}) == 1


def test_the_number_of_requests_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr("ascend_hotfix.probe.client.MOST_REQUESTS", 2)
    with speaking() as url:
        client = Client(url, None, 5, 1e12)
        client.get("/v1/models")
        client.get("/v1/models")
        with pytest.raises(ProbeError, match="the most that a probe sends"):
            client.get("/v1/models")


def test_json_tells_the_error_too(capsys) -> None:
    assert main(["probe", f"http://127.0.0.1:{free_port()}", "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert (report["error"]["code"], report["checks"], report["exit_code"]) == ("refused", [], 2)


@pytest.mark.parametrize("proxy", ["http_proxy", "HTTP_PROXY"])
def test_a_server_on_this_machine_is_asked_without_the_proxy(proxy: str, monkeypatch, probed: Probed) -> None:
    monkeypatch.setenv(proxy, f"http://127.0.0.1:{free_port()}")
    assert probed(Behaviour())[0] == 0


@pytest.mark.parametrize("options", [["--timeout", "0"], ["--max-kl", "x"], ["--wait", "nan"], []])
def test_a_wrong_command_line(options: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["probe", *(["http://host"] if options else []), *options])
    assert ended.value.code == 2
