"""Password resets: a link with which a person chooses a new password without knowing the old one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import select, update

from app.extensions import db
from app.models.user import ACTIVE, User
from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_id
from app.operations.directory.users import find_user_by_email
from app.operations.grants.revocation import revoke_grants_of_user
from app.operations.mail import letters
from app.operations.mail.notices import notify_user
from app.operations.mail.sealed_payloads import open_payload, seal_payload
from app.operations.sign_in import known_browsers, sign_in_limits
from app.operations.sign_in.actor_access import require_manageable_user
from app.operations.sign_in.passwords import hash_new_password
from app.operations.sign_in.second_factors import FactorCount, count_factors
from app.operations.sign_in.sessions import end_sessions_of_user
from app.operations.store import audit, clock, outbox, rate_limits
from app.operations.store.outbox import DeliveryRejected, Message
from app.operations.store.rate_limits import Limit, bucket_key, network_limits
from app.operations.store.transactions import count_changed, read, transaction
from app.operations.users import account_links
from app.operations.users.account_links import AccountLinkRecord
from app.operations.users.email_verification import RevokedState, revoke_unverified_state
from app.rules.actor import Actor
from app.rules.errors import Conflict, Forbidden, InvalidInput, NotFound
from app.rules.identifiers import public_id
from app.rules.mail.email_addresses import canonical_email
from app.rules.sign_in.lockout import Lockout
from app.rules.token_values import PASSWORD_RESET


class ResetEnded(Conflict):
    """It was used, replaced by a newer one, has expired, or the password was changed meanwhile."""

    code = "reset_ended"


@dataclass(frozen=True, slots=True)
class NewResetLink:
    """``link`` holds its token and is shown this once; None when it went to the user's mailbox alone."""

    link: str | None
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class PasswordResetResult:
    """``known`` is the value of this browser's cookie of known browsers; ``ended`` are the second factors that the
    first proof of the address has ended.
    """

    known: str
    ended: FactorCount


@dataclass(frozen=True, slots=True)
class PasswordResetRecord:
    """Whose password a link is for."""

    email: str
    name: str
    link: AccountLinkRecord
    password_hash: str | None


@transaction
def issue_reset_link(actor: Actor, user_id: UUID) -> NewResetLink:
    """Whoever holds the link may choose the user's password, once and until it expires; earlier links are dead.

    It goes to the user's mailbox alone; where there is no mail server, or the organization lets nobody reset a password
    by mail, the answer holds it, to be handed over. An administrator never sets a password (PW-4). Raises NotFound,
    Forbidden when the user holds a role that the actor lacks, Conflict for a disabled user and where nobody signs in
    with a password. Audit: ``user.password_reset_requested``.
    """
    user = require_manageable_user(actor, user_id)
    organization = get_organization_by_id(actor.organization_id)
    if not user.is_active:
        raise Conflict("This user is disabled. Let them in again first.", code="user_disabled")
    require_passwords_enabled(organization)
    is_mailed = can_email_reset_links(organization)
    token, expires_at = create_reset_link(organization, user_id, is_mailed=is_mailed)
    audit.record(
        actor, "user.password_reset_requested", target_type="user", target_id=public_id("usr", user_id)
    )
    link = reset_url(organization, token)
    if not is_mailed:
        return NewResetLink(link, expires_at)
    send_reset_link(organization, user.email, link, expires_at)
    return NewResetLink(None, expires_at)


def can_email_reset_links(organization: OrganizationSnapshot) -> bool:
    """Whether a reset link may go by mail: there is a mail server, and the organization lets people reset so."""
    recovery = organization.settings["authentication"]["recovery"]
    return bool(recovery["password_reset"] and letters.is_possible())


def send_reset_link(organization: OrganizationSnapshot, email: str, link: str, expires_at: datetime) -> None:
    """The link goes to the mailbox; part of the unit that made it."""
    values = {"email": email, "link": link, "until": expires_at.isoformat()}
    letters.send(organization, email, "password_reset", values, until=expires_at)


