"""Runs of the portal's playground: a user tries a client that they may change, with the real endpoints.

A run is the only thing that makes the playground's redirect URI valid: for one request of one browser, with this run's
state and code challenge, while the user who began it is signed in and may still change the client. The code can be
redeemed only by the playground, which sends the requests for the client without its secret. Codes, verifier and tokens
are sealed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import delete, select, update

from app.extensions import db
from app.models.base import has_key
from app.models.client import Client
from app.models.grant import PlaygroundRun
from app.operations.clients.client_permissions import is_trusted, require_client_within_permissions
from app.operations.clients.client_records import (
    ClientRecord,
    get_client_row,
    to_client_metadata,
    to_client_record,
)
from app.operations.directory import lookups
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.snapshots import AuthenticatedClient, ClientSnapshot, OrganizationSnapshot
from app.operations.sign_in.reauthentication import require_fresh_user_sign_in
from app.operations.store import audit, clock, keyring
from app.operations.store.transactions import count_changed, current_unit_of_work, read, transaction
from app.rules.actor import Actor
from app.rules.authorization.authorization_request import METHOD, challenge_of
from app.rules.clients.client_metadata import ClientMetadata
from app.rules.clients.client_types import AUTHORIZATION_CODE, DEVICE_CODE, PRIVATE_KEY_JWT
from app.rules.directory.permissions import ALL_PERMISSIONS, missing_permissions
from app.rules.errors import DomainError, Forbidden, InvalidInput, NotFound
from app.rules.identifiers import HasPublicId, format_client_id, new_id, parse_public_id, public_id

PREFIX = "plr"
LIFETIME = timedelta(hours=1)
MAX_RUNS_PER_USER = 10
MAX_EXCHANGES = 30
MAX_TOKENS = 40
MAX_BODY_LENGTH = 40_000
# Flows whose tokens are those of the signed-in user.
FLOWS_OF_USERS = (AUTHORIZATION_CODE, DEVICE_CODE)
_PERMISSIONS = ("clients:write", "credentials:write")
_CHOICES = ("grant_type", "scopes", "prompt", "resource")


@dataclass(frozen=True, slots=True)
class Run(HasPublicId):
    """A run. ``document`` has its choices, secrets and ``exchanges``, each a request with the response."""

    id_prefix = PREFIX
    id: UUID
    client: ClientRecord
    organization: OrganizationSnapshot
    document: Mapping[str, Any] = field(repr=False)
    expires_at: datetime
    redeemed_at: datetime | None

    @property
    def redirect_uri(self) -> str:
        """The URI to which its code is sent."""
        return redirect_uri_of(self.organization)

    @property
    def authorization_parameters(self) -> dict[str, str]:
        """The parameters of its authorization request, in the order in which they are explained."""
        document = self.document
        parameters = {
            "response_type": "code",
            "client_id": self.client.metadata_document_uri or self.client.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": " ".join(document["scopes"]),
            "state": document["state"],
            "nonce": document["nonce"] if "openid" in document["scopes"] else "",
            "code_challenge": challenge_of(document["verifier"]),
            "code_challenge_method": METHOD,
            "prompt": document["prompt"],
            "resource": document["resource"],
        }
        return {name: value for name, value in parameters.items() if value}

    @property
    def tokens(self) -> list[str]:
        """Every token that it received, newest first, refresh tokens before access tokens."""
        found = []
        for exchange in reversed(self.document["exchanges"]):
            issued = issued_tokens(exchange)
            found += [issued[name] for name in ("refresh_token", "access_token") if name in issued]
        return found


def issued_tokens(exchange: Mapping[str, Any]) -> dict[str, str]:
    """Return the tokens in a successful response of the token endpoint by their names, else nothing."""
    if exchange["endpoint"] != "token" or exchange["status"] != 200:
        return {}
    body = json.loads(exchange["body"])
    return {
        name: body[name]
        for name in ("access_token", "refresh_token", "id_token")
        if isinstance(body.get(name), str)
    }


def redirect_uri_of(organization: OrganizationSnapshot) -> str:
    """Return the playground's redirect URI in the organization, which no client registers."""
    return f"{organization.base_url}/portal/{organization.slug}/playground/callback"


def may_try(actor: Actor, client: ClientRecord | Client) -> bool:
    """Return whether the actor may try the client.

    Requires a signed-in user with permission to change the client and its secrets, and every management permission
    that the client itself has. Acting as a trusted client with keys also requires the permission to replace the keys.
    """
    metadata = client if isinstance(client, ClientRecord) else to_client_metadata(client)
    managed = [scope for scope in metadata.scopes if scope in ALL_PERMISSIONS]
    return (
        actor.user_id is not None
        and actor.session_id is not None
        and all(actor.has_permission(name, owner_id=client.owner_id) for name in _PERMISSIONS)
        and not missing_permissions(actor.permissions, managed)
        and (not _has_keys_in_trust(metadata) or actor.has_permission("clients:trust"))
    )


