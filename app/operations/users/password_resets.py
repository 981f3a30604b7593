"""Password resets: a link to choose a new password, issued by an administrator or requested by email."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from app.models.user import ACTIVE, User
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import UserSnapshot, find_user_by_email, hold_user, update_user_row
from app.operations.mail import emails
from app.operations.mail.emails import open_payload
from app.operations.mail.notices import notify_user
from app.operations.sign_in import known_browsers, sign_in_limits
from app.operations.sign_in.actor_access import require_manageable_user
from app.operations.sign_in.linked_identities import list_identities_of_user
from app.operations.sign_in.passwords import hash_new_password
from app.operations.sign_in.reauthentication import require_fresh_user_sign_in
from app.operations.sign_in.second_factors import FactorCount, count_factors
from app.operations.sign_in.sessions import end_access_of_user
from app.operations.sign_in.sign_in import Browser
from app.operations.store import audit, clock, outbox, rate_limits
from app.operations.store.outbox import DeliveryRejected, Message
from app.operations.store.rate_limits import Limit, bucket_key, network_limits
from app.operations.store.transactions import transaction
from app.operations.users import account_links
from app.operations.users.account_links import AccountLinkRecord
from app.operations.users.email_verification import RevokedState, revoke_unverified_state
from app.rules.actor import Actor
from app.rules.errors import Conflict, Forbidden, HasDefaultText, InvalidInput
from app.rules.identifiers import PASSWORD_RESET
from app.rules.languages.translation import lazy_gettext
from app.rules.mail.email_addresses import canonical_email
from app.rules.sign_in.passwords import Lockout

RECOVERY_MESSAGE = "password_recovery"
MAX_REQUESTS_PER_NETWORK = 20
MAX_EMAILS_PER_ACCOUNT = 3
"""Per hour, so that strangers cannot flood a mailbox. Each email also invalidates the link before it."""
_PER_NETWORK = Lockout(
    MAX_REQUESTS_PER_NETWORK, timedelta(hours=1), timedelta(minutes=1), timedelta(minutes=15)
)
_PER_ACCOUNT = Lockout(MAX_EMAILS_PER_ACCOUNT, timedelta(hours=1), timedelta(hours=1), timedelta(hours=1))


class ResetEnded(HasDefaultText, Conflict):
    """The link was used or replaced or has expired, or the password was changed in the meantime."""

    code = "reset_ended"
    default_description = lazy_gettext(
        "This link has expired, was already used, or was replaced by a newer one. Request a new link."
    )


class NewResetLink(Struct, frozen=True):
    """``link`` contains the token and is available only here, or is None if it was emailed to the user."""

    link: str | None
    expires_at: datetime


class PasswordResetResult(Struct, frozen=True):
    """``known_cookie`` is the new known-browsers cookie, ``ended`` counts the second factors that were revoked.

    Only the first verification of an untrusted account's email revokes second factors.
    """

    known_cookie: str
    ended: FactorCount


@transaction
def issue_reset_link(actor: Actor, user_id: UUID) -> NewResetLink:
    """Issue a link with which the user can choose a new password once. Earlier links become invalid.

    The link is emailed. Without a mail server, or where the organization does not allow resets by email, it
    is returned for the actor to pass on. Administrators never set passwords (PW-4). Raises NotFound,
    Forbidden when the user has a role that the actor lacks, Conflict for a disabled user and where passwords
    are disabled, TooManyRequests for too many emails, and FreshSignInRequired if the link is returned and the
    actor signed in too long ago. Audit: ``user.password_reset_requested``.
    """
    user = require_manageable_user(actor, user_id)
    organization = get_organization_by_id(actor.organization_id)
    if not user.is_active:
        raise Conflict("This user is disabled. Enable the account first.", code="user_disabled")
    require_passwords_enabled(organization)
    is_mailed = can_email_reset_links(organization)
    if not is_mailed:
        # Whoever sees the link can take over the account.
        require_fresh_user_sign_in(actor)
    else:
        emails.require_quota(organization, user.email, "password_reset")
    token, expires_at = create_reset_link(organization, user, is_mailed=is_mailed)
    audit.record_user_event(actor, "user.password_reset_requested", user_id)
    link = reset_url(organization, token)
    if not is_mailed:
        return NewResetLink(link, expires_at)
    send_reset_link(organization, user.email, link, expires_at)
    return NewResetLink(None, expires_at)


def can_email_reset_links(organization: OrganizationSnapshot) -> bool:
    """Return whether there is a mail server and the organization allows resets by email."""
    recovery = organization.settings["authentication"]["recovery"]
    return bool(recovery["password_reset"] and emails.is_possible())


def send_reset_link(
    organization: OrganizationSnapshot,
    email: str,
    link: str,
    expires_at: datetime,
    *,
    language: str | None = None,
) -> None:
    """Email the link to the user, in the transaction that created it."""
    values = {"email": email, "link": link, "until": expires_at.isoformat()}
    emails.send(organization, email, "password_reset", values, until=expires_at, language=language)


@transaction
def create_reset_link(
    organization: OrganizationSnapshot, user: UserSnapshot, *, is_mailed: bool
) -> tuple[str, datetime]:
    """Create a link bound to the user's current password and email, and return its token and expiry (RP-1)."""
    lifetime = timedelta(seconds=organization.settings["authentication"]["recovery"]["reset_ttl_seconds"])
    return account_links.create_link(user, PASSWORD_RESET, lifetime=lifetime, is_mailed=is_mailed)


