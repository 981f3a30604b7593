"""Answers of the wire, complete with their headers, and the form of a refusal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from flask import Response

from app import config
from app.oauth.call import Call
from app.oauth.failures import note_refusal
from app.rules.errors import DomainError
from app.rules.oauth_errors import InvalidClient
from app.web.headers import program_headers

REALM = "gatehouse"
STATUS_LINES = {status.value: f"{status.value} {status.phrase}" for status in HTTPStatus}
_JSON = (("Content-Type", "application/json"), ("Pragma", "no-cache"))


@dataclass(slots=True)
class Answer:
    """An answer of the wire, complete with its headers."""

    status: int
    body: bytes
    headers: list[tuple[str, str]]

    def as_response(self) -> Response:
        """The answer as Flask takes it."""
        return Response(self.body, self.status, self.headers)


def answer(document: Mapping[str, Any], status: int = 200) -> Answer:
    """A JSON answer that nobody may keep (RFC 6749 section 5.1)."""
    body = json.dumps(document).encode()
    length = ("Content-Length", str(len(body)))
    return Answer(status, body, [*_JSON, *program_headers(config.current().is_https), length])


def signed_answer(jwt: str, media_type: str) -> Answer:
    """An answer that is a JWT."""
    body = jwt.encode()
    headers = [("Content-Type", media_type), ("Content-Length", str(len(body)))]
    return Answer(200, body, [*headers, *program_headers(config.current().is_https)])


def refusal_of(error: DomainError, call: Call) -> Answer:
    """A refusal in the form of RFC 6749 section 5.2; the makers of the client find it in their log."""
    note_refusal(error, call)
    refused = answer({"error": error.code, "error_description": error.description}, error.status)
    retry_after = getattr(error, "retry_after", None)
    if retry_after is not None:
        refused.headers.append(("Retry-After", str(retry_after)))
    # Asked for whenever the header was used, and harmless where it was not.
    if isinstance(error, InvalidClient) and (call.authorization or "").lower().startswith("basic"):
        refused.headers.append(("WWW-Authenticate", f'Basic realm="{REALM}"'))
    return refused
