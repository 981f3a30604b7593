"""Registration: people make accounts for themselves, where the organization lets them."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal
from uuid import UUID

from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.directory.users import create_user
from app.operations.mail import letters
from app.operations.sign_in.passwords import hash_new_password
from app.operations.store import audit, rate_limits
from app.operations.store.rate_limits import Limit, bucket_key, network_limits
from app.operations.store.transactions import transaction
from app.operations.users.email_verification import enqueue_registration
from app.operations.users.role_assignments import assign_role
from app.rules.actor import Actor
from app.rules.errors import Conflict, Forbidden
from app.rules.fields import Findings
from app.rules.identifiers import public_id
from app.rules.languages.sentences import sentence
from app.rules.mail.email_addresses import canonical_email
from app.rules.organizations.organizations import parse_email_and_name
from app.rules.sign_in.lockout import Lockout
from app.rules.users.sign_up import is_domain_allowed, is_open

MOST_PER_NETWORK = 20
"""Accounts that one network may ask for in an hour: each one tells, by its sign-in, whether an address was free."""
MOST_PER_ADDRESS = 3
"""Mails in an hour that strangers can have sent to one mailbox."""
_WAITS = Lockout(MOST_PER_NETWORK, timedelta(hours=1), timedelta(minutes=1), timedelta(minutes=15))
_PER_ADDRESS = Lockout(MOST_PER_ADDRESS, timedelta(hours=1), timedelta(hours=1), timedelta(hours=1))


def require_open(organization: OrganizationSnapshot) -> None:
    """The organization lets people make accounts for themselves. Raises Forbidden."""
    if not organization.is_active or not is_open(organization.settings):
        raise Forbidden(
            sentence(
                "%(organization)s does not let people make accounts for themselves.",
                organization=organization.name,
            )
        )


def what_follows(organization: OrganizationSnapshot) -> Literal["mail", "administrator", "sign_in"]:
    """What whoever registered waits for: a link by mail, to be let in where there is no mail server, or nothing."""
    if not organization.settings["authentication"]["registration"]["verify_email"]:
        return "sign_in"
    return "mail" if letters.is_possible() else "administrator"


def register_user(
    organization: OrganizationSnapshot,
    *,
    email: str,
    name: str,
    password: str,
    address: str | None,
    request_id: str | None,
) -> None:
    """The person has asked for an account with the address, or has it where addresses are not verified.

    Nothing is told of whether somebody has one already (EN-1): the same work is done, the same is returned, and the
    password counts only for an account made now. Where ``authentication.registration.verify_email`` is on, the outbox
    goes on with it (``addresses.registrations``), and an address that was asked for too often in this hour is passed
    over in silence. Raises Forbidden where registration is not open, InvalidInput naming every wrong field,
    TooManyRequests, Unavailable. Audit, when the account is made here: ``user.registered`` or
    ``user.registration_refused``.
    """
    require_open(organization)
    found = Findings()
    parse_email_and_name({"email": email, "name": name}, found)
    if not found.touches("email") and not is_domain_allowed(email, organization.settings):
        found.add("email", "domain_not_allowed", "This organization takes other domains than this one.")
    found.raise_if_any()
    password_hash = hash_new_password(
        organization.settings,
        password,
        personal=(email, name, organization.name, organization.slug),
        organization_id=organization.id,
        address=address,
    )
    rate_limits.require_attempt_allowed(
        organization.id,
        "Too many accounts were made from your network.",
        *network_limits(_WAITS, address, "registration"),
    )
    if not organization.settings["authentication"]["registration"]["verify_email"]:
        _store(
            organization, email, name, password_hash, Actor.anonymous(organization.id, address, request_id)
        )
        return
    mailbox = Limit(bucket_key("registration address", canonical_email(email) or ""), _PER_ADDRESS)
    if not rate_limits.record_attempt(organization.id, mailbox).wait:
        enqueue_registration(
            organization.id,
            email=email,
            name=name,
            password_hash=password_hash,
            address=address,
            request_id=request_id,
        )


@transaction
def make_account(
    actor: Actor,
    organization: OrganizationSnapshot,
    *,
    email: str,
    name: str,
    password_hash: str,
    email_verified: bool,
) -> UUID:
    """Who registered has the account, with the organization's default roles; returns the user's id.

    Raises Conflict for an address that is taken. Audit: ``user.registered`` in the actor's name.
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
    audit.record(
        actor,
        "user.registered",
        target_type="user",
        target_id=public_id("usr", user_id),
        after={"email": email, "name": name, "email_verified": email_verified},
    )
    return user_id


@transaction
def _store(
    organization: OrganizationSnapshot, email: str, name: str, password_hash: str, stranger: Actor
) -> None:
    try:
        make_account(
            stranger,
            organization,
            email=email,
            name=name,
            password_hash=password_hash,
            email_verified=False,
        )
    except Conflict:
        audit.record(stranger, "user.registration_refused", target_type="user", after={"email": email})
