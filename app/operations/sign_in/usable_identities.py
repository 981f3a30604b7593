"""Whether users have linked accounts at identity providers, and whether they could sign in, with them or otherwise."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import ColumnElement, select

from app.models.base import is_same
from app.models.identity_provider import IdentityProvider, LinkedIdentity
from app.models.user import ACTIVE, User
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import UserSnapshot
from app.operations.mail import emails
from app.operations.sign_in.passkeys import has_passwordless_passkey, is_passkey_sign_in_available
from app.operations.store.rows import has_rows
from app.operations.store.transactions import read
from app.rules.sign_in.identity_providers import ENABLED


@read
def has_linked_identities(organization_id: str, provider_id: UUID) -> bool:
    """Return whether any user has linked an account of the provider."""
    return has_rows(
        select(LinkedIdentity.id).where(
            LinkedIdentity.organization_id == organization_id, LinkedIdentity.provider_id == provider_id
        )
    )


@read
def has_usable_identity(organization_id: str, user_id: UUID) -> bool:
    """Return whether the user could sign in with an enabled identity provider."""
    return _exists(LinkedIdentity.user_id == user_id, organization_id)


@read
def can_sign_in(organization: OrganizationSnapshot, user: UserSnapshot) -> bool:
    """Return whether the user has a way to sign in. Without a password, a link by email can set one."""
    authentication = organization.settings["authentication"]
    can_reset = user.email_verified and authentication["recovery"]["password_reset"] and emails.is_possible()
    if authentication["password"]["enabled"] and (user.has_password or can_reset):
        return True
    if is_passkey_sign_in_available(organization) and has_passwordless_passkey(organization.id, user.id):
        return True
    return has_usable_identity(organization.id, user.id)


@read
def any_user_has_usable_identity(organization_id: str) -> bool:
    """Return whether any active user of the organization could sign in with an enabled identity provider."""
    return _exists(User.status == ACTIVE, organization_id)


def _exists(condition: ColumnElement[bool], organization_id: str) -> bool:
    return has_rows(
        select(LinkedIdentity.id)
        .join(IdentityProvider, is_same(IdentityProvider.id, LinkedIdentity.provider_id))
        .join(User, is_same(User.id, LinkedIdentity.user_id))
        .where(
            LinkedIdentity.organization_id == organization_id, IdentityProvider.status == ENABLED, condition
        )
    )
