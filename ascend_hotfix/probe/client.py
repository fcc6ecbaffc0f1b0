"""One HTTP server that is asked for JSON: where it is, how it is asked, and in one sentence what went wrong.

Requests go to the named URL and nowhere else: redirects are not followed, and a server on this machine is asked without
the proxy that the environment may name. For other hosts ``http_proxy``, ``https_proxy`` and ``no_proxy`` hold as usual.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import re
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from ascend_hotfix.probe.texts import Said

__all__ = ["Client", "ProbeError", "Refused", "base_url"]

MOST_BYTES = 64 << 20  # of one answer
MOST_REQUESTS = 80  # to one server
SHOWN = 300  # characters of what a server says
KNOWN_PATHS = re.compile(r"(/v1)?/(completions|chat/completions|models|health)$|/v1$")
LOADING = (502, 503, 504)
PAUSE = 1.0  # seconds between two looks at a server that is not ready


class ProbeError(Exception):
    """What keeps a server from being asked; ``said`` is the sentence for the user."""

    def __init__(self, code: str, **params: object) -> None:
        self.said = Said(code, params)
        super().__init__(self.said.in_language("en"))


class Refused(ProbeError):
    """The server understood and said no (HTTP 400 and the like): ``status``, and ``words`` of its own."""

    def __init__(self, status: int, words: str, url: str) -> None:
        super().__init__("http-error", url=url, status=status, words=words)
        self.status, self.words = status, words


class NotReady(ProbeError):
    """Nobody listens there, or whoever does says that the server is not ready: may be better in a while."""


def base_url(text: str) -> str:
    """The URL of a server as people write it (``host:8000``, ``http://host:8000/v1/``), without ``/v1``.

    Raises ProbeError for what is no such URL.
    """
    given = text.strip()
    if not given or not (given.isascii() and given.isprintable()) or " " in given:
        raise ProbeError("url-wrong", url=text)
    try:
        parts = urllib.parse.urlsplit(given if "://" in given else f"http://{given}")
        port = parts.port
    except ValueError:
        raise ProbeError("url-wrong", url=text) from None
    if parts.username is not None or parts.password is not None:
        raise ProbeError("url-credentials", host=parts.hostname or "")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or port == 0:
        raise ProbeError("url-wrong", url=text)
    path = KNOWN_PATHS.sub("", parts.path.rstrip("/"))
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc, path.rstrip("/"), "", ""))


def _is_loopback(url: str) -> bool:
    host = urllib.parse.urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Client:
    """Asks one server. ``timeout``: seconds for one answer; ``deadline``: :func:`time.monotonic` when all must be over."""

    def __init__(self, url: str, key: str | None, timeout: float, deadline: float) -> None:
        self.url = base_url(url)
        self.timeout, self.deadline = timeout, deadline
        self.requests = 0
        key = (key or "").strip()
        if not (key.isascii() and key.isprintable()):
            raise ProbeError("key-wrong")
        self._key = key
        proxies: dict[str, str] | None = {} if _is_loopback(self.url) else None
        self._opener = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler(proxies))

    def get(self, path: str) -> Any:
        """The JSON answer to GET; raises :class:`ProbeError`."""
        return self._json(path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON answer to ``body``; raises :class:`ProbeError`, :class:`Refused` where the server says no."""
        return self._json(path, json.dumps(body).encode())

    def get_when_ready(self, path: str, wait: float) -> Any:
        """As :meth:`get`, but asks again for up to *wait* seconds while the server is not ready."""
        until = min(time.monotonic() + wait, self.deadline)
        while True:
            try:
                return self.get(path)
            except NotReady:
                if time.monotonic() + PAUSE >= until:
                    raise
                self.requests -= 1
            time.sleep(PAUSE)

    def _json(self, path: str, body: bytes | None) -> Any:
        url = f"{self.url}{path}"
        content, kind = self._ask(url, body)
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            code = "html" if "html" in kind or content.lstrip()[:1] == b"<" else "not-json"
            raise ProbeError(code, url=url, words=self._words(content)) from None

    def _ask(self, url: str, body: bytes | None) -> tuple[bytes, str]:
        """The bytes of the answer and their media type."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise ProbeError("time-up")
        if self.requests >= MOST_REQUESTS:
            raise ProbeError("too-many", count=MOST_REQUESTS)
        self.requests += 1
        headers = {"Accept": "application/json", "User-Agent": "ascend-hotfix-probe"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        seconds = min(self.timeout, left)
        end = time.monotonic() + seconds
        try:
            with self._opener.open(urllib.request.Request(url, body, headers), timeout=seconds) as response:
                return _read(response, end, url), response.headers.get("Content-Type", "")
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(url, error, end) from None
        except urllib.error.URLError as error:
            raise self._trouble(url, error.reason, seconds) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._trouble(url, error, seconds) from None

    def _trouble(self, url: str, reason: object, seconds: float) -> ProbeError:
        """A time-out that only the end of the whole time made is not one of the server's."""
        if isinstance(reason, TimeoutError) and seconds < self.timeout:
            return ProbeError("time-up")
        return _trouble(url, reason, seconds)

    def _refused(self, url: str, error: urllib.error.HTTPError, end: float) -> ProbeError:
        try:
            content = _read(error, end, url)
        except (OSError, http.client.HTTPException, ProbeError):
            content = b""
        words = self._words(content)
        if 300 <= error.code < 400:
            return ProbeError("redirect", url=url, target=error.headers.get("Location", "?"))
        if error.code in (401, 403):
            return ProbeError("key-refused" if self._key else "key-missing", url=url, status=error.code, words=words)
        if error.code in LOADING:
            return NotReady("not-ready", url=url, status=error.code, words=words)
        if error.code == 429:
            return ProbeError("too-busy", url=url, words=words)
        return Refused(error.code, words, url)

    def _words(self, content: bytes) -> str:
        """What an answer says, on one line; never the key."""
        text = content.decode("utf-8", errors="replace")
        try:
            said = _message(json.loads(text))
        except (ValueError, RecursionError):
            title = re.search(r"<title[^>]*>(.*?)</title>", text, flags=re.S | re.I)
            said = title[1] if title else text
        if self._key:
            said = said.replace(self._key, "***")
        line = "".join(c if c.isprintable() else " " for c in said)
        line = " ".join(line.split())
        return line if len(line) <= SHOWN else f"{line[:SHOWN]}..."


def _message(body: Any) -> str:
    """The sentence in an error as vLLM, OpenAI, FastAPI and others write it."""
    for name in ("error", "message", "detail"):
        if isinstance(body, dict) and body.get(name):
            return _message(body[name])
    return body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)


