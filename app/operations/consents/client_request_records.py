"""Requests for clients as those who decide see them: who asks, for what, and whom they would let in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from app.models.client import Client
from app.models.client_request import ClientRequest
from app.models.user import User
from app.rules.authorization.redirects import host_of
from app.rules.errors import NotFound
from app.rules.identifiers import client_id_of, parse_client_id, parse_public_id, public_id

PREFIX = "crq"
COLUMNS: tuple[Any, ...] = (
    *ClientRequest.__table__.columns,
    Client.name.label("client_name"),
    Client.trust,
    Client.source,
    Client.document,
    Client.version.label("client_version"),
    User.email.label("user_email"),
)


@dataclass(frozen=True, slots=True)
class ClientRequestRecord:
    """One request as those who decide see it.

    ``redirect_hosts`` are where people and codes go from here, the scheme for an app's own address: whoever approves
    a name approves these. ``home_page`` is what the client says of itself.
    """

    id: UUID
    client_id: str
    client_name: str
    trust: str
    source: str
    home_page: str | None
    redirect_hosts: tuple[str, ...]
    client_version: int
    user_id: str
    user_email: str
    status: str
    scopes: tuple[str, ...]
    reason: str
    created_at: datetime
    decided_at: datetime | None
    decided_by: str | None
    message: str | None

    @property
    def public_id(self) -> str:
        """``crq_…``."""
        return public_id(PREFIX, self.id)

    @property
    def client_row_id(self) -> UUID:
        """The row's id of the client."""
        parsed = parse_client_id(self.client_id)
        if parsed is None:
            raise NotFound("There is no such client.")
        return parsed[1]

    @property
    def member_id(self) -> UUID:
        """The row's id of the member."""
        parsed = parse_public_id("usr", self.user_id)
        if parsed is None:
            raise NotFound("There is no such user.")
        return parsed


def record_of(row: Any) -> ClientRequestRecord:
    """A row of ``COLUMNS`` as the record that faces see."""
    return ClientRequestRecord(
        id=row.id,
        client_id=client_id_of(row.organization_id, row.client_id),
        client_name=row.client_name,
        trust=row.trust,
        source=row.source,
        home_page=row.document.get("client_uri"),
        redirect_hosts=tuple(dict.fromkeys(host_of(uri) for uri in row.document.get("redirect_uris") or ())),
        client_version=row.client_version,
        user_id=public_id("usr", row.user_id),
        user_email=row.user_email,
        status=row.status,
        scopes=tuple(row.scope.split()),
        reason=row.reason,
        created_at=row.created_at,
        decided_at=row.decided_at,
        decided_by=row.decided_by,
        message=row.message,
    )
