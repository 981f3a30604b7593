"""Changes that would let a rejected request succeed: one safe change of the client or a setting, by cause.

Whether the change is valid is decided by the rules of the client, as for a form. What only the app can correct, such
as a wrong verifier, has no entry here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from app.rules.clients.client_metadata import ClientMetadata
from app.rules.clients.client_types import BLOCKED, SECRET_METHODS
from app.rules.directory.permissions import ALL_PERMISSIONS
from app.rules.languages.translation import lazy_gettext as _

CLIENT, SECRET, SETTING = "client", "secret", "setting"


class Fix(Struct, frozen=True):
    """One change. ``changes`` are the fields of the client or setting; a secret has none, as it is new.

    ``effect`` says what the button does, as a complete sentence. ``permissions`` are those that it needs.
    """

    target: str
    permissions: tuple[str, ...]
    button: str
    effect: str
    changes: Mapping[str, Any]


_Propose = Callable[[ClientMetadata, str | None], Fix | None]


def propose_fix(cause: str, client: ClientMetadata, received: str | None) -> Fix | None:
    """Return the change that would let the request succeed, or None if there is none or it was made."""
    propose = FIXES.get(cause)
    return propose(client, received) if propose is not None else None


def _change(button: str, effect: str, changes: Mapping[str, Any], *permissions: str) -> Fix:
    return Fix(CLIENT, ("clients:write", *permissions), button, effect, changes)


def _add_uri(field: str, button: str, effect: str) -> _Propose:
    def propose(client: ClientMetadata, received: str | None) -> Fix | None:
        uris = getattr(client, field)
        if received is None or received in uris:
            return None
        return _change(
            button,
            _(effect, received=received, client=client.name),
            {field: [*uris, received]},
        )

    return propose


def _add_scopes(client: ClientMetadata, received: str | None) -> Fix | None:
    names = [name for name in dict.fromkeys((received or "").split()) if name not in client.scopes]
    # A management scope is more than a request should be able to suggest.
    if not names or any(name in ALL_PERMISSIONS for name in names):
        return None
    return _change(
        _("Add scope") if len(names) == 1 else _("Add scopes"),
        _("Lets %(client)s request %(names)s.", client=client.name, names=", ".join(names)),
        {"scopes": [*client.scopes, *names]},
    )


def _add_grant_type(client: ClientMetadata, received: str | None) -> Fix | None:
    name = received or "authorization_code"
    if name in client.grant_types:
        return None
    return _change(
        _("Add grant type"),
        _("Lets %(client)s use the grant type %(name)s.", client=client.name, name=name),
        {"grant_types": [*client.grant_types, name]},
    )


def _set_auth_method(client: ClientMetadata, received: str | None) -> Fix | None:
    # Both send the same secret. Any other change would weaken the client or replace its keys.
    current = client.token_endpoint_auth_method
    if received == current or not {received, current} <= SECRET_METHODS:
        return None
    return _change(
        _("Change authentication method"),
        _(
            "Changes the authentication method of %(client)s from %(current)s to %(received)s. "
            "Instances that still use the old method are rejected.",
            client=client.name,
            current=current,
            received=received,
        ),
        {"token_endpoint_auth_method": received},
    )


def _add_origin(client: ClientMetadata, received: str | None) -> Fix | None:
    if received is None:
        return None
    uri = f"{received}/"
    if uri in client.redirect_uris:
        return None
    return _change(
        _("Allow origin"),
        _(
            "Adds %(uri)s to the redirect URIs of %(client)s, so that web pages at this origin can read responses.",
            uri=uri,
            client=client.name,
        ),
        {"redirect_uris": [*client.redirect_uris, uri]},
    )


def _add_resource(client: ClientMetadata, received: str | None) -> Fix | None:
    names = [name for name in (received or "").split() if name not in client.resources]
    if not names:
        return None
    return _change(
        _("Add API"),
        _(
            "Lets %(client)s get tokens for %(names)s. Add only an API that you know, as it receives them.",
            client=client.name,
            names=", ".join(names),
        ),
        {"resources": [*client.resources, *names]},
        "resources:write",
    )


def _enable(client: ClientMetadata, received: str | None) -> Fix | None:
    if client.status == "active":
        return None
    effect = _("Enables %(client)s: it can get tokens again.", client=client.name)
    return _change(_("Enable client"), effect, {"status": "active"})


def _unblock(client: ClientMetadata, received: str | None) -> Fix | None:
    if client.approval != BLOCKED:
        return None
    return _change(
        _("Unblock client"),
        _(
            "Unblocks %(client)s. Whether users need approval follows the organization's setting again.",
            client=client.name,
        ),
        {"approval": None},
        "clients:trust",
    )


def _add_secret(client: ClientMetadata, received: str | None) -> Fix | None:
    if client.token_endpoint_auth_method not in SECRET_METHODS:
        return None
    return Fix(
        SECRET,
        ("credentials:write",),
        _("Add a secret"),
        _(
            "Creates another secret for %(client)s and shows it once. Existing secrets keep working.",
            client=client.name,
        ),
        {},
    )


def _allow_without_pkce(client: ClientMetadata, received: str | None) -> Fix | None:
    return Fix(
        SETTING,
        ("settings:write",),
        _("Require PKCE of public clients only"),
        _(
            "Changes the setting oauth.pkce of the whole organization: confidential clients can omit PKCE and the "
            "nonce. Sending code_challenge is safer."
        ),
        {"oauth": {"pkce": "public_clients"}},
    )


FIXES: Mapping[str, _Propose] = {
    "redirect_uri_not_registered": _add_uri(
        "redirect_uris",
        _("Add redirect URI"),
        _("Adds %(received)s to the redirect URIs of %(client)s."),
    ),
    "post_logout_redirect_uri_not_registered": _add_uri(
        "post_logout_redirect_uris",
        _("Add post-logout redirect URI"),
        _("Adds %(received)s to the post-logout redirect URIs of %(client)s."),
    ),
    "scope_not_allowed": _add_scopes,
    "grant_type_not_allowed": _add_grant_type,
    "auth_method_mismatch": _set_auth_method,
    "cors_origin_not_allowed": _add_origin,
    "resource_not_allowed": _add_resource,
    "introspection_not_allowed": _add_resource,
    "client_disabled": _enable,
    "client_blocked": _unblock,
    "secret_expired": _add_secret,
    "secret_revoked": _add_secret,
    "secret_unknown": _add_secret,
    "pkce_or_nonce_missing": _allow_without_pkce,
}
