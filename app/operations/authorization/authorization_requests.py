"""Authorization requests under way: stored once checked, so that sign-in and consent carry only an id (IN-1)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import func, insert, select, update

from app.extensions import db
from app.models.grant import AuthorizationRequest
from app.operations.authorization import codes, consents, pushed_requests
from app.operations.authorization import pushed_requests as request_objects
from app.operations.clients import scopes as scope_registry
from app.operations.clients.client_authentication import find_wire_client
from app.operations.clients.scopes import ScopeRecord
from app.operations.directory import lookups
from app.operations.directory.lookups import ClientSnapshot
from app.operations.sign_in.sessions import SessionRecord
from app.operations.store import audit, clock
from app.operations.store.transactions import count_changed, current_unit_of_work, read, transaction
from app.rules.actor import Actor
from app.rules.authorization.authorization_request import AuthorizationParameters, understood
from app.rules.authorization.claims_parameter import within
from app.rules.authorization.consents import page_digest
from app.rules.authorization.interaction import context_of
from app.rules.clients.client_requirements import get_client_requirements
from app.rules.errors import NotFound, TooManyRequests
from app.rules.identifiers import format_client_id, new_id
from app.rules.oauth_errors import AuthorizationError
from app.rules.scopes import restrict_scopes
from app.rules.sign_in.lockout import network_of
from app.rules.token_values import AUTHORIZATION_REQUEST, digest, new_token, parse_token

MOST_OPEN = 50
# Of one client, from one place: a browser that keeps no cookie is a new one each time. An office signs in at nine.
MOST_OPEN_PER_NETWORK = 3_000

_PAUSE_SECONDS = 60


def require_room(actor: Actor, client: ClientSnapshot, network: str) -> None:
    """Raise TooManyRequests when as many requests of the client are open as may be from one network."""
    # Counted up to the bound alone, and within the index.
    some = (
        select(AuthorizationRequest.id)
        .where(
            AuthorizationRequest.organization_id == actor.organization_id,
            AuthorizationRequest.client_id == client.id,
            AuthorizationRequest.network == network,
            AuthorizationRequest.completed_at.is_(None),
            AuthorizationRequest.expires_at > clock.now(),
        )
        .limit(MOST_OPEN_PER_NETWORK)
        .subquery()
    )
    if db.session.scalar(select(func.count()).select_from(some)) == MOST_OPEN_PER_NETWORK:
        raise TooManyRequests(
            "Too many sign-ins to this app were begun from your network and not finished. Wait, then try again.",
            retry_after=_PAUSE_SECONDS,
        ).with_cause("authorize_too_many", expected=f"at most {MOST_OPEN_PER_NETWORK} in half an hour")


def end_oldest(actor: Actor, browser: bytes) -> None:
    """Of the browser's open requests the newest ``MOST_OPEN`` stay; ``browser`` is the digest of its id."""
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
        .offset(MOST_OPEN)
        .limit(MOST_OPEN)
    ).all()
    if surplus:
        count_changed(
            update(AuthorizationRequest)
            .where(*own, AuthorizationRequest.id.in_(surplus))
            .values(completed_at=clock.now())
        )


@dataclass(frozen=True, slots=True)
class AskedRequest:
    """``sent`` are the parameters that count. ``refusal``, where there is one, is what the client is to be told.

    It may be told by redirect only once client and redirect URI were found right; then ``sent`` are the parameters
    that came openly.
    """

    sent: Mapping[str, str]
    pushed_id: UUID | None = None
    refusal: AuthorizationError | None = None


def read_asked(client: ClientSnapshot, sent: Mapping[str, str]) -> AskedRequest:
    """The request that a browser brought to the authorization endpoint.

    Behind a ``request_uri`` and inside a request object, what came beside them counts for nothing but the
    ``client_id``. Raises UnredirectableError for a ``request_uri`` of ours that counts no longer.
    """
    demands = get_client_requirements(client.document, client.organization.settings)
    if "request_uri" in sent:
        if "request" in sent:
            return _refused(sent, "invalid_request", "Send request or request_uri, not both.")
        if not sent["request_uri"].startswith(pushed_requests.PREFIX):
            # Nothing is fetched: the address could be anybody's (OI-4).
            return _refused(
                sent, "request_uri_not_supported", "The request_uri must come from a pushed request."
            )
        pushed = pushed_requests.find_pushed_request(client, sent["request_uri"])
        return AskedRequest(pushed.sent, pushed.id)
    if demands.pushed_requests:
        words = "The request must be pushed first (RFC 9126)."
        return AskedRequest(
            sent, refusal=AuthorizationError("invalid_request", words).with_cause("par_required")
        )
    return _opened(client, sent)


