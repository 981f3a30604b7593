"""The actor's own profile, whose claims apps may receive (OpenID Connect Core 5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.models.user import User
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.users import UserSnapshot, get_user, update_user_row
from app.operations.store import audit
from app.operations.store.transactions import OutdatedRead, transaction
from app.rules.actor import Actor
from app.rules.directory.attributes import attributes_of, validate_attributes
from app.rules.errors import Busy, Forbidden, PreconditionFailed
from app.rules.fields import ValidationErrors, text_problem
from app.rules.users.profile import MAX_NAME_LENGTH, validate_profile


def can_change_profile(actor: Actor) -> bool:
    """Return whether the organization lets the actor change their profile."""
    settings = get_organization_by_id(actor.organization_id).settings
    return bool(settings["user_permissions"]["members_can_edit_profile"]) or actor.has_permission(
        "users:write"
    )


@transaction
def change_profile(
    actor: Actor,
    *,
    name: str,
    profile: Mapping[str, Any],
    attributes: Mapping[str, Any] | None = None,
    expected_version: int | None = None,
) -> UserSnapshot:
    """Replace the actor's own name and profile, and the attributes that users may edit.

    Claims left out are removed.

    Raises Forbidden if members may not change their profile, InvalidInput naming every wrong claim,
    PreconditionFailed if the user no longer has the ``expected_version``, Conflict after a concurrent change.
    Audit: ``user.updated`` with what differs.
    """
    user_id = actor.require_own_account()
    if not can_change_profile(actor):
        raise Forbidden(
            "Your organization doesn't let members change their profile. Contact your administrator."
        )
    name = name.strip()
    user = get_user(actor.organization_id, user_id)
    errors = ValidationErrors()
    errors.add_problem("name", text_problem(name, max_length=MAX_NAME_LENGTH))
    claims = validate_profile(profile, errors)
    kept = dict(user.attributes)
    if attributes is not None:
        definitions = attributes_of(get_organization_by_id(actor.organization_id).settings)
        kept = validate_attributes(definitions, attributes, user.attributes, errors, by_user=True)
    errors.raise_if_any()
    current = {"name": user.name, **user.profile, "attributes": dict(user.attributes)}
    new = {"name": name, **claims, "attributes": kept}
    changed = sorted(key for key in {*current, *new} if current.get(key) != new.get(key))
    if not changed:
        return user
    if expected_version not in (None, user.version):
        raise PreconditionFailed("The user was changed since you loaded it. Reload the user and try again.")
    is_stored = update_user_row(
        actor.organization_id,
        user.id,
        User.version == user.version,
        name=name,
        profile=claims,
        attributes=kept,
    )
    if not is_stored:
        raise OutdatedRead(Busy("Your profile was changed at the same time. Check it and try again."))
    audit.record_user_event(
        actor,
        "user.updated",
        user.id,
        before={key: current.get(key) for key in changed},
        after={key: new.get(key) for key in changed},
    )
    return get_user(actor.organization_id, user.id)
