"""Forms about a client: the scopes to choose from, and what a tab's form sends to the operation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flask import request

from app.operations.clients.client_records import grantable_permissions
from app.operations.clients.scopes import ScopeRecord
from app.rules.actor import Actor
from app.rules.strict_json import InvalidJson, load_object
from app.web.forms import is_ticked, lines, text, ticked

Choice = tuple[str, str, str | None]


def scope_choices(actor: Actor, scopes: Iterable[ScopeRecord], *, for_people: bool = True) -> dict[str, Any]:
    """The variables of the scope lists: (name, title, description) of each that may be chosen.

    A client without users has no use for scopes about a person. Management scopes are offered to who may grant them.
    ``wordless`` are those that want words, for who may write them.
    """
    offered = [scope for scope in scopes if for_people or not scope.is_identity]
    choices: list[Choice] = [(scope.name, scope.title or scope.name, _described(scope)) for scope in offered]
    management: list[Choice] = [(name, words, name) for name, words in grantable_permissions(actor).items()]
    may_write = actor.has_permission("resources:write")
    return {
        "scope_choices": sorted(choices, key=lambda choice: choice[0] != "openid"),
        "management_choices": management,
        "may_add_scopes": may_write,
        "wordless": [scope.name for scope in offered if scope.title is None] if may_write else [],
    }


def _described(scope: ScopeRecord) -> str:
    if scope.title is None:
        return "wants words for the consent page"
    words = (scope.name, scope.resource_name, scope.description)
    return " · ".join(word for word in words if word)


def redirects_sent() -> dict[str, Any]:
    """The fields of the Redirects tab."""
    return {
        "redirect_uris": lines("redirect_uris"),
        "post_logout_redirect_uris": lines("post_logout_redirect_uris"),
        "backchannel_logout_uri": text("backchannel_logout_uri") or None,
    }


def access_sent() -> dict[str, Any]:
    """The fields of the Access tab; what administrators decide is sent where its fields were shown."""
    scopes = list(dict.fromkeys([*ticked("scopes"), *lines("more_scopes")]))
    decided: dict[str, Any] = {}
    if "approval" in request.form:
        approved = [scope for scope in ticked("approved_scopes") if scope in scopes]
        decided = {"approval": text("approval") or None, "approved_scopes": approved}
    return {
        "scopes": scopes,
        "optional_scopes": [scope for scope in ticked("optional_scopes") if scope in scopes],
        **decided,
    }


def details_sent() -> dict[str, Any]:
    """The fields of the Details tab; an empty address goes back to none. Trust is sent where its field was shown."""
    sent: dict[str, Any] = {
        "name": text("name"),
        "description": text("description").replace("\r\n", "\n"),
        "contacts": lines("contacts"),
        "status": "active" if is_ticked("is_active") else "disabled",
    }
    for name in ("client_uri", "logo_uri", "policy_uri", "tos_uri"):
        sent[name] = text(name) or None
    if text("trust"):
        sent["trust"] = text("trust")
    return sent


def _keys_sent() -> Any:
    """The key set that was pasted, or a key alone as a set; what is no JSON goes on as it is, to be refused there."""
    pasted = text("jwks")
    try:
        document = load_object(pasted.encode())
    except InvalidJson:
        return pasted or None
    return {"keys": [document]} if "kty" in document else document


def advanced_sent() -> dict[str, Any]:
    """The fields of the Advanced tab; token exchange is sent where its field was shown."""
    exchange = {"token_exchange": text("token_exchange") or None} if "token_exchange" in request.form else {}
    return {
        **exchange,
        "grant_types": ticked("grant_types"),
        "token_endpoint_auth_method": text("token_endpoint_auth_method"),
        "access_token_format": text("access_token_format") or None,
        "id_token_signed_response_alg": text("id_token_signed_response_alg") or None,
        "jwks": _keys_sent(),
        "jwks_uri": text("jwks_uri") or None,
        "security_profile": text("security_profile") or None,
        "dpop_bound_access_tokens": is_ticked("dpop_bound_access_tokens"),
        "require_pushed_authorization_requests": is_ticked("require_pushed_authorization_requests"),
        "resources": lines("resources"),
    }
