"""Verifying and changing the email of one's own account with a link sent to it.

Nothing reveals whether another account has the email: its owner is notified by email, and the requester sees
no difference.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from uuid import UUID

from msgspec import Struct
from sqlalchemy import select

from app.extensions import db
from app.models.base import has_key
from app.models.user import ACTIVE, User
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import find_user_by_email, get_user, hold_user, update_user_row
from app.operations.mail import emails
from app.operations.mail.notices import Notice, notify_user
from app.operations.sign_in.reauthentication import require_active_session, require_fresh_sign_in
from app.operations.sign_in.second_factors import count_factors
from app.operations.sign_in.sessions import end_access_of_user
from app.operations.store import audit, rate_limits
from app.operations.store.rate_limits import Limit, bucket_key
from app.operations.store.transactions import read, savepoint, transaction
from app.operations.users import account_links
from app.operations.users.account_links import AccountLinkRecord
from app.operations.users.email_verification import revoke_unverified_state_elsewhere
from app.operations.users.own_profile import can_change_profile
from app.rules.actor import Actor
from app.rules.errors import Conflict, Forbidden, HasDefaultText, InvalidInput
from app.rules.identifiers import EMAIL_VERIFICATION
from app.rules.languages.translation import lazy_gettext
from app.rules.mail.email_addresses import canonical_email, is_email
from app.rules.sign_in.passwords import Lockout
from app.rules.users.profile import MAX_USER_NAME_BYTES, is_domain_allowed

VERIFICATION_LINK_LIFETIME = timedelta(days=1)
MAX_EMAILS_PER_HOUR = 3
"""Per requesting user, and per mailbox from all users."""
_HOURLY = Lockout(MAX_EMAILS_PER_HOUR, timedelta(hours=1), timedelta(hours=1), timedelta(hours=1))


class EmailVerificationEnded(HasDefaultText, Conflict):
    """The link was used or replaced or has expired, or the account has changed."""

    code = "proof_ended"
    default_description = lazy_gettext(
        "This link has expired, was already used, or was replaced by a newer one. Request a new link."
    )


class WrongAccount(HasDefaultText, Forbidden):
    """The link belongs to another account than the one signed in.

    Otherwise the owner of a mailbox could be tricked into verifying it for someone else's account.
    """

    code = "another_account"
    default_description = lazy_gettext(
        "This link is for another account. Sign in to that account, then open the link again."
    )


class EmailVerificationRecord(Struct, frozen=True):
    """The email that a link verifies, and the account's current ``email``.

    ``is_change`` says that they differ.
    """

    address: str
    email: str
    is_change: bool
    link: AccountLinkRecord


def on_email_changed(
    actor: Actor, user_id: UUID, *, old: str, new: str, keep: UUID | None = None
) -> dict[str, int]:
    """End the user's sessions except ``keep``, revoke their grants (SS-6), and notify the old email.

    A provider that manages the user still finds them by the old email, unless it changed the email itself.
    Call it in the transaction that audits the change. Returns the counts for its event.
    """
    # The old mailbox may belong to someone else by now, and links sent there must not set the password.
    account_links.revoke_links(actor.organization_id, user_id)
    if actor.provider_id is None:
        _keep_user_name(actor.organization_id, user_id, old)
    ended = end_access_of_user(actor, user_id, reason="email_changed", keep=keep)
    by_themselves = actor.user_id == user_id
    notice: Notice = "email_changed" if by_themselves else "email_changed_by_administrator"
    notify_user(actor, user_id, notice, to=old, new=new)
    return ended


def _keep_user_name(organization_id: str, user_id: UUID, email: str) -> None:
    """Store the email as the name by which the user's provider knows them, if it has given no other.

    The provider would not find the user any more, and create another. Nothing changes if it has another user of this
    name.
    """
    name = email.lower()
    if len(name.encode()) > MAX_USER_NAME_BYTES:
        return
    with suppress(Conflict), savepoint(on_duplicate=Conflict(name)):
        update_user_row(
            organization_id,
            user_id,
            User.provisioned_by.is_not(None),
            User.user_name.is_(None),
            user_name=name,
        )


def can_verify_emails() -> bool:
    """Return whether a mail server is configured, which verification needs."""
    return emails.is_possible()


def request_email_verification(actor: Actor, email: str, *, page_language: str | None = None) -> None:
    """Send a link that verifies the email and makes it that of the actor's account.

    The email is in the language that the actor has chosen, or else in ``page_language``.
    Nothing reveals whether another account has it. Raises Forbidden if members may not change their profile
    or the domain is not allowed, InvalidInput naming ``email``, Conflict without a mail server,
    FreshSignInRequired, TooManyRequests. Audit: ``user.email_proof_requested``.
    """
    user_id = actor.require_own_account()
    if not emails.is_possible():
        raise Conflict(
            "This service has no mail server, so email addresses can't be verified.", code="no_mail_server"
        )
    require_fresh_sign_in(actor)
    organization = get_organization_by_id(actor.organization_id)
    canonical = _require_allowed(actor, organization, user_id, email)
    for bucket in (
        bucket_key("address proof", str(user_id)),
        bucket_key("address proof", canonical),
    ):
        rate_limits.require_attempt_allowed(
            organization.id,
            "You requested too many links. Check your email, or try again in an hour.",
            Limit(bucket, _HOURLY),
        )
    _send(actor, organization, user_id, email.strip(), canonical, page_language)


@read
def find_email_verification(actor: Actor, token: str) -> EmailVerificationRecord | None:
    """Find what the link verifies, or None if it has ended or the account has changed.

    Raises WrongAccount, and Forbidden and InvalidInput if the account may not have that email any more.
    """
    organization = get_organization_by_id(actor.organization_id)
    lifetime_seconds = int(VERIFICATION_LINK_LIFETIME.total_seconds())
    link = account_links.find_link(
        organization.id, token, EMAIL_VERIFICATION, lifetime_seconds=lifetime_seconds
    )
    if link is None or not organization.is_active:
        return None
    if link.user_id != actor.user_id:
        raise WrongAccount
    if link.address is None:
        return None
    is_change = canonical_email(link.address) != link.email_canonical
    if is_change:
        _require_change_allowed(actor, organization, link.address)
    return EmailVerificationRecord(link.address, link.email, is_change, link)


@transaction
def verify_email(actor: Actor, token: str, *, known_cookie: str = "") -> bool:
    """Set the account's email to the verified one; the actor has shown access to its mailbox (OI-5).

    If the email changes, other sessions and grants end (SS-6) and the old email is notified. If it was
    already the account's, the user is notified by email with the remaining second factors. The first
    verification of an account that no administrator created also revokes the state that others set up in it.
    Return whether such state was revoked. ``known_cookie`` is the value of the known-browsers cookie. Raises
    EmailVerificationEnded, also when another
    account has the email by now, as ``find_email_verification``, and FreshSignInRequired when the session has ended
    meanwhile.
    Audit: ``user.email_changed`` or ``user.email_verified``, and as ``revoke_unverified_state_elsewhere``.
    """
    verification = find_email_verification(actor, token)
    if verification is not None:
        hold_user(actor.organization_id, verification.link.user_id)
    if verification is None or not account_links.consume_link(verification.link):
        raise EmailVerificationEnded
    organization = get_organization_by_id(actor.organization_id)
    user_id = verification.link.user_id
    _store_email(organization.id, user_id, verification)
    revoked = revoke_unverified_state_elsewhere(actor, user_id, known_cookie=known_cookie)
    if not verification.is_change:
        audit.record_user_event(
            actor, "user.email_verified", user_id, after={"email": verification.address, **revoked}
        )
        remaining = count_factors(organization.id, user_id)
        notify_user(actor, user_id, "address_confirmed", **remaining.email_values("left"))
        require_active_session(actor)
        return bool(revoked)
    ended = on_email_changed(
        actor, user_id, old=verification.email, new=verification.address, keep=actor.session_id
    )
    audit.record_user_event(
        actor,
        "user.email_changed",
        user_id,
        before={"email": verification.email},
        after={"email": verification.address, **revoked, **ended},
    )
    require_active_session(actor)
    return bool(revoked)


@read
def _require_allowed(actor: Actor, organization: OrganizationSnapshot, user_id: UUID, email: str) -> str:
    """Require that the account may verify the email, and return its canonical form."""
    canonical = canonical_email(email)
    row = db.session.execute(
        select(User.email_canonical, User.email_verified).where(has_key(User, organization.id, user_id))
    ).one()
    if canonical is None or (canonical != row.email_canonical and not is_email(email)):
        raise InvalidInput("Enter a valid email address.", field="email", code="invalid_email")
    if canonical == row.email_canonical:
        if row.email_verified:
            raise InvalidInput(
                "This is already your email address, and it is verified.", field="email", code="unchanged"
            )
        return canonical
    _require_change_allowed(actor, organization, email)
    return canonical


def _require_change_allowed(actor: Actor, organization: OrganizationSnapshot, email: str) -> None:
    """Raise Forbidden or InvalidInput unless the actor may have another email, and this one."""
    if not can_change_profile(actor):
        raise Forbidden(
            "Your organization doesn't let members change their email address. Contact your administrator."
        )
    if not is_domain_allowed(email, organization.settings) and not actor.has_permission("users:write"):
        raise InvalidInput(
            "This organization doesn't accept email addresses from this domain.",
            field="email",
            code="domain_not_allowed",
        )


@transaction
def _send(
    actor: Actor,
    organization: OrganizationSnapshot,
    user_id: UUID,
    email: str,
    canonical: str,
    page_language: str | None,
) -> None:
    organization_url = f"{organization.base_url}/organizations/{organization.slug}"
    existing_user = find_user_by_email(organization.id, email)
    if existing_user is not None and existing_user.id != user_id:
        values = {"email": email, "link": f"{organization_url}/login", "forgot": f"{organization_url}/forgot"}
        language = emails.language_of(organization, existing_user.profile, page_language)
        emails.send(organization, email, "account_exists", values, language=language)
        # A new link would replace the previous one. If the previous link still worked, the requester would learn
        # that another account has the email (EN-1).
        account_links.revoke_links(organization.id, user_id, EMAIL_VERIFICATION)
    else:
        user = get_user(organization.id, user_id)
        token, expires_at = account_links.create_link(
            user,
            EMAIL_VERIFICATION,
            lifetime=VERIFICATION_LINK_LIFETIME,
            is_mailed=True,
            address=email,
        )
        values = {
            "email": email,
            "link": f"{organization_url}/confirm-address/{token}",
            "until": expires_at.isoformat(),
        }
        # A new email has no profile that names a language.
        language = emails.language_of(organization, user.profile, page_language)
        emails.send(organization, email, "confirm_address", values, until=expires_at, language=language)
    audit.record_user_event(actor, "user.email_proof_requested", user_id, after={"email": canonical})


def _store_email(organization_id: str, user_id: UUID, verification: EmailVerificationRecord) -> None:
    with savepoint(on_duplicate=EmailVerificationEnded()):
        is_stored = update_user_row(
            organization_id,
            user_id,
            User.status == ACTIVE,
            User.email_canonical == canonical_email(verification.email),
            email=verification.address,
            email_canonical=canonical_email(verification.address),
            email_verified=True,
        )
    if not is_stored:
        raise EmailVerificationEnded
