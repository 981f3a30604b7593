"""Idempotency-Key on the wire: each POST of the API takes one."""

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
    """201 with the address of what was made, below the collection that was posted to."""
    return IdempotentResult(
        201, data, meta or {}, {"Location": f"{request.path.rstrip('/')}/{location}", **(headers or {})}
    )


def sent_key() -> str | None:
    """The Idempotency-Key of the request, or None without one. Raises InvalidInput for what can be none."""
    key = request.headers.get("Idempotency-Key")
    if key is not None and _KEY.fullmatch(key) is None:
        message = "An Idempotency-Key is 1 to 200 printable ASCII characters without spaces."
        raise InvalidInput(message, field="Idempotency-Key", code="invalid_key")
    return key


def once(actor: Actor, body: Mapping[str, Any], work: Callable[[], IdempotentResult]) -> Response:
    """The answer of ``work``; with an Idempotency-Key it is done once and repeated without its secrets."""
    key = sent_key()
    if key is None:
        outcome = work()
    else:
        path = request.path.removeprefix("/api/v1")
        named = request.args.get("organization_id", "")
        outcome = run_once(
            actor,
            work,
            key=key,
            route=f"{request.method} {path} {named}",
            body=body,
            secret_fields=_SECRETS,
        )
    meta = {**outcome.meta, **({"repeated": True} if outcome.is_repeated else {})}
    return envelope(outcome.data, outcome.status, meta=meta, headers=outcome.headers)
