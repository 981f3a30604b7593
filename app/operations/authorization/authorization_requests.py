"""Authorization requests: stored after validation, so that sign-in and consent pages carry only an id (IN-1)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import bindparam, insert, select, update

from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery
from app.models.base import has_key
from app.models.grant import AuthorizationRequest
from app.operations.authorization import codes, consents, pushed_requests
from app.operations.clients import scopes as scope_registry
from app.operations.clients.client_authentication import find_client_by_client_id
from app.operations.clients.scopes import ScopeRecord
from app.operations.directory import lookups
from app.operations.directory.snapshots import ClientSnapshot
from app.operations.sign_in.sessions import SessionRecord
from app.operations.store import audit, clock
from app.operations.store.rows import count_rows
from app.operations.store.transactions import (
    count_changed,
    current_unit_of_work,
    transaction,
    transaction_part,
)
from app.operations.tokens import access_tokens
from app.rules.actor import Actor
from app.rules.authorization.authorization_request import (
    AuthorizationParameters,
    known_parameters,
    restrict_to_scopes,
)
from app.rules.authorization.consents import page_digest
from app.rules.authorization.interaction import select_context
from app.rules.clients.client_coherence import requires_par
from app.rules.errors import AuthorizationError, HasDefaultText, NotFound, TooManyRequests
from app.rules.identifiers import (
    AUTHORIZATION_REQUEST,
    digest,
    format_client_id,
    is_token_of,
    new_id,
    new_token,
)
from app.rules.languages.translation import lazy_gettext
from app.rules.scopes import restrict_scopes
from app.rules.sign_in.passwords import network_of

MAX_OPEN_PER_BROWSER = 50
# Open requests for one client from one network, because a browser without cookies counts as a new one each time. An
# office whose users all sign in at nine must stay below it.
MAX_OPEN_PER_NETWORK = 3_000

_PAUSE_SECONDS = 60
REQUEST_LIFETIME = timedelta(minutes=30)


def enforce_open_limit(actor: Actor, client: ClientSnapshot, network: str) -> None:
    """Raise TooManyRequests if the client has too many open requests from the network."""
    # Counts up to the bound, within the index.
    started = select(AuthorizationRequest.id).where(
        AuthorizationRequest.organization_id == actor.organization_id,
        AuthorizationRequest.client_id == client.id,
        AuthorizationRequest.network == network,
        AuthorizationRequest.completed_at.is_(None),
        AuthorizationRequest.expires_at > clock.now(),
    )
    if count_rows(started, MAX_OPEN_PER_NETWORK) == MAX_OPEN_PER_NETWORK:
        raise TooManyRequests(
            "Too many sign-ins to this app were started from your network and not completed. Wait a few"
            " minutes, then try again.",
            retry_after=_PAUSE_SECONDS,
        ).with_cause("authorize_too_many", expected=f"at most {MAX_OPEN_PER_NETWORK} in half an hour")


def expire_oldest(actor: Actor, browser: bytes) -> None:
    """Close all but the browser's newest open requests; ``browser`` is the digest of its id."""
    own = (
        AuthorizationRequest.organization_id == actor.organization_id,
        AuthorizationRequest.browser_digest == browser,
        AuthorizationRequest.completed_at.is_(None),
    )
    # Ids are ordered by time.
    surplus = db.session.scalars(
        select(AuthorizationRequest.id)
        .where(*own)
        .order_by(AuthorizationRequest.id.desc())
        .offset(MAX_OPEN_PER_BROWSER)
        .limit(MAX_OPEN_PER_BROWSER)
    ).all()
    if surplus:
        count_changed(
            update(AuthorizationRequest)
            .where(*own, AuthorizationRequest.id.in_(surplus))
            .values(completed_at=clock.now())
        )


class RequestParameters(Struct, frozen=True):
    """The effective parameters of a request. ``refusal`` is the error for the client, if any.

    The error may be sent by redirect only after client and redirect URI were validated. ``sent`` are then the plain
    parameters.
    """

    sent: Mapping[str, str]
    pushed_id: UUID | None = None
    refusal: AuthorizationError | None = None


def read_request_parameters(client: ClientSnapshot, sent: Mapping[str, str]) -> RequestParameters:
    """Return the parameters of a request to the authorization endpoint.

    With a ``request_uri`` or a request object, all plain parameters except the ``client_id`` are ignored. Raises
    UnredirectableError for an expired or used ``request_uri``.
    """
    if "request_uri" in sent:
        if "request" in sent:
            return _refused(sent, "invalid_request", lazy_gettext("Send request or request_uri, not both."))
        if not sent["request_uri"].startswith(pushed_requests.PREFIX):
            # This service fetches no request_uri, because anybody can choose the URL (OI-4).
            message = lazy_gettext("The request_uri must come from a pushed request.")
            return _refused(sent, "request_uri_not_supported", message)
        pushed = pushed_requests.find_pushed_request(client, sent["request_uri"])
        return RequestParameters(pushed.sent, pushed.id)
    if requires_par(client.document, client.organization.settings):
        message = lazy_gettext("The request must be pushed first (RFC 9126).")
        return RequestParameters(
            sent, refusal=AuthorizationError("invalid_request", message).with_cause("par_required")
        )
    return _read_parameters(client, sent)


