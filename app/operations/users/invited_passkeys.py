"""Accepting an invitation with a passkey, where the organization has disabled passwords.

The invited user has no account yet, so their WebAuthn user handle is derived from the invitation and stored
with the account.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import insert

from app.extensions import db
from app.models.second_factor import PasskeyHandle
from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_id
from app.operations.sign_in.passkey_registration import VerifiedPasskey, store_passkey, verify_new_passkey
from app.operations.sign_in.passkeys import INVITATION, get_relying_party, issue_challenge
from app.operations.sign_in.sign_in import Browser, SecondStepRequired, SignedIn, complete_first_factor
from app.operations.store import keyring
from app.operations.store.transactions import transaction
from app.operations.users.invitations import InvitationRecord, accept_invitation, is_passkey_sign_in_available
from app.rules.actor import Actor
from app.rules.errors import Conflict
from app.rules.sign_in.passkeys import creation_options, passkey_amr
from app.rules.users.sign_up import are_passwords_enabled


def begin_invited_passkey(
    actor: Actor, invitation: InvitationRecord, browser: Browser
) -> Mapping[str, Any] | None:
    """Return the passkey creation options as JSON for an invitation, or None if users choose a password.

    ``actor`` is the anonymous actor.
    """
    organization = get_organization_by_id(actor.organization_id)
    if are_passwords_enabled(organization.settings) or not is_passkey_sign_in_available(organization):
        return None
    return creation_options(
        get_relying_party(),
        issue_challenge(organization, INVITATION, browser.id, invitation.public_id),
        title=organization.settings["branding"]["display_name"] or organization.name,
        handle=_handle_of(organization, invitation),
        email=invitation.email,
        name=invitation.name,
        existing=(),
        passwordless=True,
    )


def accept_invitation_with_passkey(
    actor: Actor, invitation: InvitationRecord, token: str, response_json: str, name: str, browser: Browser
) -> SignedIn | SecondStepRequired:
    """Create the invited user with the passkey of the browser's response, and sign them in.

    ``actor`` is the anonymous actor. Raises InvalidPasskeyResponse, PasskeyNotVerified, InvalidChallenge,
    Conflict if the passkey cannot sign in alone or users choose passwords, and as ``accept_invitation``.
    Audit: as ``accept_invitation``, ``passkey.registered``, ``session.started``.
    """
    organization = get_organization_by_id(actor.organization_id)
    if are_passwords_enabled(organization.settings) or not is_passkey_sign_in_available(organization):
        raise Conflict("Choose a password to accept the invitation.", code="passwords_on")
    verified = verify_new_passkey(organization, INVITATION, invitation.public_id, response_json, "", browser)
    if not (verified.created.was_verified and verified.response.is_discoverable):
        raise Conflict(
            "You can't sign in with only this passkey. It didn't verify you, or it isn't stored on the "
            "device. Use another device.",
            code="passkey_not_alone",
        )
    return _accept(actor, organization, invitation, token, name, verified, browser)


@transaction
def _accept(
    actor: Actor,
    organization: OrganizationSnapshot,
    invitation: InvitationRecord,
    token: str,
    name: str,
    verified: VerifiedPasskey,
    browser: Browser,
) -> SignedIn | SecondStepRequired:
    user_id = accept_invitation(token, name=name, password_hash=None)
    _store_handle(organization, invitation, user_id)
    user_actor = Actor(
        "user",
        organization.id,
        organization.id,
        user_id=user_id,
        label=invitation.email,
        ip_address=actor.ip_address,
        request_id=actor.request_id,
    )
    store_passkey(user_actor, organization, user_id, verified)
    amr = passkey_amr(may_sync=verified.created.may_sync, passwordless=True)
    return complete_first_factor(actor, organization, user_id, amr=amr, browser=browser)


def _store_handle(organization: OrganizationSnapshot, invitation: InvitationRecord, user_id: UUID) -> None:
    handle = _handle_of(organization, invitation)
    db.session.execute(
        insert(PasskeyHandle).values(organization_id=organization.id, user_id=user_id, handle=handle)
    )


def _handle_of(organization: OrganizationSnapshot, invitation: InvitationRecord) -> str:
    """Return 256 bits that reveal nothing about the user (MF-5) and are constant for the invitation."""
    key = keyring.derive_organization_key(organization.id, "passkey handles of invitations")
    made = hmac.new(key, invitation.id.bytes, hashlib.sha256).digest()
    return urlsafe_b64encode(made).rstrip(b"=").decode()
