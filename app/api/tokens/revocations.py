"""Revocation: one token with ``POST /api/v1/revoke``, and bulk revocations with their records."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from flask import Response, request

from app.api.endpoints import Body, Endpoint, Endpoints, add_endpoint, api_v1_only, show_page
from app.api.representations import (
    ClientId,
    CreatedAt,
    CreatedBy,
    CredentialId,
    Representation,
    Slug,
    Source,
    UserId,
    optional,
    true,
)
from app.operations.clients.client_authentication import ANY_SECRET, Presented, authenticate_client
from app.operations.directory.snapshots import ClientSnapshot
from app.operations.grants import grants
from app.operations.store.idempotency import IdempotentResult
from app.operations.tokens import revocation
from app.operations.tokens.bulk_revocation import bulk_revoke
from app.operations.tokens.revocation import Receipt, revoke_by_request
from app.operations.tokens.revocation_subjects import MAX_COUNT
from app.rules.clients.client_types import NONE
from app.rules.errors import InvalidClient, Unauthenticated
from app.rules.shapes import PublicId, SchemaOnly, described
from app.rules.tokens.revocation import MAX_REASON_LENGTH, ORGANIZATION, SELECTORS, NewRevocation, Revoke
from app.web.bearer import ApiContext, authenticate_caller, read_basic
from app.web.json_api import created, envelope, query_parameters, read_object
from app.web.request_log import request_id

endpoints = Endpoints("Revocations", "tokens")
REVOKED = "Token revoked"
_FIELD_OF = {kind: name for name, kind in SELECTORS.items()}
_BoundedCount = Annotated[int, SchemaOnly(minimum=0, maximum=MAX_COUNT)]


class Selection(Representation):
    """The selection of a bulk revocation."""

    grant_id: Annotated[str, PublicId("grt", "grant")] = optional()
    client_id: ClientId = optional()
    credential_id: CredentialId = optional()
    user_id: UserId = optional()
    session_id: Annotated[str, PublicId("ses", "session")] = optional()
    all: Annotated[true, described("Everything in the organization.")] = optional()


def _selection(receipt: Receipt) -> dict[str, str | bool]:
    return {_FIELD_OF[receipt.kind]: receipt.kind == ORGANIZATION or receipt.subject}


class RevocationCounts(Representation):
    """Numbers of active items; each stops at a maximum, which means "or more"."""

    access_tokens: Annotated[_BoundedCount, described("Access tokens that were active.")]
    refresh_tokens: Annotated[_BoundedCount, described("Refresh tokens that were active.")]
    grants: Annotated[_BoundedCount, described("Grants that were active.")]
    sessions: Annotated[_BoundedCount, described("Sessions that were active. 0 if they are not included.")]
    codes: Annotated[_BoundedCount, described("Authorization and device codes that were active.")]


class Revocation(Representation):
    """A bulk revocation."""

    id: Annotated[
        Annotated[str, PublicId("rev", "revocation")] | None,
        Source("public_id"),
        described("Null for a dry run."),
    ]
    organization_id: Annotated[Slug, Source("organization_slug")]
    selection: Annotated[Selection, SchemaOnly(minProperties=1, maxProperties=1), Source(_selection)]
    issued_before: Annotated[
        datetime,
        described("Everything issued before this time is revoked, with everything that depends on it."),
    ]
    include_sessions: Annotated[bool, Source("sessions"), described("Whether sessions were ended, too.")]
    reason: Annotated[
        Annotated[str, SchemaOnly(maxLength=MAX_REASON_LENGTH)] | None,
        described("The reason that was sent, for the audit log. Null if there was none."),
    ]
    counts: RevocationCounts
    created_at: CreatedAt
    created_by: CreatedBy
    created_by_id: Annotated[str | None, described("`usr_…` or `cli_…`.")]


@endpoints.page("/organizations/<slug>/revocations", returns=Revocation)
def list_revocations(context: ApiContext, slug: str) -> object:
    """List bulk revocations.

    The newest first.
    """
    return show_page(context, f"revocations {slug}", revocation.list_receipts, slug)


@endpoints.get("/organizations/<slug>/revocations/<revocation_id>", returns=Revocation)
def get_revocation(context: ApiContext, slug: str, revocation_id: str) -> object:
    """Get a bulk revocation."""
    return revocation.get_receipt(context.actor, slug, revocation_id)


@endpoints.post(
    "/organizations/<slug>/revocations",
    scope="tokens:revoke",
    body=NewRevocation,
    returns=Revocation,
    etag=False,
    warnings="Consequences for the caller, such as that the access token of this request is revoked.",
)
def revoke_tokens(context: ApiContext, body: Body, slug: str) -> object:
    """Revoke tokens in bulk.

    Every selected token, code and refresh token that was issued before the cutoff is rejected everywhere within one
    second. Consents remain, so clients may request tokens again. A user needs a recent sign-in for `all`. A dry run
    returns 200 with the counts.
    """
    done = bulk_revoke(context.actor, slug, body)
    meta = {"warnings": list(done.warnings)}
    data = Revocation.to_json(done.receipt)
    if done.receipt.public_id is None:
        return IdempotentResult(data, meta=meta)
    return created(data, done.receipt.public_id, meta=meta)


def revoke_token() -> Response:
    """Revoke a token.

    After 200, this organization never accepts the token again, even if it was unknown. Revoking a refresh token also
    revokes its family. Instead of a token, a client may authenticate with HTTP Basic to revoke its own tokens, with
    its client_id and secret, even if it is registered for client_secret_post. A public client sends an empty secret.
    """
    query_parameters(())
    header = request.headers.get("Authorization", "")
    if header.lower().startswith("basic "):
        # A client authenticates with its own secret and revokes its own tokens (RFC 7009 section 2.1).
        client = _authenticate(_presented(header))
        actor = grants.client_actor(client, request.remote_addr, request_id())
        revoke_by_request(actor, read_object(), client=client)
    else:
        revoke_by_request(authenticate_caller()[0], read_object(), client=None)
    return envelope(REVOKED)


add_endpoint(
    Endpoint(
        method="POST",
        path="/revoke",
        tag="Tokens",
        view=revoke_token,
        scope="tokens:revoke",
        body=Revoke,
        returns={"type": "string", "const": REVOKED},
        is_idempotent=False,
        names_organization=False,
        security=[{"bearer": ["tokens:revoke"]}, {"client": []}],
        only_v1=True,
    ),
    api_v1_only,
    revoke_token,
)


def _authenticate(presented: Presented) -> ClientSnapshot:
    try:
        return authenticate_client(presented, ip_address=request.remote_addr).client
    except InvalidClient as invalid:
        raise _unauthenticated() from invalid


def _presented(header: str) -> Presented:
    pair = read_basic(header)
    if pair is None:
        raise _unauthenticated()
    client_id, secret = pair
    # A public client has no secret: it only names itself (RV-7).
    return Presented(ANY_SECRET, client_id, secret) if secret else Presented(NONE, client_id)


def _unauthenticated() -> Unauthenticated:
    return Unauthenticated("The client is unknown, or its secret is incorrect.", code="invalid_client")