def read_pushed_parameters(client: ClientSnapshot, sent: Mapping[str, str]) -> RequestParameters:
    """Return the parameters of a pushed request."""
    if "request_uri" in sent:
        message = lazy_gettext("A pushed request must not contain a request_uri (RFC 9126 section 2.1).")
        return _refused(sent, "invalid_request", message)
    return _read_parameters(client, sent)


def _read_parameters(client: ClientSnapshot, sent: Mapping[str, str]) -> RequestParameters:
    if "request" in sent:
        try:
            return RequestParameters(pushed_requests.read_request_object_parameters(client, sent["request"]))
        except AuthorizationError as refusal:
            return RequestParameters(sent, refusal=refusal)
    if client.document.get("require_signed_request_object"):
        message = lazy_gettext("The request must be a signed request object (RFC 9101).")
        return _refused(sent, "invalid_request", message)
    return RequestParameters(sent)


def _refused(sent: Mapping[str, str], code: str, message: str) -> RequestParameters:
    refusal = AuthorizationError(code, message).with_cause("request_object_refused")
    return RequestParameters(sent, refusal=refusal)


class AuthorizationRequestRecord(Struct, frozen=True):
    """An open request. ``sent`` are the parameters that the client sent."""

    id: UUID
    organization_id: str
    client: ClientSnapshot
    sent: Mapping[str, str]
    created_at: datetime
    shown_digest: bytes | None
    selected_session_id: UUID | None
    pushed_id: UUID | None = None


class RequestEnded(HasDefaultText, NotFound):
    """The request was completed, is older than half an hour, or belongs to another browser (IN-2)."""

    status = 400
    code = "request_ended"
    default_description = lazy_gettext(
        "This sign-in request was already completed or has expired. Go back to the app and start again."
    )


def find_requesting_client(
    client_id: str, *, organization_id: str | None, ip_address: str | None = None, fresh: bool
) -> ClientSnapshot | None:
    """Return the active client, if it belongs to the organization of the path.

    A blocked client is returned too, so that the page can explain why the user can't continue. ``fresh`` reads it from
    the database. A cached one may be given a code, which is worth nothing until the code is redeemed (RU-5), and must
    not be refused anything. Raises what ``find_client_by_client_id`` raises for a client with a metadata document.
    """
    client = find_client_by_client_id(
        client_id, organization_id=organization_id, ip_address=ip_address, fresh=fresh
    )
    if not fresh and client is not None and not client.is_active:
        client = lookups.reload_client(client)
    return client if client is not None and (client.is_active or client.is_blocked) else None


@transaction
def create_request(
    actor: Actor,
    client: ClientSnapshot,
    sent: Mapping[str, str],
    browser_id: str,
    *,
    pushed_id: UUID | None = None,
) -> str:
    """Store a validated request for this browser; return the token that pages carry.

    ``pushed_id`` is the pushed request that it came from, which is used up together with it. The browser's oldest
    requests are closed if it has too many. Raises TooManyRequests if the client has too many open requests from the
    actor's network.
    """
    network = network_of(actor.ip_address)
    enforce_open_limit(actor, client, network)
    token = current_unit_of_work().stable_value(
        "request", lambda: new_token(AUTHORIZATION_REQUEST, actor.organization_id)
    )
    now = clock.now()
    db.session.execute(
        insert(AuthorizationRequest).values(
            organization_id=actor.organization_id,
            id=new_id(),
            digest=digest(token),
            browser_digest=_browser_digest(browser_id),
            client_id=client.id,
            network=network,
            parameters=known_parameters(sent),
            pushed_request_id=pushed_id,
            created_at=now,
            expires_at=now + REQUEST_LIFETIME,
        )
    )
    expire_oldest(actor, _browser_digest(browser_id))
    return token


_FIND = CompiledQuery(
    select(AuthorizationRequest.__table__).where(
        AuthorizationRequest.organization_id == bindparam("organization_id"),
        AuthorizationRequest.digest == bindparam("digest"),
    )
)
_RECORD_SHOWN = CompiledQuery(
    update(AuthorizationRequest)
    .where(has_key(AuthorizationRequest, bindparam("of_organization"), bindparam("of_request")))
    .values(shown_digest=bindparam("shown_digest"))
)


