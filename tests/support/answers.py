"""Management API responses in a comparable form, and the rows of one organization."""

from __future__ import annotations

import json
from typing import Any

from werkzeug.test import TestResponse

from app.models import Base
from tests.support.databases import Database
from tests.support.world import Corner


def as_bytes(answer: TestResponse) -> bytes:
    """Return the response without what differs for every request."""
    body = answer.get_json()
    body.pop("request_id")
    headers = sorted((name, value) for name, value in answer.headers if name != "X-Request-Id")
    return json.dumps([answer.status_code, headers, body]).encode()


def is_envelope(answer: TestResponse, status: int) -> bool:
    """Return whether the response is this error in the JSON envelope and is not cacheable."""
    body = answer.get_json()
    return (
        answer.status_code == status == body["error_code"]
        and body["success"] is False
        and bool(body["error_msg"] and body["error"] and body["request_id"])
        and answer.headers["Cache-Control"] == "no-store"
    )


def rows_of(database: Database, corner: Corner) -> dict[str, list[str]]:
    """Return every row of the organization in every table, without last-use times, which its own calls
    change.
    """
    key = corner.organization.id.encode()
    rows = {}
    for table in Base.metadata.tables:
        found = [
            row
            for row in database.query(f"SELECT * FROM {table}")
            if key in [_raw(value) for value in row[:2]]
        ]
        rows[table] = sorted(map(repr, found))
    return rows


def _raw(value: Any) -> Any:
    return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else value


def version_of(answer: Any) -> str:
    """Return the version in the ETag of a response, without the digest that a response to GET adds."""
    tag: str = answer.headers["ETag"]
    return tag.strip('"').partition("-")[0]