def _has_keys_in_trust(client: ClientMetadata) -> bool:
    """Return whether the client authenticates with keys that only those with ``clients:trust`` can replace."""
    return client.token_endpoint_auth_method == PRIVATE_KEY_JWT and is_trusted(client)


@transaction
def start_run(actor: Actor, client_id: str, choices: Mapping[str, Any], *, browser_id: str) -> Run:
    """Begin a run in this browser. ``choices``: ``grant_type``, ``scopes``, ``prompt`` and ``resource``.

    The user's oldest runs are deleted beyond ten. Raises NotFound, Forbidden, InvalidInput for a grant type that the
    client does not have or that needs the actor's own account, and FreshSignInRequired if the client has a secret.
    Audit: ``playground.started``.
    """
    client = _require_may_try(actor, client_id)
    _require_fresh_sign_in(actor, client)
    grant_type = choices["grant_type"]
    if grant_type not in client.document["grant_types"]:
        raise InvalidInput("The client doesn't have this grant type. Choose another one.", field="grant_type")
    if grant_type in FLOWS_OF_USERS and not _has_own_account(actor):
        raise InvalidInput(
            "You are not a member of this organization, so you can't sign in to its clients. Choose client"
            " credentials.",
            field="grant_type",
        )
    unit_of_work, now = current_unit_of_work(), clock.now()
    document = {name: choices[name] for name in _CHOICES} | {
        "state": secrets.token_urlsafe(32),
        "nonce": secrets.token_urlsafe(16),
        "verifier": secrets.token_urlsafe(48),
        "code": None,
        "exchanges": [],
    }
    row = PlaygroundRun(
        organization_id=actor.organization_id,
        id=unit_of_work.stable_value("playground run", new_id),
        state_digest=_digest(document["state"]),
        browser_digest=_digest(browser_id),
        user_id=actor.user_id,
        client_id=client.id,
        created_at=now,
        expires_at=now + LIFETIME,
    )
    row.sealed = _seal(row, document)
    db.session.add(row)
    db.session.flush()
    _delete_oldest(actor)
    _record(actor, "playground.started", row, {"grant_type": grant_type, "scopes": document["scopes"]})
    return _run(row, client)


@read
def get_run(actor: Actor, public: str, *, browser_id: str) -> Run:
    """Return a run of this user and browser. Raises NotFound if it is another's or expired, Forbidden."""
    row_id = parse_public_id(PREFIX, public)
    row = None if row_id is None else db.session.get(PlaygroundRun, (actor.organization_id, row_id))
    return _owned(actor, row, browser_id)


@read
def find_run_of_callback(actor: Actor, state: str, *, browser_id: str) -> Run | None:
    """Return the run that waits for a code with this state, if this user began it in this browser."""
    row = _find_by_state(actor.organization_id, state)
    if row is None or row.redeemed_at is not None:
        return None
    try:
        run = _owned(actor, row, browser_id)
    except DomainError:
        return None
    return run if run.document["grant_type"] == AUTHORIZATION_CODE else None


@read
def is_started_here(
    actor: Actor, client: ClientSnapshot, sent: Mapping[str, str], *, browser_id: str
) -> bool:
    """Return whether an authorization request is that of a run which this user began in this browser.

    Only then is the playground's redirect URI valid. ``actor`` is the user who is signed in at the organization.
    """
    if sent.get("redirect_uri") != redirect_uri_of(client.organization):
        return False
    run = find_run_of_callback(actor, sent.get("state", ""), browser_id=browser_id)
    if run is None or run.client.id != client.id:
        return False
    # Other parameters may differ: they change only what this user allows, and the consent page shows them.
    return (
        sent.get("code_challenge") == challenge_of(run.document["verifier"])
        and sent.get("code_challenge_method") == METHOD
    )


@transaction
def act_as_client(actor: Actor, run: Run, request: Mapping[str, str]) -> AuthenticatedClient:
    """Return the run's client as if it had authenticated, for one request that the playground sends.

    ``request`` is what the audit log says about it. Requires what viewing or adding a secret does, because the
    request has the same effect. Raises NotFound, Forbidden, FreshSignInRequired, and InvalidInput for a run with forty
    tokens. Audit: ``playground.request_sent``.
    """
    row = _require_may_try(actor, run.client.client_id)
    _require_fresh_sign_in(actor, row)
    if len(run.tokens) >= MAX_TOKENS and request["endpoint"] == "token":
        raise InvalidInput("This run of the playground has received too many tokens. Start over.")
    client = lookups.find_client_by_id(actor.organization_id, row.id, fresh=True)
    if client is None:
        raise NotFound("There is no such client.")
    _record(actor, "playground.request_sent", run, request)
    return AuthenticatedClient(client, None, playground_uri=run.redirect_uri)