def read_pushed(client: ClientSnapshot, sent: Mapping[str, str]) -> AskedRequest:
    """The request that a client pushes."""
    if "request_uri" in sent:
        return _refused(
            sent, "invalid_request", "A pushed request holds no request_uri (RFC 9126 section 2.1)."
        )
    return _opened(client, sent)


def _opened(client: ClientSnapshot, sent: Mapping[str, str]) -> AskedRequest:
    if "request" in sent:
        try:
            return AskedRequest(request_objects.parameters_of(client, sent["request"]))
        except AuthorizationError as refusal:
            return AskedRequest(sent, refusal=refusal)
    if get_client_requirements(client.document, client.organization.settings).request_objects:
        return _refused(sent, "invalid_request", "The request must be a signed request object (RFC 9101).")
    return AskedRequest(sent)


def _refused(sent: Mapping[str, str], code: str, words: str) -> AskedRequest:
    refusal = AuthorizationError(code, words).with_cause("request_object_refused")
    return AskedRequest(sent, refusal=refusal)


LIFE = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class AuthorizationRequestView:
    """A request under way. ``sent`` are the parameters as the client sent them, each once."""

    id: UUID
    organization_id: str
    client: ClientSnapshot
    sent: Mapping[str, str]
    created_at: datetime
    shown_digest: bytes | None
    selected_session_id: UUID | None
    pushed_id: UUID | None = None


class RequestEnded(NotFound):
    """The request is over: used, older than half an hour, or begun in another browser (IN-2)."""

    status = 400
    code = "request_ended"

    def __init__(self) -> None:
        super().__init__("This sign-in request has expired. Go back to the app and start again.")


def find_asking_client(
    client_id: str, *, organization_id: str | None, address: str | None = None
) -> ClientSnapshot | None:
    """The client as it stands now, if it may act and the organization of the path, where there is one, knows it.

    One that administrators blocked is told too: people are to hear why they cannot go on.

    Read afresh: nothing later in the authorization endpoint would notice a cached view that is stale (RU-5, MX-3).
    Raises what ``find_wire_client`` raises for a client whose metadata stands at an address of its own.
    """
    client = find_wire_client(client_id, organization_id=organization_id, address=address, fresh=True)
    return client if client is not None and (client.is_active or client.is_blocked) else None


@transaction
def begin_request(
    actor: Actor,
    client: ClientSnapshot,
    sent: Mapping[str, str],
    browser_id: str,
    *,
    pushed_id: UUID | None = None,
) -> str:
    """The checked request is stored for this browser; returns the clear token that pages carry.

    ``pushed_id`` is the pushed request that it came from, which is spent with this one.
    Of the browser's open requests the oldest ends when there are too many. Raises TooManyRequests when the client has
    as many from the actor's network as it may; those who come from elsewhere go on. See ``open_requests``.
    """
    network = network_of(actor.ip_address)
    require_room(actor, client, network)
    token = current_unit_of_work().stable_value(
        "request", lambda: new_token(AUTHORIZATION_REQUEST, actor.organization_id)
    )
    now = clock.now()
    db.session.execute(
        insert(AuthorizationRequest).values(
            organization_id=actor.organization_id,
            id=new_id(),
            digest=digest(token),
            browser_digest=_browser(browser_id),
            client_id=client.id,
            network=network,
            parameters=understood(sent),
            pushed_request_id=pushed_id,
            created_at=now,
            expires_at=now + LIFE,
        )
    )
    end_oldest(actor, _browser(browser_id))
    return token


