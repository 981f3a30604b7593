"""Registration: users create their own accounts where allowed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import create_user, require_free_place
from app.operations.mail import emails
from app.operations.sign_in.passwords import hash_new_password
from app.operations.store import audit, rate_limits
from app.operations.store.rate_limits import Limit, bucket_key, network_limits
from app.operations.store.transactions import transaction
from app.operations.users.role_assignments import assign_role
from app.rules.actor import Actor
from app.rules.errors import Conflict, DomainError, Forbidden
from app.rules.fields import ValidationErrors
from app.rules.languages.translation import lazy_gettext
from app.rules.mail.email_addresses import canonical_email
from app.rules.organizations.organizations import check_email_and_name
from app.rules.sign_in.passwords import Lockout
from app.rules.users.profile import is_domain_allowed, is_registration_open

REGISTRATION_MESSAGE = "registration"
MAX_REGISTRATIONS_PER_NETWORK = 20
"""Per hour. Registering and then signing in reveals whether an email already had an account."""
MAX_EMAILS_PER_MAILBOX = 3
"""Per hour, so that strangers cannot flood a mailbox."""
_PER_NETWORK = Lockout(
    MAX_REGISTRATIONS_PER_NETWORK, timedelta(hours=1), timedelta(minutes=1), timedelta(minutes=15)
)
_PER_MAILBOX = Lockout(MAX_EMAILS_PER_MAILBOX, timedelta(hours=1), timedelta(hours=1), timedelta(hours=1))


def require_registration_open(organization: OrganizationSnapshot) -> None:
    """Require that the organization allows registration. Raises Forbidden."""
    if not organization.is_active:
        message = lazy_gettext(
            "%(organization)s is suspended. You can't create an account right now.",
            organization=organization.title,
        )
        raise Forbidden(message)
    if not is_registration_open(organization.settings):
        raise Forbidden(
            lazy_gettext(
                "%(organization)s doesn't allow people to create their own accounts.",
                organization=organization.title,
            )
        )


def next_registration_step(organization: OrganizationSnapshot) -> Literal["mail", "administrator", "sign_in"]:
    """Return what follows a registration: an emailed link, an administrator's approval, or signing in."""
    if not organization.settings["authentication"]["registration"]["verify_email"]:
        return "sign_in"
    return "mail" if emails.is_possible() else "administrator"


def register_user(
    organization: OrganizationSnapshot,
    *,
    email: str,
    name: str,
    password: str,
    ip_address: str | None,
    request_id: str | None,
    page_language: str | None = None,
    authorization_request: str | None = None,
) -> None:
    """Register a user, or create the account at once if emails are not verified.

    Nothing reveals whether the email has an account already (EN-1): the work and the result are the same, and
    the password is used only for a new account. If ``authentication.registration.verify_email`` is on, the
    outbox continues (``registrations.process_registration``) with an email in ``page_language``, whose links return
    to the ``authorization_request`` with this token, and requests beyond the hourly limit of a mailbox are ignored
    silently. Raises Forbidden if registration is not open,
    InvalidInput naming every wrong field, Conflict if the organization has as many users as it may, TooManyRequests,
    Unavailable. Audit, if the account is created here:
    ``user.registered`` or ``user.registration_refused``.
    """
    require_registration_open(organization)
    found = ValidationErrors()
    check_email_and_name(email, name, found)
    if not found.has_error("email") and not is_domain_allowed(email, organization.settings):
        found.add(
            "email",
            "domain_not_allowed",
            "This organization doesn't accept email addresses from this domain.",
        )
    found.raise_if_any()
    # Whatever the email, so that this does not tell new ones from known ones.
    require_free_place(organization.id)
    claim = rate_limits.require_attempt_allowed(
        organization.id,
        "Too many accounts were created from your network. Try again later.",
        *network_limits(_PER_NETWORK, ip_address, "registration"),
    )
    try:
        password_hash = hash_new_password(
            organization.settings,
            password,
            personal=(email, name, organization.name, organization.slug),
            organization_id=organization.id,
            ip_address=ip_address,
        )
    except DomainError:
        rate_limits.withdraw_attempts(organization.id, claim.attempts)
        raise
    if not organization.settings["authentication"]["registration"]["verify_email"]:
        _create_or_record_refusal(
            Actor.anonymous(organization.id, ip_address, request_id), organization, email, name, password_hash
        )
        return
    mailbox = Limit(bucket_key("registration address", canonical_email(email) or ""), _PER_MAILBOX)
    if not rate_limits.record_attempt(organization.id, mailbox).retry_after:
        values: dict[str, Any] = {"email": email, "name": name, "password_hash": password_hash}
        values |= {"address": ip_address, "request_id": request_id, "page_language": page_language}
        values["authorization_request"] = authorization_request
        emails.enqueue_sealed(organization.id, REGISTRATION_MESSAGE, values, receiver="registration")


@transaction
def create_registered_user(
    actor: Actor,
    organization: OrganizationSnapshot,
    *,
    email: str,
    name: str,
    password_hash: str | None,
    email_verified: bool,
) -> UUID:
    """Create the user of a registration with the organization's default roles and return the id.

    Without a ``password_hash``, call it in the transaction that links an account of an identity provider. Raises
    Conflict if the email is taken. Audit: ``user.registered`` in the actor's name.
    """
    user_id = create_user(
        organization.id,
        email=email,
        name=name,
        password_hash=password_hash,
        email_verified=email_verified,
        made_unproven=not email_verified,
    )
    system = Actor.system(organization.id, email)
    for role in dict.fromkeys(organization.settings["authentication"]["registration"]["default_roles"]):
        assign_role(system, organization.id, organization.id, user_id, role)
    audit.record_user_event(
        actor,
        "user.registered",
        user_id,
        after={"email": email, "name": name, "email_verified": email_verified},
    )
    return user_id


@transaction
def _create_or_record_refusal(
    actor: Actor, organization: OrganizationSnapshot, email: str, name: str, password_hash: str
) -> None:
    try:
        create_registered_user(
            actor,
            organization,
            email=email,
            name=name,
            password_hash=password_hash,
            email_verified=False,
        )
    except Conflict:
        audit.record(actor, "user.registration_refused", "user", after={"email": email})
