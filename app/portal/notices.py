"""Notices: what a page says after something was done. Keys travel in the address, so that none can be made up."""

from __future__ import annotations

_TEXTS = {
    "saved": "Saved. It is live now.",
    "api-defined": "The API is defined. Clients may ask for it now.",
    "api-deleted": "The API is deleted. Its scopes are gone from every client.",
    "unchanged": "Nothing was different, so nothing was changed.",
    "reset": "Back to the default. It is live now.",
    "redirect-added": "The redirect URI is registered. It is live now.",
    "client-request-approved": "The client is approved: members may allow it. Those who asked are told.",
    "client-request-declined": "The request is declined, and the member told.",
    "client-deleted": "The client is deleted. Its secrets, tokens and consents no longer work.",
    "token-ended": "The access token no longer works.",
    "grant-revoked": "The grant is revoked. Its tokens no longer work.",
    "tokens-revoked": "Revoked. What was issued before no longer works, anywhere.",
    "session-ended": "The sign-in is over.",
    "secret-revoked": "The secret is revoked and no longer works.",
    "secret-and-tokens-revoked": "The secret and every token it minted are revoked and no longer work.",
    "registration-admitted": "They have the account now, and sign in with the password that they chose.",
    "registration-refused": "Refused. Their link is of use no more.",
    "rotation-moved": "Changed. The new end counts now.",
    "rotation-finished": "The old secret is revoked. The rotation is done.",
    "rotation-cancelled": "The rotation is cancelled: the earlier secret keeps working.",
    "administrator-added": "The administrator is added. They may act at once.",
    "administrator-removed": "The administrator is removed. Their rights ended at once.",
    "user-disabled": "The user is disabled: signed out everywhere, and no app may act for them.",
    "user-enabled": "The user may sign in again.",
    "user-signed-out": "The user is signed out everywhere.",
    "user-factors-reset": "The second factors are gone, and the user is signed out everywhere.",
    "import-received": "The file is taken. Nobody comes in before you say so.",
    "import-started": "Started. How far it is stands below.",
    "import-cancelled": "The import is cancelled. Who came in before stays.",
    "user-deleted": "The user is deleted. Sign-ins, apps and roles ended at once.",
    "invitation-withdrawn": "The invitation is withdrawn. Its link no longer works.",
    "key-published": "The next key is published. It signs by itself after a day.",
    "key-signs": "The next key signs from now on. The one before verifies for another day.",
    "keys-replaced": "A fresh key signs from now on. The ones before are gone: what they signed verifies no more.",
    "registration-token-revoked": "The token is revoked. Nobody registers clients by it any more.",
    "webhook-told": "It is on its way.",
    "webhook-deleted": "The webhook is deleted. Nothing is told there any more.",
    "role-removed": "The role is removed.",
    "organization-suspended": "The organization is suspended: sign-ins, tokens and its API are refused from now on.",
    "organization-resumed": "The organization works again.",
    "organization-deleted": "The organization is deleted. You can restore it until its data is purged.",
    "organization-restored": "The organization is restored.",
}


def notice(key: str | None) -> str | None:
    """The text of a key; nothing for a key that is none of ours."""
    return _TEXTS.get(key or "")