def reset_url(organization: OrganizationSnapshot, token: str) -> str:
    """Return the URL of the reset page, under the configured base URL and not the request's host (RP-2)."""
    return f"{organization.base_url}/organizations/{organization.slug}/reset/{token}"


def require_passwords_enabled(organization: OrganizationSnapshot) -> None:
    """Require that users of the organization sign in with passwords. Raises Conflict."""
    if not organization.settings["authentication"]["password"]["enabled"]:
        raise Conflict("This organization doesn't allow signing in with a password.", code="password_off")


def find_reset(organization: OrganizationSnapshot, token: str) -> AccountLinkRecord | None:
    """Find the user of a reset link, or None if the link has ended or the password was changed.

    One that was mailed has also ended where the organization does not allow resets by email any more.
    """
    if not organization.is_active:
        return None
    recovery = organization.settings["authentication"]["recovery"]
    found = account_links.find_link(
        organization.id, token, PASSWORD_RESET, lifetime_seconds=recovery["reset_ttl_seconds"]
    )
    return None if found is not None and found.is_mailed and not recovery["password_reset"] else found


def reset_password(
    organization: OrganizationSnapshot,
    token: str,
    password: str,
    *,
    ip_address: str | None = None,
    request_id: str | None = None,
    browser: Browser = Browser(),
) -> PasswordResetResult:
    """Set the new password, and end the user's sessions and grants. The user is not signed in.

    An emailed link also verifies the email. The user is notified by email with the remaining second factors and
    linked accounts (RP-3). If this is the first verification of an untrusted account, what was set up before is
    revoked. All other known browsers are forgotten and this one is remembered, so that someone who keeps guessing
    cannot lock the owner out (LK-1). Raises ResetEnded, InvalidInput naming ``password``, Conflict, and Unavailable
    when hashing has to wait. Audit: ``user.password_reset``, ``user.email_verified`` if it was not,
    ``second_factors.ended``.
    """
    require_passwords_enabled(organization)
    reset = find_reset(organization, token)
    if reset is None:
        raise ResetEnded
    new_hash = hash_new_password(
        organization.settings,
        password,
        personal=(reset.email, reset.name, organization.name, organization.slug),
        organization_id=organization.id,
        ip_address=ip_address,
    )
    actor = Actor.anonymous(organization.id, ip_address, request_id)
    return _store_password(actor, reset, new_hash, browser)


def register_recovery_delivery() -> None:
    """Register the delivery of reset links with the outbox."""
    outbox.register_delivery(RECOVERY_MESSAGE, deliver_reset_link, receiver_type="recovery")


def is_password_recovery_offered(organization: OrganizationSnapshot) -> bool:
    """Return whether users can reset a forgotten password by email."""
    has_passwords = organization.settings["authentication"]["password"]["enabled"]
    return bool(organization.is_active and has_passwords and can_email_reset_links(organization))