@transaction
def create_reset_link(
    organization: OrganizationSnapshot, user_id: UUID, *, is_mailed: bool
) -> tuple[str, datetime]:
    """(the token, when it ends) of a link bound to the password and address that the user has now (RP-1)."""
    row = db.session.execute(
        select(User.password_hash, User.email_canonical).where(
            User.organization_id == organization.id, User.id == user_id
        )
    ).one()
    life = timedelta(seconds=organization.settings["authentication"]["recovery"]["reset_ttl_seconds"])
    return account_links.create_link(
        organization.id, user_id, PASSWORD_RESET, bound_to=_bound(*row), life=life, is_mailed=is_mailed
    )


def reset_url(organization: OrganizationSnapshot, token: str) -> str:
    """The address of the page where the link is used: at the configured origin, whatever a request says (RP-2)."""
    return f"{organization.base_url}/organizations/{organization.slug}/reset/{token}"


def require_passwords_enabled(organization: OrganizationSnapshot) -> None:
    """People of the organization sign in with passwords. Raises Conflict."""
    if not organization.settings["authentication"]["password"]["enabled"]:
        raise Conflict("This organization does not let people sign in with a password.", code="password_off")


@read
def find_reset(organization: OrganizationSnapshot, token: str) -> PasswordResetRecord | None:
    """Whose password the link is for, or None when it has ended or the password is another by now."""
    life = organization.settings["authentication"]["recovery"]["reset_ttl_seconds"]
    link = account_links.find_link(organization.id, token, PASSWORD_RESET, life_seconds=life)
    if link is None or not organization.is_active:
        return None
    row = db.session.execute(
        select(User.email, User.email_canonical, User.name, User.password_hash).where(
            User.organization_id == organization.id, User.id == link.user_id, User.status == ACTIVE
        )
    ).first()
    if row is None or not link.is_bound_to(_bound(row.password_hash, row.email_canonical)):
        return None
    return PasswordResetRecord(row.email, row.name, link, row.password_hash)


def reset_password(
    organization: OrganizationSnapshot,
    token: str,
    password: str,
    *,
    address: str | None = None,
    request_id: str | None = None,
    known: str = "",
    user_agent: str = "",
) -> PasswordResetResult:
    """The password is the new one; every sign-in and what apps could refresh have ended, and nobody is signed in.

    A link that came by mail proves the address too, and the person is told by mail, with the second factors that the
    account has (RP-3); where it is the first proof of an account that nobody vouched for, those from before end. No
    other browser is known as the user's any more, and this one is, so that nobody who goes on guessing keeps the owner
    out (LK-1); where a second factor was given in it before, it goes on counting as one of those. Raises ResetEnded,
    InvalidInput naming ``password``, Conflict, and Unavailable when hashing has to wait. Audit:
    ``user.password_reset``, ``second_factors.ended``.
    """
    require_passwords_enabled(organization)
    reset = find_reset(organization, token)
    if reset is None:
        raise _ended()
    new_hash = hash_new_password(
        organization.settings,
        password,
        personal=(reset.email, reset.name, organization.name, organization.slug),
        organization_id=organization.id,
        address=address,
    )
    actor = Actor.anonymous(organization.id, address, request_id)
    return _store(actor, reset, new_hash, known, user_agent)


@transaction
def _store(
    actor: Actor, reset: PasswordResetRecord, new_hash: str, known: str, user_agent: str
) -> PasswordResetResult:
    user_id = reset.link.user_id
    now = clock.now()
    values = {"email_verified": True} if reset.link.is_mailed else {}
    if not account_links.consume_link(reset.link):
        raise _ended()
    changed = count_changed(
        update(User)
        .where(
            User.organization_id == actor.organization_id,
            User.id == user_id,
            User.status == ACTIVE,
            User.password_hash == reset.password_hash,
        )
        .values(
            password_hash=new_hash,
            password_scheme=None,
            password_changed_at=now,
            updated_at=now,
            version=User.version + 1,
            **values,
        )
    )
    if not changed:
        raise _ended()
    gone = revoke_unverified_state(actor, user_id) if reset.link.is_mailed else RevokedState()
    ended = end_sessions_of_user(actor.organization_id, user_id)
    grants = revoke_grants_of_user(actor, user_id, reason="password_forgotten")
    audit.record(
        actor,
        "user.password_reset",
        target_type="user",
        target_id=public_id("usr", user_id),
        after={"ended_sessions": ended, "ended_grants": grants, "ended_consents": gone.consents},
    )
    left = count_factors(actor.organization_id, user_id)
    notify_user(actor, user_id, "password_was_reset", **gone.factors.told("ended"), **left.told("left"))
    sign_in_limits.clear_failed_attempts(
        actor.organization_id, canonical_email(reset.email) or "", address=actor.ip_address
    )
    known_browsers.forget_browsers_of_user(actor.organization_id, user_id, keep=known)
    here = known_browsers.remember_browser(
        actor, user_id, known, user_agent=user_agent, has_signed_in_before=False
    )
    return PasswordResetResult(here, gone.factors)