@read
def find_request(organization_id: str, token: str, browser_id: str) -> AuthorizationRequestView | None:
    """The request of that token, begun in this browser and still open; None otherwise."""
    parsed = parse_token(token)
    if parsed is None or parsed.kind != AUTHORIZATION_REQUEST or parsed.organization_id != organization_id:
        return None
    row = db.session.execute(
        select(AuthorizationRequest.__table__).where(
            AuthorizationRequest.organization_id == organization_id,
            AuthorizationRequest.digest == digest(token),
        )
    ).first()
    if row is None or row.completed_at is not None or row.expires_at <= clock.now():
        return None
    if row.browser_digest != _browser(browser_id):
        return None
    client = lookups.find_client(format_client_id(organization_id, row.client_id), fresh=True)
    if client is None:
        return None
    return AuthorizationRequestView(
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
def note_shown(actor: Actor, request: AuthorizationRequestView, shown: bytes) -> None:
    """What the consent page displayed is remembered: a decision counts for exactly that (IN-3)."""
    _note(actor, request, shown_digest=shown)


@transaction
def note_selected(actor: Actor, request: AuthorizationRequestView, session: SessionRecord) -> None:
    """The person goes on with this sign-in: ``prompt=select_account`` is met."""
    _note(actor, request, selected_session_id=session.id)


def _note(actor: Actor, request: AuthorizationRequestView, **values: Any) -> None:
    count_changed(
        update(AuthorizationRequest)
        .where(
            AuthorizationRequest.organization_id == actor.organization_id,
            AuthorizationRequest.id == request.id,
        )
        .values(**values)
    )


def shown_digest(
    client: ClientSnapshot, session: SessionRecord, parameters: AuthorizationParameters
) -> bytes:
    """The digest of all that the consent page says."""
    asked = (*parameters.consent_scopes, *parameters.bare_resources)
    return page_digest(client.client_id, client.version, session.public_id, asked)


@read
def words_for(actor: Actor, names: tuple[str, ...]) -> list[ScopeRecord]:
    """The scopes with the words that consent shows, in the order asked for."""
    known = {scope.name: scope for scope in scope_registry.list_scopes(actor)}
    return [known.get(name) or ScopeRecord(name, None, None, False) for name in names]


@transaction
def allow(
    actor: Actor,
    client: ClientSnapshot,
    parameters: AuthorizationParameters,
    session: SessionRecord,
    *,
    code: str,
    scopes: tuple[str, ...],
    request: AuthorizationRequestView | None,
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
        _complete(actor, request)
    elif pushed_id is not None:
        _spend(actor, pushed_id)
    if remember:
        asked = parameters.consent_scopes
        ends_at = consents.remember(actor, client, session.user_id, scopes, ends_at, asked=asked)
    codes.add_code(
        actor,
        client,
        replace(parameters, claims=within(parameters.claims, scopes)),
        code,
        scopes=restrict_scopes(parameters.scopes, scopes),
        user_id=session.user_id,
        session_id=session.id,
        auth_time=session.authenticated_at,
        amr=" ".join(session.amr),
        acr=context_of(session.amr, parameters.acr_values),
        ends_at=ends_at,
    )
    audit.record(
        actor, "code.issued", target_type="client", target_id=client.client_id, after={"scopes": list(scopes)}
    )


@transaction
def deny(actor: Actor, client: ClientSnapshot, request: AuthorizationRequestView) -> None:
    """The request is over without a code. Raises RequestEnded. Audit: ``consent.denied``."""
    _complete(actor, request)
    audit.record(actor, "consent.denied", target_type="client", target_id=client.client_id)


@transaction
def end_request(actor: Actor, request: AuthorizationRequestView) -> None:
    """The request is over: it was answered with an error."""
    _complete(actor, request)


def _complete(actor: Actor, request: AuthorizationRequestView) -> None:
    changed = count_changed(
        update(AuthorizationRequest)
        .where(
            AuthorizationRequest.organization_id == actor.organization_id,
            AuthorizationRequest.id == request.id,
            AuthorizationRequest.completed_at.is_(None),
            AuthorizationRequest.expires_at > clock.now(),
        )
        .values(completed_at=clock.now())
    )
    if changed != 1:
        raise RequestEnded
    if request.pushed_id is not None:
        _spend(actor, request.pushed_id)


def _spend(actor: Actor, pushed_id: UUID) -> None:
    # Two tabs may have begun from the same pushed request: it is answered once (OI-4).
    if not pushed_requests.spend(actor, pushed_id):
        raise RequestEnded


def _browser(browser_id: str) -> bytes:
    return hashlib.sha256(browser_id.encode()).digest()
