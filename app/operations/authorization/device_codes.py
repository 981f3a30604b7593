"""Device codes: storing them, and the user's decision (RFC 8628)."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct
from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError

from app.database_errors import is_duplicate_key
from app.extensions import db
from app.models.base import has_key
from app.models.token import ALLOWED, DENIED, PENDING, DeviceCode
from app.operations.authorization import consents
from app.operations.directory import lookups
from app.operations.directory.snapshots import (
    ClientSnapshot,
    OrganizationSnapshot,
)
from app.operations.directory.users import hold_user
from app.operations.sign_in.reauthentication import require_active_session
from app.operations.sign_in.sessions import SessionRecord
from app.operations.store import audit, clock, keyring, rate_limits
from app.operations.store.rate_limits import Limit, bucket_key, network_limits
from app.operations.store.rows import count_rows
from app.operations.store.transactions import count_changed, read, transaction
from app.operations.tokens import access_tokens
from app.rules import identifiers
from app.rules.actor import Actor
from app.rules.authorization import interaction
from app.rules.authorization.consents import page_digest
from app.rules.authorization.interaction import parse_user_code, select_context
from app.rules.errors import InvalidScope, NotFound, TooManyRequests
from app.rules.identifiers import format_client_id, new_id
from app.rules.languages.translation import lazy_gettext
from app.rules.organizations.settings import earliest_expiry
from app.rules.scopes import restrict_scopes
from app.rules.sign_in.passwords import Lockout, network_of

MAX_PENDING = 2_000
MAX_PENDING_PER_NETWORK = 100
"""Pending codes of one client, so that a device in a loop does not fill the table."""
_WINDOW = timedelta(hours=1)
# With a few thousand of 2.56e10 codes pending, these attempts practically never find one (DV-1).
PER_USER = Lockout(5, _WINDOW, timedelta(minutes=15), _WINDOW)
PER_NETWORK = Lockout(50, _WINDOW, timedelta(minutes=15), _WINDOW)


class UserCodeTaken(Exception):
    """The user code is taken: roll back and try again with a new one."""


def user_code_digest(organization_id: str, user_code: str) -> bytes:
    """Return the keyed digest of a user code; an unkeyed one could be reversed by trying all codes."""
    return identifiers.keyed_digest(
        keyring.derive_instance_key("device user codes"), f"{organization_id}|{user_code}"
    )


def generate_device_code(organization: OrganizationSnapshot) -> str:
    """Return a random device code that names its organization."""
    return identifiers.new_token(identifiers.DEVICE_CODE, organization.id)


def store_device_code(
    actor: Actor,
    client: ClientSnapshot,
    scopes: tuple[str, ...],
    *,
    device_code: str,
    user_code: str,
    resources: tuple[str, ...] = (),
) -> None:
    """Store a pending device code in the current transaction; ``actor`` is the client.

    ``resources`` are those that it requests (RFC 8707), which keep only the scopes that belong to them. Raises
    InvalidTarget, InvalidScope if none of the scopes does, TooManyRequests if too many of the client's codes are
    pending, UserCodeTaken.
    """
    target = access_tokens.resolve_target(client, scopes, resources)
    if not target.scopes:
        raise InvalidScope(access_tokens.NO_SCOPE_LEFT)
    _enforce_pending_limit(actor, client)
    settings = client.organization.settings["oauth"]
    now = clock.now()
    values = {
        "organization_id": client.organization.id,
        "id": new_id(),
        "digest": identifiers.digest(device_code),
        "user_code_digest": user_code_digest(
            client.organization.id, interaction.parse_user_code(user_code) or ""
        ),
        "client_id": client.id,
        "scope": " ".join(target.scopes),
        "resource": " ".join(resources),
        "address": actor.ip_address,
        "network": network_of(actor.ip_address),
        "created_at": now,
        "expires_at": now + timedelta(seconds=settings["device_code_ttl_seconds"]),
        "interval_seconds": settings["device_poll_interval_seconds"],
        "next_poll_at": now,
        "state": PENDING,
        "grant_id": new_id(),
    }
    try:
        db.session.execute(insert(DeviceCode).values(**values))
    except IntegrityError as error:
        if is_duplicate_key(error):
            raise UserCodeTaken from error
        raise


def _enforce_pending_limit(actor: Actor, client: ClientSnapshot) -> None:
    pending = (
        DeviceCode.organization_id == actor.organization_id,
        DeviceCode.client_id == client.id,
        DeviceCode.expires_at > clock.now(),
    )
    # Counts up to the bound, within the index.
    same_network = DeviceCode.network == network_of(actor.ip_address)
    for bound, conditions in ((MAX_PENDING_PER_NETWORK, (*pending, same_network)), (MAX_PENDING, pending)):
        if count_rows(select(DeviceCode.id).where(*conditions), bound) == bound:
            raise TooManyRequests(
                "Too many device codes of this client are pending. Try again later.",
                retry_after=client.organization.settings["oauth"]["device_poll_interval_seconds"],
            ).with_cause("device_too_many", expected=f"at most {bound} at a time")


class DeviceRequest(Struct, frozen=True):
    """A pending device. ``scopes`` are the requested ones that its client may still have.

    ``resources`` are the requested resource indicators, ``bare_resources`` those without any of the scopes.
    """

    id: UUID
    client: ClientSnapshot
    user_code: str
    scopes: tuple[str, ...]
    address: str | None
    requested_at: datetime
    shown_digest: bytes | None
    resources: tuple[str, ...]
    bare_resources: tuple[str, ...]


class WrongUserCode(NotFound):
    """No pending device has this code: it is mistyped, expired or already decided.

    ``attempts_left`` is set if it counted as a guess.
    """

    status = 400
    code = "wrong_user_code"

    def __init__(self, description: str, attempts_left: int | None = None) -> None:
        super().__init__(description)
        self.attempts_left = attempts_left


_INCOMPLETE = lazy_gettext("Enter the eight letters that your device shows.")
_UNKNOWN = lazy_gettext(
    "No device is waiting with this code. Check the code, or get a new one from your device."
)
_ENDED = lazy_gettext("This code has expired or was already used. Get a new one from your device.")
_UNAVAILABLE = lazy_gettext("The app on this device can't be connected at the moment.")
_DECIDED = {
    ALLOWED: lazy_gettext(
        "This code was already used to connect a device. Each device has a code of its own."
    ),
    DENIED: lazy_gettext("This device was refused. To connect it after all, get a new code from it."),
}


def find_device_request(actor: Actor, typed: str) -> DeviceRequest:
    """Return the pending device of the actor's organization with the code that a user typed.

    Unknown codes are counted per user, because a user can begin any number of sessions, and per network. Raises
    WrongUserCode, TooManyRequests after five of them.
    """
    user_code = parse_user_code(typed)
    if user_code is None:
        raise WrongUserCode(_INCOMPLETE)
    limits = (
        Limit(bucket_key("device user code", str(actor.user_id)), PER_USER),
        *network_limits(PER_NETWORK, actor.ip_address, "device user code", "network"),
    )
    claim = rate_limits.require_attempt_allowed(
        actor.organization_id, "Too many incorrect codes. Wait a moment before you try again.", *limits
    )
    found = _find(actor, user_code)
    if found is None:
        raise WrongUserCode(_UNKNOWN, claim.attempts_left)
    # A code that has ended is no guess either.
    rate_limits.withdraw_attempts(actor.organization_id, claim.attempts)
    if isinstance(found, str):
        raise WrongUserCode(found)
    return found


@transaction
def record_displayed_device_consent(actor: Actor, request: DeviceRequest, session: SessionRecord) -> None:
    """Record what the consent page displays, so that the decision applies to exactly that (IN-3)."""
    count_changed(
        update(DeviceCode)
        .where(has_key(DeviceCode, actor.organization_id, request.id))
        .values(shown_digest=_page_digest(request, session))
    )


def matches_displayed_consent(actor: Actor, request: DeviceRequest, session: SessionRecord) -> bool:
    """Return whether the consent page displayed what would be allowed now."""
    return request.shown_digest == _page_digest(request, session)


@transaction
def allow_device(
    actor: Actor,
    request: DeviceRequest,
    session: SessionRecord,
    scopes: tuple[str, ...],
    *,
    remember: bool,
    ends_at: datetime | None = None,
) -> None:
    """Allow the device, so that its next poll returns tokens. ``remember`` stores the user's consent for ``scopes``.

    Nothing that it receives is valid after ``ends_at``. Raises WrongUserCode if it was decided meanwhile or expired,
    and FreshSignInRequired when the session has ended meanwhile: the tokens do not depend on it, so nothing else
    would revoke them. Audit: ``device_code.allowed`` and ``consent.given``.
    """
    hold_user(actor.organization_id, session.user_id)
    if remember:
        # The code before the consent, which locks the client: who deletes it ends its device codes first.
        row = has_key(DeviceCode, actor.organization_id, request.id)
        db.session.execute(select(DeviceCode.id).where(row).with_for_update())
        requested = request.scopes
        ends_at = consents.store_consent(
            actor, request.client, session.user_id, scopes, ends_at, requested=requested
        )
    resources = access_tokens.restrict_to_allowed(request.client, request.resources, request.scopes, scopes)
    _decide(
        actor,
        request,
        state=ALLOWED,
        scope=" ".join(scopes),
        resource=" ".join(resources),
        user_id=session.user_id,
        auth_time=session.authenticated_at,
        amr=" ".join(session.amr),
        acr=select_context(session.amr),
        grant_ends_at=ends_at,
    )
    audit.record(
        actor,
        "device_code.allowed",
        "client",
        request.client.client_id,
        after={"scopes": list(scopes), "asked_from": request.address},
    )
    require_active_session(actor)


@transaction
def deny_device(actor: Actor, request: DeviceRequest) -> None:
    """Deny the device, so that its next poll returns an error. Raises WrongUserCode. Audit: ``device_code.denied``."""
    # It expires at once: ``_enforce_pending_limit`` counts what has not expired.
    _decide(actor, request, state=DENIED, expires_at=clock.now())
    audit.record(
        actor, "device_code.denied", "client", request.client.client_id, after={"asked_from": request.address}
    )


def _decide(actor: Actor, request: DeviceRequest, *, state: str, **values: object) -> None:
    now = clock.now()
    changed = count_changed(
        update(DeviceCode)
        .where(
            has_key(DeviceCode, actor.organization_id, request.id),
            DeviceCode.state == PENDING,
            DeviceCode.expires_at > now,
        )
        .values(state=state, decided_at=now, **values)
    )
    if changed != 1:
        raise WrongUserCode(_ENDED)


@read
def _find(actor: Actor, user_code: str) -> DeviceRequest | str | None:
    """Return the request, why its code has ended, or None for an unknown code."""
    row = db.session.execute(
        select(DeviceCode.__table__).where(
            DeviceCode.organization_id == actor.organization_id,
            DeviceCode.user_code_digest == user_code_digest(actor.organization_id, user_code),
        )
    ).first()
    if row is None or row.state != PENDING:
        return None if row is None else _DECIDED[row.state]
    client = lookups.find_client(format_client_id(actor.organization_id, row.client_id), fresh=True)
    if client is None or not client.is_active:
        return _UNAVAILABLE
    seconds = client.organization.settings["oauth"]["device_code_ttl_seconds"]
    has_expired = earliest_expiry(row.expires_at, row.created_at, seconds) <= clock.now()
    if has_expired or client.organization.is_before_restore(row.created_at):
        return _ENDED
    scopes = restrict_scopes(row.scope.split(), client.document["scopes"])
    if not scopes:
        return _UNAVAILABLE
    resources = tuple(row.resource.split())
    return DeviceRequest(
        row.id,
        client,
        user_code,
        scopes,
        row.address,
        row.created_at,
        row.shown_digest,
        resources,
        access_tokens.find_bare_resources(client, scopes, resources),
    )


def _page_digest(request: DeviceRequest, session: SessionRecord) -> bytes:
    client = request.client
    requested = (*request.scopes, *request.bare_resources)
    return page_digest(client.client_id, client.version, session.public_id, requested)
