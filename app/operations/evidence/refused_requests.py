"""Refused requests are kept for the makers of the client: who it was and why is found out here, after the answer.

Nothing of it slows a refusal or tells its sender more: the face hands over what it knows, and another thread does
the rest. What waits when a process dies is lost; the request log still has its line.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any
from uuid import UUID

from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.credential import Credential
from app.models.failed_request import FailedRequest
from app.operations import clock, directory
from app.operations.directory import ClientView
from app.operations.transaction import current_unit, read, transaction
from app.rules.actor import Actor
from app.rules.errors import Cause, Unavailable
from app.rules.evidence.failure_causes import cause_of
from app.rules.evidence.shown_parameters import shortened_text
from app.rules.identifiers import new_id

MOST_EXPECTED = 50
_NONE = "none"
_log = logging.getLogger("gatehouse.failed_requests")


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """A refusal as the face knows it. ``client`` is (organization key, row id) of whom the request named.

    ``parameters`` are without secrets; ``secret_digest`` is that of the client secret that came, if one did.
    """

    client: tuple[str, UUID]
    at: datetime
    request_id: str
    endpoint: str
    method: str
    status: int
    error: str
    description: str
    cause: Cause | None
    parameters: Mapping[str, str]
    address: str | None
    path_organization: str | None
    auth_method: str | None = None
    secret_digest: bytes | None = None


def keep_refused_requests(actor: Actor, refused: Iterable[RefusedRequest]) -> int:
    """Those of known clients stand in the log of their organization, unless it wants none; returns how many.

    ``actor`` is the service. What cannot be written is forgotten, with a line in the log.
    """
    kept = 0
    ordered = sorted(refused, key=lambda one: one.client[0])
    for organization_id, group in groupby(ordered, key=lambda one: one.client[0]):
        try:
            found = [row for one in group if (row := _row_of(one)) is not None]
            if found:
                _write(Actor.system(organization_id, actor.label), found)
                kept += len(found)
        except (Unavailable, IntegrityError) as error:
            # The database is away, or the client went meanwhile: one organization's loss is not all others'.
            _log.warning("failed requests of %s were not kept: %s", organization_id, type(error).__name__)
    return kept


def _row_of(refused: RefusedRequest) -> dict[str, Any] | None:
    organization_id, row_id = refused.client
    client = directory.client_of_row(organization_id, row_id, fresh=False)
    if client is None or not client.organization.is_standing:
        return None
    if not client.organization.settings["audit"]["failed_requests"]:
        return None
    cause = _explained(refused, client)
    kept_for = timedelta(days=client.organization.settings["audit"]["log_retention_days"])
    return {
        "organization_id": organization_id,
        "client_id": row_id,
        "at": refused.at,
        "request_id": refused.request_id,
        "endpoint": refused.endpoint[:32],
        "method": refused.method[:8],
        "status": refused.status,
        "error": refused.error[:64],
        "description": shortened_text(refused.description, 500),
        "cause": cause.code[:48],
        "received": None if cause.received is None else shortened_text(cause.received, 2048),
        "expected": [shortened_text(value, 2048) for value in cause.expected[:MOST_EXPECTED]],
        "parameters": dict(refused.parameters),
        "address": refused.address,
        "expires_at": refused.at + kept_for,
    }


@transaction
def _write(actor: Actor, rows: list[dict[str, Any]]) -> None:
    # Ids of one millisecond are in no order: the list has the one in which the requests came.
    ids = current_unit().once("ids", lambda: sorted(new_id() for _ in rows))
    db.session.execute(
        insert(FailedRequest), [{**row, "id": row_id} for row, row_id in zip(rows, ids, strict=True)]
    )


def _explained(refused: RefusedRequest, client: ClientView) -> Cause:
    """The cause, with what can be found out only here."""
    organization = client.organization
    if refused.path_organization not in {None, organization.slug}:
        return Cause(
            "wrong_organization", f"…/organizations/{refused.path_organization}", (organization.issuer,)
        )
    if client.is_blocked:
        return Cause("client_blocked", "the client is blocked")
    if not client.is_active:
        what = "client" if organization.is_active else "organization"
        return Cause("client_disabled", f"the {what} is not active")
    if refused.cause is not None:
        return refused.cause
    if refused.error == "invalid_client" and refused.auth_method is not None:
        return _authentication(refused, client)
    return Cause(cause_of(refused.error))


def _authentication(refused: RefusedRequest, client: ClientView) -> Cause:
    registered = str(client.document["token_endpoint_auth_method"])
    if refused.auth_method == _NONE:
        return Cause("credentials_missing", "no credentials", (registered,))
    row = _secret(client, refused.secret_digest) if refused.secret_digest is not None else None
    if row is None:
        return Cause("secret_unknown", None, _live_secrets(client))
    secret = f"secret {row.name} (…{row.hint})"
    if row.revoked_at is not None:
        by = f" by {row.revoked_by}" if row.revoked_by else ""
        return Cause(
            "secret_revoked", f"{secret}, revoked {_moment(row.revoked_at)}{by}", _live_secrets(client)
        )
    if row.expires_at is not None and row.expires_at <= clock.now():
        return Cause("secret_expired", f"{secret}, ended {_moment(row.expires_at)}", _live_secrets(client))
    return Cause("auth_method_mismatch", refused.auth_method, (registered,))


@read
def _secret(client: ClientView, digest: bytes) -> Any:
    # Digests of revoked secrets are kept as long as the client, for exactly this question.
    return db.session.execute(
        select(
            Credential.name,
            Credential.hint,
            Credential.revoked_at,
            Credential.revoked_by,
            Credential.expires_at,
        ).where(
            Credential.organization_id == client.organization.id,
            Credential.client_id == client.id,
            Credential.digest == digest,
        )
    ).first()


@read
def _live_secrets(client: ClientView) -> tuple[str, ...]:
    rows = db.session.execute(
        select(Credential.name, Credential.hint).where(
            Credential.organization_id == client.organization.id,
            Credential.client_id == client.id,
            Credential.id.in_([secret.id for secret in client.secrets]),
        )
    )
    return tuple(f"secret {name} (…{hint})" for name, hint in rows)


def _moment(value: datetime) -> str:
    return f"{value:%Y-%m-%d %H:%M} UTC"
