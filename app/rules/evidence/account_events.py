"""Which events of the audit log concern the safety of an account, in the words that its owner reads."""

from __future__ import annotations

from collections.abc import Mapping

ACCOUNT_EVENTS: Mapping[str, str] = {
    "session.started": "Signed in",
    "session.ended": "Signed out",
    "session.others_ended": "Signed out everywhere else",
    "sign_in.failed": "A sign-in failed",
    "second_factor.failed": "A second factor was wrong",
    "second_factor.added": "A second factor was added",
    "second_factor.removed": "A second factor was removed",
    "second_factors.reset": "The second factors were reset",
    "recovery_code.used": "A recovery code was used",
    "recovery_codes.renewed": "New recovery codes were made",
    "passkey.registered": "A passkey was added",
    "passkey.removed": "A passkey was removed",
    "passkey.renamed": "A passkey was renamed",
    "passkey.counter_went_back": "A passkey looked like a copy",
    "browser.forgotten": "A known browser was forgotten",
    "user.password_changed": "The password was changed",
    "user.password_reset_requested": "A link for a new password was asked for",
    "user.password_reset": "The password was reset by a link",
    "user.email_changed": "The e-mail address was changed",
    "user.email_verified": "The e-mail address was confirmed",
    "user.updated": "The profile was changed",
    "user.disabled": "The account was disabled",
    "user.enabled": "The account was let in again",
    "user.signed_out": "Signed out everywhere",
    "user.registered": "The account was made",
    "user.created": "The account was made",
    "tokens.revoked": "Everything that apps held was revoked",
    "consent.given": "An app was allowed in",
    "consent.denied": "An app was refused",
    "consent.withdrawn": "An app’s access was removed",
}
# What the owner should look at: nobody does these by accident every day.
ALARMING = frozenset(
    {
        "sign_in.failed",
        "second_factor.failed",
        "recovery_code.used",
        "second_factors.reset",
        "passkey.counter_went_back",
    }
)
