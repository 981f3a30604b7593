"""Which events of the audit log concern the safety of an account, in the words that its owner reads."""

from __future__ import annotations

from collections.abc import Mapping

from app.rules.languages.sentences import sentence

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