def find_request(
    organization_id: str, token: str, browser_id: str, *, fresh: bool = True
) -> AuthorizationRequestRecord | None:
    """Return the open request with this token if it belongs to this browser, else None.

    ``fresh`` reads its client from the database, as every step needs that answers the client.
    """
    if not is_token_of(token, AUTHORIZATION_REQUEST, organization_id):
        return None
    row = _FIND.first(organization_id=organization_id, digest=digest(token))
    if row is None or row.completed_at is not None or row.expires_at <= clock.now():
        return None
    if row.browser_digest != _browser_digest(browser_id):
        return None
    client = lookups.find_client(format_client_id(organization_id, row.client_id), fresh=fresh)
    if client is None or client.organization.is_before_restore(row.created_at):
        return None
    return AuthorizationRequestRecord(
        row.id,
        organization_id,
        client,
        row.parameters,
        row.created_at,
        row.shown_digest,
        row.selected_session_id,
        row.pushed_request_id,
    )


@transaction
def record_displayed_consent(actor: Actor, request: AuthorizationRequestRecord, shown: bytes) -> None:
    """Record what the consent page displays, so that the decision applies to exactly that (IN-3)."""
    _RECORD_SHOWN.write(of_organization=actor.organization_id, of_request=request.id, shown_digest=shown)


@transaction
def record_selected_session(
    actor: Actor, request: AuthorizationRequestRecord, session: SessionRecord
) -> None:
    """Record that the user selected this session, which satisfies ``prompt=select_account``."""
    count_changed(
        update(AuthorizationRequest)
        .where(has_key(AuthorizationRequest, actor.organization_id, request.id))
        .values(selected_session_id=session.id)
    )


def shown_digest(
    client: ClientSnapshot, session: SessionRecord, parameters: AuthorizationParameters
) -> bytes:
    """Return the digest of everything that the consent page displays."""
    requested = (*parameters.consent_scopes, *parameters.bare_resources)
    return page_digest(client.client_id, client.version, session.public_id, requested)


def describe_scopes(actor: Actor, names: tuple[str, ...]) -> list[ScopeRecord]:
    """Return the scopes with their titles and descriptions, in the given order."""
    known = scope_registry.find_scopes(actor.organization_id, names)
    return [known.get(name) or ScopeRecord(name, None, None, False) for name in names]


@transaction
def issue_code(
    actor: Actor,
    client: ClientSnapshot,
    parameters: AuthorizationParameters,
    session: SessionRecord,
    *,
    code: str,
    scopes: tuple[str, ...],
    request: AuthorizationRequestRecord | None,
    pushed_id: UUID | None = None,
    remember: bool,
    ends_at: datetime | None = None,
) -> None:
    """Store ``code`` for the client and complete the authorization request, if there is one, in the same transaction.

    The pushed request behind it is completed too, or ``pushed_id`` where no authorization request was stored.
    ``scopes`` are those allowed of ``parameters.consent_scopes``; ``remember`` records the user's consent for them.
    Nothing that the code issues is valid after ``ends_at``.
    Raises RequestEnded when the request was already decided. Audit: ``consent.given`` and ``code.issued``.
    """
    if request is not None:
        complete_request(actor, request)
    elif pushed_id is not None:
        _mark_pushed_used(actor, pushed_id)
    if remember:
        requested = parameters.consent_scopes
        ends_at = consents.store_consent(actor, client, session.user_id, scopes, ends_at, requested=requested)
    resources = access_tokens.restrict_to_allowed(client, parameters.resources, parameters.scopes, scopes)
    codes.add_code(
        actor,
        client,
        replace(parameters, claims=restrict_to_scopes(parameters.claims, scopes), resources=resources),
        code,
        scopes=restrict_scopes(parameters.scopes, scopes),
        user_id=session.user_id,
        session_id=session.id,
        auth_time=session.authenticated_at,
        amr=" ".join(session.amr),
        acr=select_context(session.amr, parameters.acr_values),
        ends_at=ends_at,
    )
    audit.record(actor, "code.issued", "client", client.client_id, after={"scopes": list(scopes)})


@transaction
def deny_request(actor: Actor, client: ClientSnapshot, request: AuthorizationRequestRecord) -> None:
    """Complete the request without a code. Raises RequestEnded. Audit: ``consent.denied``."""
    complete_request(actor, request)
    audit.record(actor, "consent.denied", "client", client.client_id)


@transaction_part
def complete_request(actor: Actor, request: AuthorizationRequestRecord) -> None:
    """Complete the request, with or without a code. Raises RequestEnded."""
    changed = count_changed(
        update(AuthorizationRequest)
        .where(
            has_key(AuthorizationRequest, actor.organization_id, request.id),
            AuthorizationRequest.completed_at.is_(None),
            AuthorizationRequest.expires_at > clock.now(),
        )
        .values(completed_at=clock.now())
    )
    if changed != 1:
        raise RequestEnded
    if request.pushed_id is not None:
        _mark_pushed_used(actor, request.pushed_id)


def _mark_pushed_used(actor: Actor, pushed_id: UUID) -> None:
    # Two tabs may have started from the same pushed request, which can be used only once (OI-4).
    if not pushed_requests.mark_used(actor, pushed_id):
        raise RequestEnded


def _browser_digest(browser_id: str) -> bytes:
    return hashlib.sha256(browser_id.encode()).digest()
