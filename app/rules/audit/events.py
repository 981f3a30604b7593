"""Event types: what webhooks may be told. The names are public and stay; what each is about stands beside it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.rules.languages.sentences import sentence

TEST = "webhook.test"
"""What an endpoint is told when somebody tries it out; it cannot be chosen."""

EVENT_TYPES: Mapping[str, str] = {
    "administrator.added": "Somebody got a role in the organization.",
    "administrator.removed": "Somebody lost a role in the organization.",
    "browser.forgotten": "A browser that was known is asked anew.",
    "client.deleted": "A client was deleted, with its secrets and tokens.",
    "client.registered": "A client was registered, by a person or by itself.",
    "client.updated": "A client was changed.",
    "client_request.approved": "A member's request for an app was approved.",
    "client_request.created": "A member asked for an app.",
    "client_request.declined": "A member's request for an app was declined.",
    "code.replayed": "An authorization code came twice; what it gave was revoked.",
    "consent.denied": "A person denied a client access.",
    "consent.given": "A person allowed a client access.",
    "consent.withdrawn": "A person took a client's access away.",
    "credential.created": "A client got a secret.",
    "credential.kept": "A secret that was to end keeps working.",
    "credential.leaked": "A secret or token was reported as leaked and is dead since.",
    "credential.retired": "A secret got an end.",
    "credential.revealed": "Somebody viewed a secret.",
    "credential.revoked": "A secret was revoked.",
    "credential.tokens_revoked": "The tokens of a secret that had ended were revoked.",
    "device_code.allowed": "A person let a device in.",
    "device_code.denied": "A person turned a device away.",
    "grant.created": "A person signed in to a client.",
    "grant.revoked": "What a person allowed a client was ended by somebody else.",
    "invitation.accepted": "Somebody accepted an invitation.",
    "invitation.created": "Somebody was invited.",
    "invitation.revoked": "An invitation was withdrawn.",
    "mail.refused": "The mail server refused a letter for good.",
    "organization.exported": "The organization was written into a file.",
    "organization.restored": "The organization was deleted and is back.",
    "organization.resumed": "The organization works again.",
    "organization.suspended": "The organization was suspended; told once it works again.",
    "organization.updated": "The organization was renamed.",
    "passkey.counter_went_back": "A passkey may have been copied: its counter went back.",
    "passkey.registered": "A person added a passkey.",
    "passkey.removed": "A passkey was removed.",
    "passkey.renamed": "A passkey was renamed.",
    "recovery_code.used": "A recovery code was used.",
    "recovery_codes.renewed": "A person made new recovery codes.",
    "refresh_token.reused": "A refresh token came twice; the app lost its access.",
    "registration_token.created": "An initial access token was made.",
    "registration_token.revoked": "An initial access token was revoked.",
    "resource.defined": "An API was defined.",
    "resource.deleted": "An API was deleted.",
    "resource.updated": "An API was changed.",
    "scope.added": "A scope was added.",
    "scope.updated": "The words of a scope were changed.",
    "second_factor.added": "A person added a second factor.",
    "second_factor.failed": "A second factor was wrong.",
    "second_factor.removed": "A second factor was removed.",
    "second_factors.ended": "The first proof of an address ended the second factors from before.",
    "second_factors.reset": "An administrator reset a person's second factors.",
    "session.ended": "A person signed out.",
    "session.others_ended": "A person signed out everywhere else.",
    "session.started": "A person signed in.",
    "settings.updated": "The settings were changed.",
    "sign_in.failed": "Somebody failed to sign in.",
    "sign_in.first_proof_given": "The first proof of a sign-in was given; the second is awaited.",
    "signing_key.activated": "A key began to sign.",
    "signing_key.created": "A signing key was made.",
    "signing_key.removed": "A signing key was removed.",
    "signing_key.retired": "A signing key was retired.",
    "token.exchanged": "A client exchanged a token for another.",
    "token.revoked": "A token was revoked.",
    "tokens.revoked": "Tokens of a client, a user, a secret or everybody were revoked, up to a moment.",
    "user.created": "An account was made by an administrator.",
    "user.deleted": "An account was deleted.",
    "user.disabled": "An account was disabled.",
    "user.email_changed": "A person changed the e-mail address.",
    "user.email_proof_requested": "A link that proves an e-mail address was asked for.",
    "user.email_verified": "A person proved the e-mail address.",
    "user.enabled": "An account may be used again.",
    "user.password_changed": "A person changed the password.",
    "user.password_reset": "A person chose a new password by a link.",
    "user.password_reset_requested": "A link for a new password was asked for.",
    "user.registered": "A person made an account.",
    "user.registration_refused": "Somebody asked for an account with an address that has one.",
    "user.signed_out": "An administrator signed a person out everywhere.",
    "user.updated": "A profile was changed.",
    "user_import.cancelled": "An import of users was cancelled.",
    "user_import.ended": "An import of users ended.",
    "user_import.failed": "An import of users failed.",
    "user_import.started": "An import of users began.",
    "webhook.created": "A webhook was added.",
    "webhook.deleted": "A webhook was deleted.",
    "webhook.disabled": "A webhook was disabled because it could not be reached.",
    "webhook.secret_rotated": "A webhook got a new signing secret.",
    "webhook.updated": "A webhook was changed.",
}
_OF_ACTIONS: Mapping[str, str] = {"secret.leak_reported": "credential.leaked"}
EVERYTHING = "*"
GROUPS = tuple(sorted({f"{name.split('.')[0]}.*" for name in EVENT_TYPES}))
CHOICES = (EVERYTHING, *GROUPS, *EVENT_TYPES)


def type_of_action(action: str) -> str | None:
    """The event type that an action of the audit log is told as, or None when webhooks do not hear of it."""
    name = _OF_ACTIONS.get(action, action)
    return name if name in EVENT_TYPES else None


def action_of_type(event_type: str) -> str:
    """The action of the audit log that the event type tells of."""
    return next((action for action, name in _OF_ACTIONS.items() if name == event_type), event_type)


def is_chosen(event_type: str, chosen: Collection[str]) -> bool:
    """Whether the names, groups and ``*`` that were chosen include the event type."""
    return event_type in chosen or EVERYTHING in chosen or f"{event_type.split('.')[0]}.*" in chosen


ACCOUNT_EVENTS: Mapping[str, str] = {
    "session.started": sentence("Signed in"),
    "session.ended": sentence("Signed out"),
    "session.others_ended": sentence("Signed out everywhere else"),
    "sign_in.failed": sentence("A sign-in failed"),
    "second_factor.failed": sentence("A second factor was wrong"),
    "second_factor.added": sentence("A second factor was added"),
    "second_factor.removed": sentence("A second factor was removed"),
    "second_factors.ended": sentence("Second factors from before the address was confirmed have ended"),
    "second_factors.reset": sentence("The second factors were reset"),
    "recovery_code.used": sentence("A recovery code was used"),
    "recovery_codes.renewed": sentence("New recovery codes were made"),
    "passkey.registered": sentence("A passkey was added"),
    "passkey.removed": sentence("A passkey was removed"),
    "passkey.renamed": sentence("A passkey was renamed"),
    "passkey.counter_went_back": sentence("A passkey looked like a copy"),
    "browser.forgotten": sentence("A known browser was forgotten"),
    "user.password_changed": sentence("The password was changed"),
    "user.password_reset_requested": sentence("A link for a new password was asked for"),
    "user.password_reset": sentence("The password was reset by a link"),
    "user.email_changed": sentence("The e-mail address was changed"),
    "user.email_verified": sentence("The e-mail address was confirmed"),
    "user.updated": sentence("The profile was changed"),
    "user.disabled": sentence("The account was disabled"),
    "user.enabled": sentence("The account was let in again"),
    "user.signed_out": sentence("Signed out everywhere"),
    "user.registered": sentence("The account was made"),
    "user.created": sentence("The account was made"),
    "user.imported": sentence("The account was made"),
    "tokens.revoked": sentence("Everything that apps held was revoked"),
    "consent.given": sentence("An app was allowed in"),
    "consent.denied": sentence("An app was refused"),
    "consent.withdrawn": sentence("An app’s access was removed"),
}
# What the owner should look at: nobody does these by accident every day.
ALARMING = frozenset(
    {
        "sign_in.failed",
        "second_factor.failed",
        "recovery_code.used",
        "second_factors.ended",
        "second_factors.reset",
        "passkey.counter_went_back",
    }
)


@dataclass(frozen=True, slots=True)
class Change:
    """One field. ``is_new``: it was not there before, which is more than ``null``; ``is_gone``: it is not any more."""

    path: str
    before: Any
    after: Any
    is_new: bool
    is_gone: bool


def changes_between(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> tuple[Change, ...]:
    """The fields that differ, sorted by path (``oauth.require_par``); a list is one value."""
    old, new = dict(_leaves(before or {})), dict(_leaves(after or {}))
    return tuple(
        Change(path, old.get(path), new.get(path), path not in old, path not in new)
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
    # To Python true is 1; in a document it is not.
    return type(one) is type(other) and one == other
