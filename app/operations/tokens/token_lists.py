"""Lists of valid access tokens for administrators, without the token values, and their revocation."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import BindParameter, ColumnElement, Select, and_, bindparam, exists, or_, select
from sqlalchemy.orm import aliased

from app.models.client import ACTIVE, Client
from app.models.grant import Grant
from app.models.token import AccessToken
from app.models.user import ACTIVE as ACTIVE_USER
from app.models.user import User
from app.operations.grants.grants import grant_issued_after_cutoffs, token_issued_after_cutoffs
from app.operations.store import clock
from app.operations.store.rows import Page, PageQuery, PageRequest, make_record
from app.operations.store.transactions import transaction
from app.operations.tokens import revocation
from app.rules.actor import Actor
from app.rules.errors import NotFound
from app.rules.filters import OF_CLIENT, OF_USER, Filters, id_filter, read_filters
from app.rules.identifiers import HasPublicId, format_client_id, parse_client_id, parse_public_id, public_id

PREFIX = "tok"
FILTERS: Filters = {
    "client_id": OF_CLIENT,
    "user_id": OF_USER,
    "credential_id": id_filter("sec", "credential", "Issued with this client secret."),
}
_COLUMNS: tuple[Any, ...] = (
    *(AccessToken.id, AccessToken.organization_id, AccessToken.client_id, AccessToken.grant_id),
    *(AccessToken.credential_id, AccessToken.scope, AccessToken.audience, AccessToken.dpop_jkt),
    *(AccessToken.issued_at, AccessToken.expires_at, AccessToken.parent_id),
    Client.name.label("client_name"),
    Grant.user_id,
    User.email.label("user_email"),
)


class TokenRecord(HasPublicId, Struct, frozen=True):
    """A valid access token; ``revoked_at`` is set only in the result of its revocation.

    A token that a client got for itself (client_credentials) has neither user nor grant.
    """

    id_prefix = PREFIX  # Also the ``jti`` of a JWT.
    id: UUID
    client_id: str
    client_name: str
    user_id: str | None
    user_email: str | None
    grant_id: str | None
    credential_id: str | None
    scopes: tuple[str, ...]
    audience: tuple[str, ...]
    is_bound: bool
    exchanged_for: str | None
    issued_at: datetime
    expires_at: datetime
    revoked_at: datetime | None = None

    @property
    def kind(self) -> str:
        """The subject: ``user``, or the ``client`` itself."""
        return "client" if self.grant_id is None else "user"


def list_tokens(
    actor: Actor, page_request: PageRequest = PageRequest(), *, filters: Mapping[str, str] = {}
) -> Page[TokenRecord]:
    """Return a page of the valid access tokens, newest first; with ``tokens:read:own``, of the actor's own clients.

    ``filters`` are of FILTERS. Raises InvalidInput, Forbidden.
    """
    values = _visible_values(actor, "tokens:read") | read_filters(actor, FILTERS, filters)
    return _LIST.read((AccessToken.id,), page_request, **values).map(_record)


def get_token(actor: Actor, public: str, permission: str = "tokens:read") -> TokenRecord:
    """Return one valid access token that the actor may access with the permission. Raises NotFound, Forbidden."""
    values = _visible_values(actor, permission) | {"token_id": parse_public_id(PREFIX, public)}
    found = _LIST.read((AccessToken.id,), PageRequest(1), **values).items
    if not found:
        raise NotFound("There is no valid token with this ID.")
    return _record(found[0])


@transaction
def revoke_listed_token(actor: Actor, public: str, *, client_id: str | None = None) -> TokenRecord:
    """Revoke an access token and the tokens exchanged for it, but not its grant.

    Raises NotFound if it is no longer valid or, with ``client_id``, belongs to another client, and Forbidden.
    Audit: ``token.revoked``.
    """
    record = get_token(actor, public, "tokens:revoke")
    if client_id not in {None, record.client_id}:
        raise NotFound("There is no valid token with this ID.")
    found = parse_client_id(record.client_id)
    if found is None or revocation.revoke_access_token(actor, record.id, found[1]) is None:
        raise NotFound("There is no valid token with this ID.")
    return replace(record, revoked_at=clock.now())


def _visible_values(actor: Actor, permission: str) -> dict[str, Any]:
    """Return the values that select the valid tokens that the actor may see. Raises Forbidden."""
    actor.require_for_own(permission)
    values: dict[str, Any] = {"organization_id": actor.organization_id, "now": clock.now()}
    # A client owns nothing: without a user this is NULL, which matches no rows.
    return values if actor.has_permission(permission) else {**values, "owner": actor.user_id}


def _select(given: frozenset[str]) -> Select[Any]:
    """Select valid tokens by the same rules as validation in ``tokens``."""
    here, parent = AccessToken.organization_id, aliased(AccessToken)
    return (
        select(*_COLUMNS)
        .join(Client, (Client.organization_id == here) & (Client.id == AccessToken.client_id))
        .outerjoin(Grant, (Grant.organization_id == here) & (Grant.id == AccessToken.grant_id))
        .outerjoin(User, (User.organization_id == here) & (User.id == Grant.user_id))
        .where(
            here == bindparam("organization_id"),
            AccessToken.revoked_at.is_(None),
            AccessToken.expires_at > bindparam("now", type_=AccessToken.expires_at.type),
            Client.status == ACTIVE,
            token_issued_after_cutoffs(),
            or_(
                AccessToken.grant_id.is_(None),
                and_(Grant.revoked_at.is_(None), User.status == ACTIVE_USER, grant_issued_after_cutoffs()),
            ),
            or_(
                AccessToken.parent_id.is_(None),
                exists().where(
                    parent.organization_id == here,
                    parent.id == AccessToken.parent_id,
                    parent.revoked_at.is_(None),
                ),
            ),
            *(_CONDITIONS[name] for name in _CONDITIONS if name in given),
        )
    )


def _is_of_user() -> ColumnElement[bool]:
    # By a condition on the grant, SQLite would read all tokens of the organization, newest first.
    token, grant = aliased(AccessToken), aliased(Grant)
    here: BindParameter[str] = bindparam("organization_id")
    grants = select(grant.id).where(grant.organization_id == here, grant.user_id == bindparam("user_id"))
    return AccessToken.id.in_(
        select(token.id).where(token.organization_id == here, token.grant_id.in_(grants))
    )


_CONDITIONS = {
    "client_id": AccessToken.client_id == bindparam("client_id"),
    "user_id": _is_of_user(),
    "credential_id": AccessToken.credential_id == bindparam("credential_id"),
    "owner": Client.owner_id == bindparam("owner"),
    "token_id": AccessToken.id == bindparam("token_id"),
}
_LIST = PageQuery(_select)


def _record(row: Any) -> TokenRecord:
    def optional_public_id(prefix: str, value: UUID | None) -> str | None:
        return None if value is None else public_id(prefix, value)

    return make_record(
        TokenRecord,
        row,
        client_id=format_client_id(row.organization_id, row.client_id),
        user_id=optional_public_id("usr", row.user_id),
        grant_id=optional_public_id("grt", row.grant_id),
        credential_id=optional_public_id("sec", row.credential_id),
        scopes=tuple(row.scope.split()),
        audience=tuple(row.audience.split()),
        is_bound=row.dpop_jkt is not None,
        exchanged_for=optional_public_id(PREFIX, row.parent_id),
        revoked_at=None,
    )
