"""Events: their types for webhooks and account activity, changed fields, and the MACs of the audit chain.

Names of event types are public and stable.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct

from app.rules.languages.translation import lazy_gettext

TEST_EVENT = "webhook.test"
"""The event of a test delivery. Webhooks cannot subscribe to it."""

EVENT_TYPES: Mapping[str, str] = {
    "administrator.added": lazy_gettext("A user was given a role in the organization."),
    "administrator.removed": lazy_gettext("A user's role in the organization was removed."),
    "app_role.assigned": lazy_gettext("A user or group was given a role in a client."),
    "app_role.removed": lazy_gettext("A role in a client was taken from a user or group."),
    "browser.forgotten": lazy_gettext("A recognized browser was removed."),
    "client.deleted": lazy_gettext("A client was deleted with its secrets and tokens."),
    "client.registered": lazy_gettext("A client was registered by a user or dynamically."),
    "client.updated": lazy_gettext("A client was changed."),
    "client_access.cancelled": lazy_gettext("A request for access to an API was cancelled."),
    "client_access.declined": lazy_gettext("A request for access to an API was declined."),
    "client_access.granted": lazy_gettext("A client was given access to an API."),
    "client_access.requested": lazy_gettext("A developer requested access to an API for a client."),
    "client_access.withdrawn": lazy_gettext("The access of a client to an API was withdrawn."),
    "client_request.approved": lazy_gettext("A member's request for a client was approved."),
    "client_request.created": lazy_gettext("A member asked for approval of a client."),
    "client_request.declined": lazy_gettext("A member's request for a client was declined."),
    "code.replayed": lazy_gettext(
        "An authorization code was used twice, and the tokens issued for it were revoked."
    ),
    "consent.denied": lazy_gettext("A user denied access to a client."),
    "consent.given": lazy_gettext("A user allowed access to a client."),
    "consent.withdrawn": lazy_gettext("A user or an administrator withdrew access from a client."),
    "credential.confirmed": lazy_gettext(
        "A client secret from before a restore of a backup was allowed again."
    ),
    "credential.created": lazy_gettext("A client secret was created."),
    "credential.kept": lazy_gettext("The expiry of a client secret was cancelled."),
    "credential.leaked": lazy_gettext("A secret or token was reported as leaked and revoked."),
    "credential.retired": lazy_gettext("A client secret was scheduled to expire."),
    "credential.revealed": lazy_gettext("A client secret was viewed."),
    "credential.revoked": lazy_gettext("A client secret was revoked."),
    "credential.tokens_revoked": lazy_gettext(
        "The tokens issued with an expired or revoked secret were revoked."
    ),
    "device_code.allowed": lazy_gettext("A user approved a device."),
    "device_code.denied": lazy_gettext("A user denied a device."),
    "grant.created": lazy_gettext("A user signed in to a client."),
    "grant.revoked": lazy_gettext("A user's grant to a client was revoked by someone else."),
    "group.created": lazy_gettext("A group was created."),
    "group.deleted": lazy_gettext("A group was deleted with its memberships and roles in apps."),
    "group.member_added": lazy_gettext("A user was added to a group."),
    "group.member_removed": lazy_gettext("A user was removed from a group."),
    "group.updated": lazy_gettext("A group was changed."),
    "identity.linked": lazy_gettext("A user linked an account at an identity provider."),
    "identity.unlinked": lazy_gettext("A linked account at an identity provider was removed."),
    "identity_provider.created": lazy_gettext("An identity provider was added."),
    "identity_provider.deleted": lazy_gettext("An identity provider was deleted with its links to users."),
    "identity_provider.failed": lazy_gettext(
        "A sign-in failed because an identity provider or its configuration is wrong."
    ),
    "identity_provider.updated": lazy_gettext("An identity provider was changed."),
    "invitation.accepted": lazy_gettext("An invitation was accepted."),
    "invitation.created": lazy_gettext("A user was invited."),
    "invitation.revoked": lazy_gettext("An invitation was revoked."),
    "mail.delayed": lazy_gettext(
        "Emails wait, because the organization has sent as many as it may in an hour."
    ),
    "mail.refused": lazy_gettext("The mail server permanently rejected an email."),
    "mail.tested": lazy_gettext("An instance administrator sent a test email."),
    "organization.exported": lazy_gettext("The organization was exported to a file."),
    "organization.restored": lazy_gettext("The organization was restored after deletion."),
    "organization.resumed": lazy_gettext("The organization was resumed."),
    "organization.suspended": lazy_gettext("The organization was suspended. Sent after it is resumed."),
    "organization.updated": lazy_gettext("The organization was renamed."),
    "passkey.counter_went_back": lazy_gettext(
        "The signature counter of a passkey decreased, so it may have been cloned."
    ),
    "passkey.registered": lazy_gettext("A user added a passkey."),
    "passkey.removed": lazy_gettext("A passkey was removed."),
    "passkey.renamed": lazy_gettext("A passkey was renamed."),
    "playground.request_sent": lazy_gettext("A developer sent a request as a client in the playground."),
    "playground.started": lazy_gettext("A developer began to try a client in the playground."),
    "provisioning_token.created": lazy_gettext("A provisioning token of an identity provider was created."),
    "provisioning_token.deleted": lazy_gettext("A provisioning token of an identity provider was deleted."),
    "recovery_code.used": lazy_gettext("A recovery code was used."),
    "recovery_codes.renewed": lazy_gettext("A user generated new recovery codes."),
    "refresh_token.reused": lazy_gettext("A refresh token was reused, and the grant was revoked."),
    "registration_token.created": lazy_gettext("An initial access token was created."),
    "registration_token.revoked": lazy_gettext("An initial access token was revoked."),
    "resource.defined": lazy_gettext("An API was added."),
    "resource.deleted": lazy_gettext("An API was deleted."),
    "resource.updated": lazy_gettext("An API was changed."),
    "scope.added": lazy_gettext("A scope was added."),
    "scope.deleted": lazy_gettext("A scope was deleted."),
    "scope.updated": lazy_gettext("The description of a scope was changed."),
    "second_factor.added": lazy_gettext("A user added a verification method."),
    "second_factor.failed": lazy_gettext("An incorrect verification code or passkey was used."),
    "second_factor.removed": lazy_gettext("A verification method was removed."),
    "second_factors.ended": lazy_gettext("Verifying the email address removed earlier verification methods."),
    "second_factors.reset": lazy_gettext("An administrator reset a user's two-step verification."),
    "session.ended": lazy_gettext("A user signed out."),
    "session.ended_by_provider": lazy_gettext("A user signed out at an identity provider."),
    "session.others_ended": lazy_gettext("A user signed out of all other sessions."),
    "session.started": lazy_gettext("A user signed in."),
    "settings.updated": lazy_gettext("The settings were changed."),
    "sign_in.failed": lazy_gettext("A sign-in failed."),
    "sign_in.first_proof_given": lazy_gettext(
        "The first step of a sign-in succeeded, and the second is pending."
    ),
    "signing_key.activated": lazy_gettext("A signing key was activated."),
    "signing_key.created": lazy_gettext("A signing key was created."),
    "signing_key.removed": lazy_gettext("A signing key was removed."),
    "signing_key.retired": lazy_gettext("A signing key was retired."),
    "token.exchanged": lazy_gettext("A client exchanged a token."),
    "token.revoked": lazy_gettext("A token was revoked."),
    "tokens.revoked": lazy_gettext(
        "Tokens of a client, user, secret or organization were revoked up to a point in time."
    ),
    "user.created": lazy_gettext("An administrator created a user."),
    "user.deleted": lazy_gettext("A user was deleted."),
    "user.disabled": lazy_gettext("A user was disabled."),
    "user.email_changed": lazy_gettext("A user changed their email address."),
    "user.email_proof_requested": lazy_gettext("A link to verify an email address was requested."),
    "user.email_verified": lazy_gettext("A user verified their email address."),
    "user.enabled": lazy_gettext("A user was enabled."),
    "user.password_changed": lazy_gettext("A user changed their password."),
    "user.password_reset": lazy_gettext("A user reset their password with a link."),
    "user.password_reset_requested": lazy_gettext("A password reset link was requested."),
    "user.registered": lazy_gettext("A user signed up."),
    "user.registration_refused": lazy_gettext("A sign-up used an email address that already has an account."),
    "user.signed_out": lazy_gettext("An administrator signed a user out of all sessions."),
    "user.updated": lazy_gettext("A user's profile was changed."),
    "user_import.cancelled": lazy_gettext("An import of users was cancelled."),
    "user_import.ended": lazy_gettext("An import of users finished."),
    "user_import.failed": lazy_gettext("An import of users failed."),
    "user_import.started": lazy_gettext("An import of users started."),
    "webhook.created": lazy_gettext("A webhook was created."),
    "webhook.deleted": lazy_gettext("A webhook was deleted."),
    "webhook.disabled": lazy_gettext("A webhook was disabled because its endpoint could not be reached."),
    "webhook.secret_rotated": lazy_gettext("The signing secret of a webhook was rotated."),
    "webhook.updated": lazy_gettext("A webhook was changed."),
}
_EVENT_TYPES_OF_ACTIONS: Mapping[str, str] = {"secret.leak_reported": "credential.leaked"}
ALL_EVENTS = "*"
GROUPS = tuple(sorted({f"{name.split('.')[0]}.*" for name in EVENT_TYPES}))
SUBSCRIPTION_CHOICES = (ALL_EVENTS, *GROUPS, *EVENT_TYPES)


def event_type_for_action(action: str) -> str | None:
    """Return the event type for an audit action, or None if webhooks do not receive it."""
    name = _EVENT_TYPES_OF_ACTIONS.get(action, action)
    return name if name in EVENT_TYPES else None


def action_for_event_type(event_type: str) -> str:
    """Return the audit action of the event type."""
    return next(
        (action for action, name in _EVENT_TYPES_OF_ACTIONS.items() if name == event_type), event_type
    )


def is_subscribed(event_type: str, chosen: Collection[str]) -> bool:
    """Return whether the chosen names, groups and ``*`` include the event type."""
    return event_type in chosen or ALL_EVENTS in chosen or f"{event_type.split('.')[0]}.*" in chosen


ACCOUNT_EVENTS: Mapping[str, str] = {
    "session.started": lazy_gettext("Signed in"),
    "session.ended": lazy_gettext("Signed out"),
    "session.ended_by_provider": lazy_gettext("Signed out at an identity provider"),
    "session.others_ended": lazy_gettext("Signed out everywhere else"),
    "sign_in.failed": lazy_gettext("Sign-in failed"),
    "second_factor.failed": lazy_gettext("An incorrect verification code was entered"),
    "second_factor.added": lazy_gettext("A verification method was added"),
    "second_factor.removed": lazy_gettext("A verification method was removed"),
    "second_factors.ended": lazy_gettext(
        "Verification methods set up before the email was verified were removed"
    ),
    "second_factors.reset": lazy_gettext("Two-step verification was reset"),
    "recovery_code.used": lazy_gettext("A recovery code was used"),
    "recovery_codes.renewed": lazy_gettext("New recovery codes were created"),
    "passkey.registered": lazy_gettext("A passkey was added"),
    "passkey.removed": lazy_gettext("A passkey was removed"),
    "passkey.renamed": lazy_gettext("A passkey was renamed"),
    "passkey.counter_went_back": lazy_gettext("A passkey was rejected because it may have been copied"),
    "browser.forgotten": lazy_gettext("A recognized browser was removed"),
    "identity.linked": lazy_gettext("An account at an identity provider was linked"),
    "identity.unlinked": lazy_gettext("An account at an identity provider was unlinked"),
    "user.password_changed": lazy_gettext("The password was changed"),
    "user.password_reset_requested": lazy_gettext("A password reset was requested"),
    "user.password_reset": lazy_gettext("The password was reset with a link"),
    "user.email_changed": lazy_gettext("The email address was changed"),
    "user.email_verified": lazy_gettext("The email address was verified"),
    "user.updated": lazy_gettext("The profile was changed"),
    "user.disabled": lazy_gettext("The account was disabled"),
    "user.enabled": lazy_gettext("The account was enabled again"),
    "user.signed_out": lazy_gettext("Signed out everywhere"),
    "user.registered": lazy_gettext("The account was created"),
    "user.created": lazy_gettext("The account was created"),
    "user.imported": lazy_gettext("The account was created"),
    "tokens.revoked": lazy_gettext("Access of all apps was revoked"),
    "consent.given": lazy_gettext("Access was granted to an app"),
    "consent.denied": lazy_gettext("Access was denied to an app"),
    "consent.withdrawn": lazy_gettext("An app's access was removed"),
}
# Events that the owner of the account should check.
SUSPICIOUS_EVENTS = frozenset(
    {
        "sign_in.failed",
        "second_factor.failed",
        "recovery_code.used",
        "second_factors.ended",
        "second_factors.reset",
        "passkey.counter_went_back",
    }
)


class FieldChange(Struct, frozen=True):
    """A changed field. ``is_new``: it did not exist before. ``is_gone``: it no longer exists."""

    path: str
    before: Any
    after: Any
    is_new: bool
    is_gone: bool


def diff_documents(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> tuple[FieldChange, ...]:
    """Return the fields that differ, sorted by path (``oauth.require_par``). A list counts as one value."""
    old, new = dict(_leaves(before or {})), dict(_leaves(after or {}))
    return tuple(
        FieldChange(path, old.get(path), new.get(path), path not in old, path not in new)
        for path in sorted(old.keys() | new.keys())
        if path not in old or path not in new or not _is_same(old[path], new[path])
    )


def _leaves(document: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        path = f"{above}{name}"
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{path}.")
        else:
            yield path, value


def _is_same(one: Any, other: Any) -> bool:
    # In Python True equals 1, but not in JSON.
    return type(one) is type(other) and one == other


GENESIS = bytes(32)
"""The MAC before the first link."""

AUDIT_LOGGER = "gatehouse.audit"
CHECKPOINT_PATTERN = r"audit checkpoint ([0-9a-z]{8}) ([1-9][0-9]*) ([0-9a-f]{64})"
"""A log line with the state of a chain: organization key, position, and MAC of the link at that position."""

# Descriptions of the problems for users.
PROBLEMS: Mapping[str, str] = {
    "changed": "The event was changed after it was sealed.",
    "missing": "The sealed event is missing.",
    "link_missing": "A link of the chain is missing.",
    "truncated": "The end of the chain is missing.",
    "rolled_back": "The chain lacks events that this server has sealed: the database was put back to an earlier state.",
    "head_changed": "The end of the chain was changed without the key.",
    "chain_missing": "The organization has no chain.",
    "inserted": "The event was added long after its stated time.",
}


def serialize_event(event: Mapping[str, Any]) -> bytes:
    """Serialize an event with every column in one canonical form."""
    return json.dumps(event, default=_plain, sort_keys=True, separators=(",", ":")).encode()


def link_mac(key: bytes, before: bytes, position: int, event: bytes) -> bytes:
    """Return the MAC of the link at the position, beginning with 1. ``before`` is the MAC of the previous link or
    GENESIS.
    """
    return hmac.digest(key, before + position.to_bytes(8, "big") + event, "sha256")


def head_mac(key: bytes, *, length: int, head: bytes, removed: int, anchor: bytes) -> bytes:
    """Return the MAC over both ends of the chain, so that only a holder of the key can move them."""
    ends = b"head" + length.to_bytes(8, "big") + head + removed.to_bytes(8, "big") + anchor
    return hmac.digest(key, ends, "sha256")


def format_checkpoint(organization_id: str, position: int, mac: bytes) -> str:
    """Return a line that matches CHECKPOINT_PATTERN. Stored outside the database, it reveals even a fully restored
    chain.
    """
    return f"audit checkpoint {organization_id} {position} {mac.hex()}"


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, UUID):
        return value.hex
    raise TypeError(f"an event cannot contain {type(value).__name__}")
