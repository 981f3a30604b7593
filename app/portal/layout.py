"""The layout around portal pages: the side navigation, and the notices shown after an action."""

from __future__ import annotations

from dataclasses import dataclass

from app.operations.directory.lookups import OrganizationSnapshot
from app.rules.actor import Actor


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """One link of the side navigation."""

    label: str
    url: str
    icon: str
    current: bool


# Label, path below the organization's, icon, the permission that opens it.
_PAGES = (
    ("Overview", "", "home", "organization:read"),
    ("Clients", "/clients", "apps", "clients:read"),
    ("Failed requests", "/logs", "warning", "logs:read"),
    ("Audit log", "/audit", "book", "audit:read"),
    ("APIs and scopes", "/apis", "server", "resources:read"),
    ("Webhooks", "/webhooks", "link", "webhooks:read"),
    ("Users", "/users", "person", "users:read"),
    ("Administrators", "/administrators", "people", "admins:read"),
    ("Settings", "/settings", "settings", "settings:read"),
)
# Pages that belong to another page's entry although their path is elsewhere.
_RELATED_PATHS = {
    "/clients": ("/client-requests", "/registration-tokens"),
    "/users": ("/registrations",),
    "/apis": ("/scopes",),
    "/settings": ("/revocations",),
}
_ROOT_PAGES = (
    ("Organizations", "/organizations", "building", "organizations:read"),
    ("Instance limits", "/instance-limits", "shield", "instance:read"),
)
# The key travels in the URL, so that nobody can make a page show text of their own.
_NOTICES = {
    "saved": "Saved. The change is live.",
    "unchanged": "No changes to save.",
    "reset": "Reset to the default. The change is live.",
    "api-defined": "API created. Clients can request its scopes now.",
    "api-deleted": "API deleted. Its scopes were removed from every client.",
    "redirect-added": "Redirect URI added. The change is live.",
    "client-request-approved": "Client approved. Members can now allow it. We notified everyone who asked.",
    "client-request-declined": "Request declined. We notified the member.",
    "client-deleted": "Client deleted. Its secrets, tokens and consents no longer work.",
    "token-revoked": "Access token revoked.",
    "grant-revoked": "Grant revoked. Its tokens no longer work.",
    "tokens-revoked": "Tokens revoked. They no longer work anywhere.",
    "session-ended": "Session ended.",
    "secret-revoked": "Secret revoked. It no longer works.",
    "secret-and-tokens-revoked": "Secret revoked, along with every token issued with it.",
    "registration-approved": "Account approved. The user can sign in with the password they chose.",
    "registration-rejected": "Registration rejected. The link in the email no longer works.",
    "rotation-updated": "Rotation updated.",
    "rotation-finished": "Rotation finished. The old secret is revoked.",
    "rotation-cancelled": "Rotation cancelled. The old secret keeps working.",
    "administrator-added": "Administrator added. The role is active now.",
    "administrator-removed": "Administrator removed. Their permissions were revoked immediately.",
    "user-disabled": "User disabled. They are signed out everywhere, and apps lost access to their account.",
    "user-enabled": "User enabled. They can sign in again.",
    "user-signed-out": "User signed out everywhere.",
    "user-factors-reset": "Second factors removed. The user is signed out everywhere.",
    "user-deleted": "User deleted. Their sessions, app access and roles are gone.",
    "import-received": "File uploaded. Nothing is imported until you confirm it.",
    "import-started": "Import started. You can follow the progress below.",
    "import-cancelled": "Import cancelled. Users that were already imported stay.",
    "invitation-revoked": "Invitation revoked. Its link no longer works.",
    "key-published": "New key published. It starts signing automatically after one day.",
    "key-active": "The new key is signing now. The previous key stays valid for verification for one more day.",
    "keys-replaced": "Keys replaced. Tokens signed with the old keys no longer verify.",
    "registration-token-revoked": "Token revoked. It can no longer be used to register clients.",
    "webhook-sent": "The event is being delivered.",
    "webhook-deleted": "Webhook deleted. It receives no more events.",
    "role-removed": "Role removed.",
    "organization-suspended": "Organization suspended. Sign-ins, tokens and API calls are refused from now on.",
    "organization-resumed": "Organization resumed. It works again.",
    "organization-deleted": "Organization deleted. You can restore it until its data is purged.",
    "organization-restored": "Organization restored.",
}


def navigation(organization: OrganizationSnapshot, actor: Actor, path: str) -> list[NavigationEntry]:
    """Return the entries that the actor may open; the one of the page at ``path`` is current."""
    base = f"/portal/{organization.slug}"
    pages = _PAGES + (_ROOT_PAGES if organization.is_root else ())
    return [
        NavigationEntry(label, f"{base}{page}", icon, _is_current(path, base, page))
        for label, page, icon, permission in pages
        if actor.has_permission_for_own(permission)
    ]


def notice(key: str | None) -> str | None:
    """Return the text of a notice, or None for an unknown key."""
    return _NOTICES.get(key or "")


def _is_current(path: str, base: str, page: str) -> bool:
    if not page:
        return path == base
    return any(
        path == f"{base}{related}" or path.startswith(f"{base}{related}/")
        for related in (page, *_RELATED_PATHS.get(page, ()))
    )
