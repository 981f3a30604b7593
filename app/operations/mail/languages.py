"""The language of an email: the recipient's, or the organization's default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.directory.users import find_user_by_email
from app.rules.languages.choice import language_for


def language_of(organization: OrganizationSnapshot, profile: Mapping[str, Any]) -> str:
    """Return the language of an email to the user with this profile."""
    return language_for(
        own=profile.get("locale"), default=organization.settings["localization"]["default_locale"]
    )


def language_of_address(organization: OrganizationSnapshot, address: str) -> str:
    """Return the language of an email to an address, whether or not a user of the organization has it."""
    user = find_user_by_email(organization.id, address)
    return language_of(organization, user.profile if user is not None else {})