@transaction
def record_exchange(actor: Actor, run: Run, exchange: Mapping[str, Any], *, code: str | None = None) -> None:
    """Add a request with its response to the run. Its state is invalid once ``code`` was redeemed."""
    is_redeemed = code is not None and exchange["status"] == 200

    def add(document: dict[str, Any]) -> None:
        document["code"] = code or document["code"]
        body = exchange["body"]
        kept = {**exchange, "body": body[:MAX_BODY_LENGTH], "body_length": len(body)}
        every = [*document["exchanges"], kept]
        # Those with tokens stay, so that all of them can be revoked.
        document["exchanges"] = [one for one in every[:-MAX_EXCHANGES] if issued_tokens(one)] + every[
            -MAX_EXCHANGES:
        ]

    _update(run, add, redeemed_at=clock.now() if is_redeemed and run.redeemed_at is None else run.redeemed_at)


def _update(run: Run, change: Callable[[dict[str, Any]], None], **values: Any) -> None:
    organization_id = run.organization.id
    row = db.session.scalar(
        select(PlaygroundRun).where(has_key(PlaygroundRun, organization_id, run.id)).with_for_update(),
        execution_options={"populate_existing": True},
    )
    if row is None:
        raise NotFound("This run of the playground has expired. Start over.")
    document = _unseal(row)
    change(document)
    count_changed(
        update(PlaygroundRun)
        .where(has_key(PlaygroundRun, organization_id, run.id))
        .values(sealed=_seal(row, document), **values)
    )


def _require_may_try(actor: Actor, client_id: str) -> Client:
    client = get_client_row(actor, client_id, _PERMISSIONS[0])
    actor.require(_PERMISSIONS[1], owner_id=client.owner_id)
    require_client_within_permissions(actor, client)
    if _has_keys_in_trust(to_client_metadata(client)):
        actor.require("clients:trust")
    if not may_try(actor, client):
        raise Forbidden("Only a user who signed in here can try a client.")
    return client


def _require_fresh_sign_in(actor: Actor, client: Client) -> None:
    if client.document["token_endpoint_auth_method"] != "none":
        require_fresh_user_sign_in(actor)


def _has_own_account(actor: Actor) -> bool:
    return actor.user_id is not None and actor.home_organization_id == actor.organization_id


def _owned(actor: Actor, row: PlaygroundRun | None, browser_id: str) -> Run:
    if (
        row is None
        or actor.user_id != row.user_id
        or not hmac.compare_digest(row.browser_digest, _digest(browser_id))
        or row.expires_at <= clock.now()
        or get_organization_by_id(actor.organization_id).is_before_restore(row.created_at)
    ):
        raise NotFound(
            "This run of the playground has expired or was started in another browser. Start over."
        )
    client_id = format_client_id(actor.organization_id, row.client_id)
    return _run(row, _require_may_try(actor, client_id))


def _find_by_state(organization_id: str, state: str) -> PlaygroundRun | None:
    return db.session.scalar(
        select(PlaygroundRun).where(
            PlaygroundRun.organization_id == organization_id, PlaygroundRun.state_digest == _digest(state)
        )
    )


def _delete_oldest(actor: Actor) -> None:
    own = (PlaygroundRun.organization_id == actor.organization_id, PlaygroundRun.user_id == actor.user_id)
    surplus = db.session.scalars(
        select(PlaygroundRun.id)
        .where(*own)
        .order_by(PlaygroundRun.id.desc())
        .offset(MAX_RUNS_PER_USER)
        .limit(MAX_RUNS_PER_USER)
    ).all()
    if surplus:
        count_changed(delete(PlaygroundRun).where(*own, PlaygroundRun.id.in_(surplus)))


def _record(actor: Actor, action: str, run: PlaygroundRun | Run, after: Mapping[str, Any]) -> None:
    client_id = run.client_id if isinstance(run, PlaygroundRun) else run.client.id
    audit.record(
        actor,
        action,
        "client",
        format_client_id(actor.organization_id, client_id),
        after={"run": public_id(PREFIX, run.id), **after},
    )


def _run(row: PlaygroundRun, client: Client) -> Run:
    return Run(
        id=row.id,
        client=to_client_record(client),
        organization=get_organization_by_id(row.organization_id, fresh=False),
        document=_unseal(row),
        expires_at=row.expires_at,
        redeemed_at=row.redeemed_at,
    )


def _seal(row: PlaygroundRun, document: Mapping[str, Any]) -> bytes:
    return keyring.seal(row.organization_id, json.dumps(document).encode(), _sealing_context(row))


def _unseal(row: PlaygroundRun) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(
        keyring.unseal(row.organization_id, row.sealed, _sealing_context(row))
    )
    return document


def _sealing_context(row: PlaygroundRun) -> str:
    return f"playground run {row.id} {row.user_id}"


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
