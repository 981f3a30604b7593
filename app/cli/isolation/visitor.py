"""An HTTP client that uses this installation from outside, as programs and browsers do."""

from __future__ import annotations

import http.client
import json
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from msgspec import Struct

_TIMEOUT_SECONDS = 15
# Headers of the service. A proxy adds others, which differ for each response.
_OWN_HEADERS = frozenset(
    {"allow", "cache-control", "content-type", "etag", "location", "retry-after", "vary", "www-authenticate"}
)
_PASSING_WORDS = re.compile(rb"req_[0-9a-z]{26}")


class Reply(Struct, frozen=True):
    """A response; names of ``headers`` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        """Return the JSON body, or None."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    def holds(self, text: str, *, besides: str = "") -> bool:
        """Return whether the response contains the text, apart from repeating ``besides``, which the visitor sent."""
        sent = {besides, quote(besides), quote(besides, safe="")} - {""}
        for told in (self.body.decode("utf-8", "replace"), *self.headers.values()):
            for own in sent:
                told = told.replace(own, "")
            if text in told:
                return True
        return False

    def seen(self) -> tuple[Any, ...]:
        """Return everything that distinguishes two responses, except what differs for every request."""
        headers = sorted((name, value) for name, value in self.headers.items() if name in _OWN_HEADERS)
        return self.status, tuple(headers), _PASSING_WORDS.sub(b"", self.body)


class Visitor:
    """Sends requests to ``url``; ``host`` is the Host header."""

    def __init__(self, url: str, host: str) -> None:
        parts = urlsplit(url)
        self._is_https = parts.scheme == "https"
        self._address = parts.hostname or "", parts.port or (443 if self._is_https else 80)
        self._host = host

    def send(
        self,
        method: str,
        path: str,
        *,
        bearer: str | None = None,
        basic: tuple[str, str] | None = None,
        cookies: Mapping[str, str] | None = None,
        body: Any = None,
        form: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send a request and return the response. Redirects are not followed. Raises OSError without a response."""
        headers = {"Host": self._host}
        content = None
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer}"
        if basic is not None:
            headers["Authorization"] = "Basic " + b64encode(":".join(basic).encode()).decode()
        if cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
        if body is not None:
            headers["Content-Type"], content = "application/json", json.dumps(body)
        if form is not None:
            headers["Content-Type"], content = "application/x-www-form-urlencoded", urlencode(form)
        target = f"{path}?{urlencode(query)}" if query else path
        kind = http.client.HTTPSConnection if self._is_https else http.client.HTTPConnection
        connection = kind(*self._address, timeout=_TIMEOUT_SECONDS)
        try:
            connection.request(method.upper(), target, body=content, headers=headers)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, found, answer.read())
        finally:
            connection.close()
