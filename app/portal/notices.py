"""Notices that a page shows once after a change, by key."""

from __future__ import annotations

from app.web.languages import lazy_gettext

NOTIFIED = {
    "access-requested": lazy_gettext("We notified them by email."),
    "access-declined": lazy_gettext("We notified the developer by email."),
    "client-request-approved": lazy_gettext("We notified everyone who asked by email."),
    "client-request-declined": lazy_gettext("We notified the member by email."),
}
"""The sentence that is added to a notice if a mail server is configured."""
NOTICES = {
    "saved": lazy_gettext("Saved. The change is live."),
    "unchanged": lazy_gettext("No changes to save."),
    "reset": lazy_gettext("Reset to the default. The change is live."),
    "api-defined": lazy_gettext("API created. Clients can request its scopes now."),
    "access-requested": lazy_gettext("Access requested. The owner of the API decides."),
    "access-request-cancelled": lazy_gettext("Request cancelled. Access that the client already has stays."),
    "access-given": lazy_gettext("Access given. The client can get tokens now."),
    "access-declined": lazy_gettext("Request declined."),
    "access-withdrawn": lazy_gettext("Access withdrawn. Tokens that required it no longer work."),
    "api-deleted": lazy_gettext("API deleted. Its scopes were removed from every client."),
    "request-fixed": lazy_gettext("Fixed. The change is live. Send the request again."),
    "client-request-approved": lazy_gettext("Client approved. Members can now allow it."),
    "client-request-declined": lazy_gettext("Request declined."),
    "owner-changed": lazy_gettext("Owner changed. They can manage it now."),
    "ownership-transferred": lazy_gettext("Transferred. The new owner can manage everything now."),
    "client-deleted": lazy_gettext("Client deleted. Its secrets, tokens and consents no longer work."),
    "token-revoked": lazy_gettext("Access token revoked."),
    "grant-revoked": lazy_gettext("Grant revoked. Its tokens no longer work."),
    "tokens-revoked": lazy_gettext("Tokens revoked. They no longer work anywhere."),
    "session-ended": lazy_gettext("Session ended."),
    "secret-confirmed": lazy_gettext("Secret confirmed. It works again."),
    "secret-revoked": lazy_gettext("Secret revoked. It no longer works."),
    "secret-and-tokens-revoked": lazy_gettext("Secret revoked, along with every token issued with it."),
    "registration-approved": lazy_gettext(
        "Account approved. The user can sign in with the password they chose."
    ),
    "registration-rejected": lazy_gettext("Sign-up rejected. The link in the email no longer works."),
    "rotation-updated": lazy_gettext("Rotation updated."),
    "rotation-finished": lazy_gettext("Rotation finished. The old secret is revoked."),
    "rotation-cancelled": lazy_gettext("Rotation cancelled. The old secret keeps working."),
    "administrator-added": lazy_gettext("Administrator added. The role is active now."),
    "administrator-removed": lazy_gettext(
        "Administrator removed. The role's permissions were revoked immediately."
    ),
    "user-disabled": lazy_gettext(
        "User disabled. They are signed out everywhere, and clients can no longer access their account."
    ),
    "user-enabled": lazy_gettext("User enabled. They can sign in again."),
    "user-signed-out": lazy_gettext("User signed out everywhere."),
    "user-factors-reset": lazy_gettext("Two-step verification reset. The user is signed out everywhere."),
    "user-deleted": lazy_gettext("User deleted. Their sessions, roles and connected apps were removed."),
    "role-assigned": lazy_gettext("Role assigned. The app learns it with the next token."),
    "role-taken": lazy_gettext("Role removed. Tokens that contain it stay valid until they expire."),
    "attribute-removed": lazy_gettext("Attribute removed. Apps no longer receive it."),
    "group-created": lazy_gettext("Group created. Add its members below."),
    "scope-deleted": lazy_gettext("Scope deleted."),
    "group-deleted": lazy_gettext("Group deleted. Its members lost the roles that they had through it."),
    "member-added": lazy_gettext("Member added. Apps learn it with the next token."),
    "member-removed": lazy_gettext("Member removed."),
    "import-received": lazy_gettext("File uploaded. Nothing is imported until you confirm it."),
    "import-started": lazy_gettext("Import started. You can follow the progress below."),
    "import-cancelled": lazy_gettext("Import cancelled. Users that were already imported stay."),
    "invitation-revoked": lazy_gettext("Invitation revoked. Its link no longer works."),
    "key-published": lazy_gettext("New key published. It starts signing automatically after one day."),
    "key-active": lazy_gettext(
        "The new key is signing now. The previous key stays valid for verification for one more day."
    ),
    "keys-replaced": lazy_gettext("Keys replaced. Tokens signed with the old keys no longer verify."),
    "registration-token-revoked": lazy_gettext(
        "Token revoked. It can no longer be used to register clients."
    ),
    "webhook-sent": lazy_gettext("The event is being delivered."),
    "webhook-deleted": lazy_gettext("Webhook deleted. No more events are sent to its URL."),
    "identity-provider-added": lazy_gettext(
        "Identity provider added. Register its redirect URI at the provider."
    ),
    "identity-provider-deleted": lazy_gettext("Identity provider deleted. Its links to users were removed."),
    "provisioning-token-deleted": lazy_gettext("Token deleted. The provider can no longer use it."),
    "identity-unlinked": lazy_gettext("Account unlinked. The user is signed out everywhere."),
    "role-removed": lazy_gettext("Role deleted."),
    "organization-created": lazy_gettext("Organization created. It is ready to use."),
    "organization-suspended": lazy_gettext(
        "Organization suspended. Sign-ins, tokens and API calls are rejected until you resume it."
    ),
    "organization-resumed": lazy_gettext("Organization resumed. Users can sign in again."),
    "organization-deleted": lazy_gettext(
        "Organization deleted. You can restore it until its data is purged."
    ),
    "organization-restored": lazy_gettext("Organization restored."),
    "test-email-sent": lazy_gettext(
        "Test email queued. It arrives within a minute, or is listed under Failing deliveries."
    ),
}