def _bound(password_hash: str | None, email_canonical: str) -> str:
    return f"{password_hash or ''}\n{email_canonical}"


def _ended() -> ResetEnded:
    return ResetEnded("This link was used already, has expired, or a newer one was sent. Ask for a new one.")


RECOVERY_MESSAGE = "password_recovery"
MAX_REQUESTS_PER_NETWORK = 20
MAX_EMAILS_PER_ACCOUNT = 3
"""Mails in an hour that strangers can have sent to one mailbox; each also ends the link before."""
_PER_NETWORK = Lockout(
    MAX_REQUESTS_PER_NETWORK, timedelta(hours=1), timedelta(minutes=1), timedelta(minutes=15)
)
_PER_ACCOUNT = Lockout(MAX_EMAILS_PER_ACCOUNT, timedelta(hours=1), timedelta(hours=1), timedelta(hours=1))


def register_recovery_delivery() -> None:
    """The outbox answers those who forgot their password."""
    outbox.register_delivery(RECOVERY_MESSAGE, deliver_reset_link, receiver_type="recovery")


def is_password_recovery_offered(organization: OrganizationSnapshot) -> bool:
    """Whether a forgotten password can be reset by mail here."""
    has_passwords = organization.settings["authentication"]["password"]["enabled"]
    return bool(organization.is_active and has_passwords and can_email_reset_links(organization))


def request_reset(
    organization: OrganizationSnapshot, email: str, *, address: str | None, request_id: str | None
) -> None:
    """If there is an account with the address, its mailbox gets a reset link.

    The same is done and returned for any address (EN-1), and an account that was asked for too often in this hour is
    passed over in silence. Raises Forbidden where it is not offered, InvalidInput for what can be no address,
    TooManyRequests for the network.
    """
    if not is_password_recovery_offered(organization):
        raise Forbidden("Ask an administrator for a link to choose a new password.")
    canonical = canonical_email(email)
    if canonical is None:
        raise InvalidInput("This is not an e-mail address.", field="email", code="invalid_email")
    networks = network_limits(_PER_NETWORK, address, "recovery network")
    rate_limits.require_attempt_allowed(
        organization.id, "Too many people of your network forgot their password.", *networks
    )
    account = Limit(bucket_key("recovery account", canonical), _PER_ACCOUNT)
    if not rate_limits.record_attempt(organization.id, account).wait:
        _ask(organization, canonical, address, request_id)


@transaction
def _ask(
    organization: OrganizationSnapshot, canonical: str, address: str | None, request_id: str | None
) -> None:
    values = {"email": canonical, "address": address, "request_id": request_id}
    outbox.enqueue(
        organization.id,
        RECOVERY_MESSAGE,
        seal_payload(organization.id, RECOVERY_MESSAGE, values),
        receiver="recovery",
    )


@transaction
def deliver_reset_link(message: Message) -> None:
    """The account's owner, if there is one, gets a link. Audit: ``user.password_reset_requested``.

    Raises Refused when the organization has gone or does not offer it any more.
    """
    try:
        organization = get_organization_by_id(message.organization_id)
    except NotFound:
        raise DeliveryRejected("its organization is gone") from None
    if not is_password_recovery_offered(organization):
        raise DeliveryRejected("it is not offered any more")
    asked = open_payload(organization.id, RECOVERY_MESSAGE, message.payload)
    user = find_user_by_email(organization.id, asked["email"])
    if user is None or not user.is_active:
        return
    token, expires_at = create_reset_link(organization, user.id, is_mailed=True)
    send_reset_link(organization, user.email, reset_url(organization, token), expires_at)
    stranger = Actor.anonymous(organization.id, asked["address"], asked["request_id"])
    audit.record(stranger, "user.password_reset_requested", target_type="user", target_id=user.public_id)
