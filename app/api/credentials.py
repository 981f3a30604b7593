"""Credentials of a client: the ledger, a new secret, revocation."""

from __future__ import annotations

from typing import Any

from flask import Response

from app.api import representations
from app.api.blueprint import api
from app.operations.clients import credentials
from app.operations.store.idempotency import IdempotentResult
from app.rules.fields import Findings, find_unknown
from app.rules.versions import combine_versions
from app.web.bearer import Call, management
from app.web.etag import etag_of, expected_version
from app.web.idempotency import created, once
from app.web.json_api import envelope, read_object
from app.web.parameters import flag

_FIELDS = ("name", "expires_at", "retire_others_in_seconds")


@api.get("/clients/<client_id>/credentials")
@management("reveal")
def list_credentials(call: Call, client_id: str) -> Response:
    """The ledger. ``?reveal=true`` adds the secrets that may be viewed; that is audited and rate limited."""
    reveals = flag(call.parameters, "reveal")
    listed = credentials.list_credentials(call.actor, client_id)
    secrets: dict[str, str] = {}
    wanted = [record.public_id for record in listed if record.revealable]
    if reveals and wanted:
        secrets = credentials.reveal_credentials(call.actor, client_id, wanted)
    data = [
        representations.credential(record, client_id, secret=secrets.get(record.public_id))
        for record in listed
    ]
    etag = etag_of(combine_versions(record.version for record in listed if record.is_live))
    return envelope(data, meta={"next_cursor": None}, headers={"ETag": etag})


@api.get("/clients/<client_id>/credentials/<credential_id>")
@management("reveal")
def get_credential(call: Call, client_id: str, credential_id: str) -> Response:
    """One entry of the ledger; ``?reveal=true`` adds its secret."""
    reveals = flag(call.parameters, "reveal")
    record = credentials.get_credential(call.actor, client_id, credential_id)
    secret = credentials.reveal_credential(call.actor, client_id, credential_id) if reveals else None
    shown = representations.credential(record, client_id, secret=secret)
    return envelope(shown, headers={"ETag": etag_of(record.version)})


@api.post("/clients/<client_id>/credentials")
@management()
def create_credential(call: Call, client_id: str) -> Response:
    """A further secret; with ``retire_others_in_seconds`` those before it end then."""
    body = read_object(optional=True)
    findings = Findings()
    find_unknown(findings, body, _FIELDS)
    findings.raise_if_any()

    def work() -> IdempotentResult:
        return made(credentials.create_credential(call.actor, client_id, **body), client_id)

    return once(call.actor, body, work)


@api.delete("/clients/<client_id>/credentials")
@management("credential_id", "revoke_tokens")
def revoke_credentials(call: Call, client_id: str) -> Response:
    """All live secrets end, or with ``credential_id`` one; ``revoke_tokens=true`` ends what they minted."""
    return _revoked(call, client_id, call.parameters.get("credential_id"))


@api.delete("/clients/<client_id>/credentials/<credential_id>")
@management("revoke_tokens")
def revoke_credential(call: Call, client_id: str, credential_id: str) -> Response:
    """One secret ends."""
    return _revoked(call, client_id, credential_id)


def made(new: credentials.NewCredential, client_id: str) -> IdempotentResult:
    """The answer with a new secret, and those that have an end since."""
    data: dict[str, Any] = representations.credential(new.credential, client_id, secret=new.secret)
    data["retired"] = [representations.credential(record, client_id) for record in new.retired]
    outcome = created(data, new.credential.public_id, headers={"ETag": etag_of(new.credential.version)})
    location = outcome.headers["Location"].replace("/credentials/rotation/", "/credentials/")
    return IdempotentResult(
        outcome.status, outcome.data, outcome.meta, {**outcome.headers, "Location": location}
    )


def _revoked(call: Call, client_id: str, credential_id: str | None) -> Response:
    revokes_tokens = flag(call.parameters, "revoke_tokens")
    counts = credentials.revoke_credentials(
        call.actor,
        client_id,
        credential_id=credential_id,
        revoke_tokens=revokes_tokens,
        expected_version=expected_version(),
    )
    return envelope(
        {
            "client_id": client_id,
            "credential_id": credential_id,
            "revoked": {"credentials": counts.credentials, "tokens": counts.tokens},
        }
    )
