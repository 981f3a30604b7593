"""The Idempotency-Key header, which every POST of the API accepts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from flask import Response, request

from app.operations.store.idempotency import IdempotentResult, run_once
from app.rules.actor import Actor
from app.rules.errors import InvalidInput
from app.web.json_api import envelope

_KEY = re.compile(r"[\x21-\x7e]{1,200}")
_SECRETS = frozenset({"client_secret", "link", "invitation_link", "initial_access_token", "signing_secret"})


def created(
    data: Any,
    location: str,
    *,
    meta: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> IdempotentResult:
    """Return a 201 outcome with the Location of the new object, below the collection in the request's path."""
    return IdempotentResult(
        201, data, meta or {}, {"Location": f"{request.path.rstrip('/')}/{location}", **(headers or {})}
    )


def sent_key() -> str | None:
    """Return the Idempotency-Key of the request, or None. Raises InvalidInput for an invalid key."""
    key = request.headers.get("Idempotency-Key")
    if key is not None and _KEY.fullmatch(key) is None:
        message = "An Idempotency-Key must be 1 to 200 printable ASCII characters, without spaces."
        raise InvalidInput(message, field="Idempotency-Key", code="invalid_key")
    return key


def run_idempotently(actor: Actor, body: Mapping[str, Any], work: Callable[[], IdempotentResult]) -> Response:
    """Return the response of ``work``. With an Idempotency-Key, it runs once, and repeats have no secrets."""
    key = sent_key()
    if key is None:
        outcome = work()
    else:
        path = request.path.removeprefix("/api/v1")
        acting = request.args.get("organization_id", "")
        outcome = run_once(
            actor,
            work,
            key=key,
            route=f"{request.method} {path} {acting}",
            body=body,
            secret_fields=_SECRETS,
        )
    meta = {**outcome.meta, **({"repeated": True} if outcome.is_repeated else {})}
    return envelope(outcome.data, outcome.status, meta=meta, headers=outcome.headers)