def _read(response: Any, end: float, url: str) -> bytes:
    """The whole body, in bounded size and time (the socket's own timeout is only for each piece of it)."""
    found = bytearray()
    while piece := response.read1(1 << 16):
        found += piece
        if len(found) > MOST_BYTES:
            raise ProbeError("too-long", url=url, size=MOST_BYTES >> 20)
        if time.monotonic() > end:
            raise TimeoutError
    missing = getattr(response, "length", None)  # read1 is content with less than Content-Length says
    if missing:
        raise http.client.IncompleteRead(bytes(found), missing)
    return bytes(found)


def _trouble(url: str, reason: object, seconds: float) -> ProbeError:
    """The sentence for a failure below HTTP."""
    if isinstance(reason, TimeoutError):
        return ProbeError("timeout", url=url, seconds=f"{seconds:.3g}")
    if isinstance(reason, ssl.SSLCertVerificationError):
        return ProbeError("certificate", url=url, words=reason.verify_message)
    if isinstance(reason, ssl.SSLError):
        return ProbeError("no-tls", url=url, words=reason.reason or str(reason))
    if isinstance(reason, socket.gaierror):
        return ProbeError("no-host", url=url, words=reason.strerror or str(reason))
    if isinstance(reason, ConnectionRefusedError):
        return NotReady("refused", url=url)
    if isinstance(reason, (ConnectionError, http.client.IncompleteRead)):  # RemoteDisconnected is a ConnectionError
        return NotReady("closed", url=url)
    if isinstance(reason, http.client.HTTPException):
        return ProbeError("no-http", url=url)
    return ProbeError("unreachable", url=url, words=str(reason))
