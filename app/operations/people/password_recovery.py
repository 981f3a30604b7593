"""Password recovery: a person asks for a reset link by mail, and nobody learns whether there is such an account.

Whoever asks is answered before anybody looks: the question goes into the outbox as it came, and the dispatcher finds
the account and writes the mail (EN-1).
"""

from __future__ import annotations

from datetime import timedelta

from app.operations import audit
from app.operations.directory import OrganizationView, organization_by_id
from app.operations.mail.sealed_payloads import open_payload, seal_payload
from app.operations.people import attempts
from app.operations.people.attempts import Limit, bucket_of, limits_of_networks
from app.operations.people.password_resets import is_mailable, make_reset, reset_address, send_reset
from app.operations.people.users import find_user_by_email
from app.operations.transaction import transaction
from app.operations.upkeep import outbox
from app.operations.upkeep.outbox import Message, Refused
from app.rules.actor import Actor
from app.rules.errors import Forbidden, InvalidInput, NotFound
from app.rules.people.emails import canonical_email
from app.rules.people.lockout import Lockout

KIND = "password_recovery"
MOST_PER_NETWORK = 20
MOST_PER_ACCOUNT = 3
"""Mails in an hour that strangers can have sent to one mailbox; each also ends the link before."""
_PER_NETWORK = Lockout(MOST_PER_NETWORK, timedelta(hours=1), timedelta(minutes=1), timedelta(minutes=15))
_PER_ACCOUNT = Lockout(MOST_PER_ACCOUNT, timedelta(hours=1), timedelta(hours=1), timedelta(hours=1))


def register() -> None:
    """The outbox answers those who forgot their password."""
    outbox.register_delivery(KIND, answer, receiver_type="recovery")


def is_offered(organization: OrganizationView) -> bool:
    """Whether a forgotten password can be reset by mail here."""
    has_passwords = organization.settings["authentication"]["password"]["enabled"]
    return bool(organization.is_active and has_passwords and is_mailable(organization))


def request_reset(
    organization: OrganizationView, email: str, *, address: str | None, request_id: str | None
) -> None:
    """If there is an account with the address, its mailbox gets a reset link.

    The same is done and returned for any address (EN-1), and an account that was asked for too often in this hour is
    passed over in silence. Raises Forbidden where it is not offered, InvalidInput for what can be no address,
    TooManyRequests for the network.
    """
    if not is_offered(organization):
        raise Forbidden("Ask an administrator for a link to choose a new password.")
    canonical = canonical_email(email)
    if canonical is None:
        raise InvalidInput("This is not an e-mail address.", field="email", code="invalid_email")
    networks = limits_of_networks(_PER_NETWORK, address, "recovery network")
    attempts.require_attempt(
        organization.id, "Too many people of your network forgot their password.", *networks
    )
    account = Limit(bucket_of("recovery account", canonical), _PER_ACCOUNT)
    if not attempts.claim_attempt(organization.id, account).wait:
        _ask(organization, canonical, address, request_id)


@transaction
def _ask(organization: OrganizationView, canonical: str, address: str | None, request_id: str | None) -> None:
    values = {"email": canonical, "address": address, "request_id": request_id}
    outbox.enqueue(organization.id, KIND, seal_payload(organization.id, KIND, values), receiver="recovery")


@transaction
def answer(message: Message) -> None:
    """The account's owner, if there is one, gets a link. Audit: ``user.password_reset_requested``.

    Raises Refused when the organization has gone or does not offer it any more.
    """
    try:
        organization = organization_by_id(message.organization_id)
    except NotFound:
        raise Refused("its organization is gone") from None
    if not is_offered(organization):
        raise Refused("it is not offered any more")
    asked = open_payload(organization.id, KIND, message.payload)
    user = find_user_by_email(organization.id, asked["email"])
    if user is None or not user.is_active:
        return
    token, expires_at = make_reset(organization, user.id, is_mailed=True)
    send_reset(organization, user.email, reset_address(organization, token), expires_at)
    stranger = Actor.anonymous(organization.id, asked["address"], asked["request_id"])
    audit.record(stranger, "user.password_reset_requested", target_type="user", target_id=user.public_id)
