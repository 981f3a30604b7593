"""Signing keys of an organization: list, show, rotate."""

from __future__ import annotations

from typing import Any

from flask import Response

from app.api import representations
from app.api.blueprint import api
from app.operations.store.idempotency import IdempotentResult
from app.operations.tokens import signing_key_lists
from app.operations.tokens.signing_key_lists import SigningKeyRecord
from app.rules.fields import Findings, find_unknown
from app.web.bearer import Call, management
from app.web.etag import etag_of
from app.web.idempotency import created, once
from app.web.json_api import envelope, read_object

_FIELDS = ("algorithm", "emergency")


def signing_key(record: SigningKeyRecord) -> dict[str, Any]:
    """A published key."""
    return {
        "kid": record.kid,
        "algorithm": record.algorithm,
        "state": record.state,
        "created_at": representations.time(record.created_at),
        "activated_at": representations.time(record.activated_at),
        "retired_at": representations.time(record.retired_at),
        "changes_at": representations.time(record.changes_at),
        "public_jwk": record.public_jwk,
    }


@api.get("/organizations/<slug>/signing-keys")
@management(names_organization=False)
def list_signing_keys(call: Call, slug: str) -> Response:
    """Every key that verifiers are given, newest first."""
    listed = signing_key_lists.list_signing_keys(call.actor, slug)
    return envelope([signing_key(record) for record in listed], meta={"next_cursor": None})


@api.get("/organizations/<slug>/signing-keys/<kid>")
@management(names_organization=False)
def get_signing_key(call: Call, slug: str, kid: str) -> Response:
    """One published key."""
    record = signing_key_lists.get_signing_key(call.actor, slug, kid)
    return envelope(signing_key(record), headers={"ETag": etag_of(record.version)})


@api.post("/organizations/<slug>/signing-keys/rotations")
@management(names_organization=False)
def rotate_signing_keys(call: Call, slug: str) -> Response:
    """The next key is published, or signs; in an emergency a fresh one signs and the others are gone."""
    body = read_object(optional=True)
    findings = Findings()
    find_unknown(findings, body, _FIELDS)
    findings.raise_if_any()

    def work() -> IdempotentResult:
        record = signing_key_lists.rotate_signing_key(call.actor, slug, **body)
        outcome = created(signing_key(record), record.kid)
        location = outcome.headers["Location"].replace("/signing-keys/rotations/", "/signing-keys/")
        headers = {"Location": location, "ETag": etag_of(record.version)}
        return IdempotentResult(outcome.status, outcome.data, outcome.meta, headers)

    return once(call.actor, body, work)