def request_reset(
    organization: OrganizationSnapshot,
    email: str,
    *,
    ip_address: str | None,
    request_id: str | None,
    page_language: str | None = None,
    authorization_request: str | None = None,
) -> None:
    """Queue an email with a reset link, if there is an account with the email.

    ``page_language`` is the language of the email to a user who has not chosen one. The link returns to the
    ``authorization_request`` with this token.
    The response is the same for every email (EN-1), and requests beyond the hourly limit of an account are
    ignored silently. Raises Forbidden if this is not offered, InvalidInput for an invalid email,
    TooManyRequests for the network.
    """
    if not is_password_recovery_offered(organization):
        raise Forbidden("Ask an administrator for a password reset link.")
    canonical = canonical_email(email)
    if canonical is None:
        raise InvalidInput("Enter a valid email address.", field="email", code="invalid_email")
    networks = network_limits(_PER_NETWORK, ip_address, "recovery network")
    rate_limits.require_attempt_allowed(
        organization.id,
        "Too many password resets were requested from your network. Try again later.",
        *networks,
    )
    account = Limit(bucket_key("recovery account", canonical), _PER_ACCOUNT)
    if not rate_limits.record_attempt(organization.id, account).retry_after:
        values = {
            "email": canonical,
            "address": ip_address,
            "request_id": request_id,
            "page_language": page_language,
            "authorization_request": authorization_request,
        }
        emails.enqueue_sealed(organization.id, RECOVERY_MESSAGE, values, receiver="recovery")


@transaction
def deliver_reset_link(message: Message) -> None:
    """Email a link to the account's owner, if there is an account. Audit: ``user.password_reset_requested``.

    Raises Refused when the organization was deleted or no longer offers this.
    """
    organization = emails.get_organization_of_message(message)
    if not is_password_recovery_offered(organization):
        raise DeliveryRejected("password recovery is not offered any more")
    request = open_payload(organization.id, RECOVERY_MESSAGE, message.payload)
    user = find_user_by_email(organization.id, request["email"])
    if user is None or not user.is_active:
        return
    token, expires_at = create_reset_link(organization, user, is_mailed=True)
    # Both are absent from a message that an earlier release has queued.
    language = emails.language_of(organization, user.profile, request.get("page_language"))
    link = emails.link_to_page(reset_url(organization, token), request.get("authorization_request"))
    send_reset_link(organization, user.email, link, expires_at, language=language)
    anonymous = Actor.anonymous(organization.id, request["address"], request["request_id"])
    audit.record_user_event(anonymous, "user.password_reset_requested", user.id)


@transaction
def _store_password(
    actor: Actor, reset: AccountLinkRecord, new_hash: str, browser: Browser
) -> PasswordResetResult:
    user_id = reset.user_id
    hold_user(actor.organization_id, user_id)
    if not account_links.consume_link(reset):
        raise ResetEnded
    is_unverified = User.email_verified.is_(False)
    if reset.is_mailed and update_user_row(
        actor.organization_id, user_id, is_unverified, email_verified=True
    ):
        audit.record_user_event(actor, "user.email_verified", user_id, after={"email": reset.email})
    is_stored = update_user_row(
        actor.organization_id,
        user_id,
        User.status == ACTIVE,
        User.password_changed_at == reset.password_changed_at,
        password_hash=new_hash,
        password_scheme=None,
        password_changed_at=clock.now(),
    )
    if not is_stored:
        raise ResetEnded
    revoked = revoke_unverified_state(actor, user_id) if reset.is_mailed else RevokedState()
    ended = end_access_of_user(actor, user_id, reason="password_forgotten")
    audit.record_user_event(
        actor, "user.password_reset", user_id, after={**ended, "ended_consents": revoked.consents}
    )
    remaining = count_factors(actor.organization_id, user_id)
    notify_user(
        actor,
        user_id,
        "password_was_reset",
        **revoked.factors.email_values("ended"),
        **remaining.email_values("left"),
        left_accounts=", ".join(
            f"{linked.provider_name} ({linked.email or linked.subject})"
            for linked in list_identities_of_user(actor.organization_id, user_id)
        ),
    )
    sign_in_limits.clear_failed_attempts(
        actor.organization_id, reset.email_canonical, ip_address=actor.ip_address
    )
    known_browsers.forget_browsers_of_user(actor.organization_id, user_id, keep=browser.known_cookie)
    known_cookie = known_browsers.remember_browser(
        actor, user_id, browser.known_cookie, user_agent=browser.user_agent, has_signed_in_before=False
    )
    return PasswordResetResult(known_cookie, revoked.factors)
