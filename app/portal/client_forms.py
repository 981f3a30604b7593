"""Forms about a client: its registration, and the pages that change it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from wtforms import BooleanField, SelectChoice, SubmitField, TextAreaField, URLField
from wtforms.validators import InputRequired, Length

from app.operations.clients.client_permissions import grantable_permissions
from app.operations.clients.scopes import ScopeRecord
from app.portal.labels import (
    APPROVALS,
    AUTH_METHODS,
    GRANT_TYPES,
    SECURITY_PROFILES,
    TOKEN_EXCHANGE,
    TRUST_LEVELS,
)
from app.rules.actor import Actor
from app.rules.clients import client_types
from app.rules.clients.client_types import CLIENT_TYPES
from app.rules.strict_json import InvalidJson, load_object
from app.web.forms import (
    NO_AUTOCOMPLETE,
    CheckboxListField,
    PageForm,
    StringListField,
    VersionField,
    name_field,
    select_field,
)
from app.web.languages import gettext, lazy_gettext, translate

_LINES = {"spellcheck": "false", "autocapitalize": "off"}
_ACCOUNT, _OTHER = lazy_gettext("Account"), lazy_gettext("Other scopes")
_DEFAULT = {"": lazy_gettext("Organization's default")}


class JwksField(TextAreaField):
    """A JWK set, or one JWK, as JSON text. Text that is not JSON stays as it is, for the rules to reject."""

    def process_formdata(self, valuelist: list[str]) -> None:
        """Read the JSON document."""
        text = valuelist[0].strip() if valuelist else ""
        try:
            document = load_object(text.encode("utf-8", "replace"))
        except InvalidJson:
            self.data: Any = text or None
        else:
            self.data = {"keys": [document]} if "kty" in document else document

    def _value(self) -> str:
        return (
            self.data if isinstance(self.data, str) else json.dumps(self.data, indent=2) if self.data else ""
        )


class ClientForm(PageForm):
    """A page that changes a client."""

    version = VersionField()

    def values(self) -> dict[str, Any]:
        """Return the fields as the operation takes them."""
        raise NotImplementedError


class ScopesForm(PageForm):
    """The scopes of a client: checkboxes for the known ones, and lines for new ones."""

    scopes = CheckboxListField(
        lazy_gettext("Scopes"),
        description=lazy_gettext("Request only what the client needs. You can add more later."),
    )
    more_scopes = StringListField(
        lazy_gettext("More scopes"),
        description=lazy_gettext(
            "Scopes that aren't listed above, one per line, such as orders:read. New scopes are added"
            " to the organization."
        ),
        render_kw={"rows": 2, "spellcheck": "false"},
    )

    def all_scopes(self) -> list[str]:
        """Return the checked and the typed scopes, each once."""
        return list(dict.fromkeys([*self.scopes.data, *self.more_scopes.data]))

    def set_scope_choices(
        self, actor: Actor, scopes: Iterable[ScopeRecord], *, for_users: bool = True
    ) -> dict[str, Any]:
        """Set the choices and return the other variables of the scope lists.

        A client without users gets no identity scopes. Management scopes are offered to actors who may grant them.
        """
        offered = [scope for scope in scopes if for_users or not scope.is_identity]
        choices = [
            SelectChoice(
                scope.name, _scope_title(scope), {"help": _scope_help(scope), "group": _group(scope)}
            )
            for scope in offered
        ]
        order = {_ACCOUNT: 0, _OTHER: 2}
        self.scopes.choices = sorted(
            choices,
            key=lambda choice: (
                order.get(choice.render_kw["group"], 1),
                choice.render_kw["group"],
                choice.value != "openid",
            ),
        )
        may_write = actor.has_permission("resources:write")
        return {
            "management_choices": [
                (name, translate(title)) for name, title in grantable_permissions(actor).items()
            ],
            "may_add_scopes": may_write,
            "untitled_scopes": [scope.name for scope in offered if scope.title is None] if may_write else [],
        }


class RegistrationForm(ScopesForm):
    """The second page of a registration."""

    name = name_field(lazy_gettext("Shown to users when they sign in."))
    redirect_uris = StringListField(
        lazy_gettext("Redirect URIs"), [InputRequired()], render_kw={**_LINES, "rows": 4}
    )
    post_logout_redirect_uris = StringListField(
        lazy_gettext("Post-logout redirect URIs"),
        description=lazy_gettext("Optional. Where users may return after signing out, one per line."),
        render_kw={**_LINES, "rows": 2},
    )
    check = SubmitField(lazy_gettext("Check URIs"))
    resources = CheckboxListField(
        lazy_gettext("APIs"), description=lazy_gettext("The client's tokens are only valid for these APIs.")
    )

    def values(self, kind: str, *, chooses_apis: bool) -> dict[str, Any]:
        """Return the fields as the operation takes them."""
        values: dict[str, Any] = {"name": self.name.data, "type": kind, "scopes": self.all_scopes()}
        for name in ("redirect_uris", "post_logout_redirect_uris"):
            if name in self:
                values[name] = self[name].data
        if chooses_apis:
            values["resources"] = self.resources.data
        return values


class RedirectsForm(ClientForm):
    """The page Redirects."""

    redirect_uris = StringListField(
        lazy_gettext("Redirect URIs"),
        description=lazy_gettext(
            "Where users return after signing in, one per line. URIs are compared exactly, including slashes."
        ),
        render_kw=_LINES,
    )
    post_logout_redirect_uris = StringListField(
        lazy_gettext("Post-logout redirect URIs"),
        description=lazy_gettext("Where users may return after signing out, one per line."),
        render_kw={**_LINES, "rows": 2},
    )
    backchannel_logout_uri = URLField(
        lazy_gettext("Back-channel logout URI"),
        description=lazy_gettext(
            "Gatehouse notifies this URL when a user signs out (OpenID Connect Back-Channel Logout)."
        ),
        render_kw=NO_AUTOCOMPLETE,
    )

    def values(self) -> dict[str, Any]:
        """Return the fields as the operation takes them."""
        return {
            "redirect_uris": self.redirect_uris.data,
            "post_logout_redirect_uris": self.post_logout_redirect_uris.data,
            "backchannel_logout_uri": self.backchannel_logout_uri.data or None,
        }


class AccessForm(ClientForm, ScopesForm):
    """The page Scopes; approval is only shown to actors who decide it, and only sent if it was shown."""

    optional_scopes = CheckboxListField(
        lazy_gettext("Optional scopes"),
        description=lazy_gettext("Scopes that users can decline on the consent page."),
    )
    approval = select_field(
        lazy_gettext("Approval"),
        choices=APPROVALS,
        description=lazy_gettext(
            "All requests of a blocked client are rejected, and its tokens are revoked. Pre-approval requires"
            " a reviewed client with a secret."
        ),
    )
    approved_scopes = CheckboxListField(
        lazy_gettext("Pre-approved scopes"),
        description=lazy_gettext(
            "Users aren't asked for consent to these scopes if the client is pre-approved."
        ),
    )

    def values(self) -> dict[str, Any]:
        """Return the fields as the operation takes them."""
        scopes = self.all_scopes()
        values: dict[str, Any] = {
            "scopes": scopes,
            "optional_scopes": [scope for scope in self.optional_scopes.data if scope in scopes],
        }
        if self.approval.raw_data:
            values["approval"] = self.approval.data or None
            values["approved_scopes"] = [scope for scope in self.approved_scopes.data if scope in scopes]
        return values


class DetailsForm(ClientForm):
    """The page Details; trust is only shown to actors who decide it, and only sent if it was shown."""

    name = name_field(lazy_gettext("Shown to users when they sign in."))
    description = TextAreaField(
        lazy_gettext("Description"),
        [Length(max=1000)],
        description=lazy_gettext("For you and your colleagues."),
        render_kw={"rows": 3},
    )
    is_active = BooleanField(
        lazy_gettext("Active"),
        description=lazy_gettext("All requests of an inactive client are rejected. Its data stays as it is."),
    )
    trust = select_field(
        lazy_gettext("Trust"),
        choices=TRUST_LEVELS,
        description=lazy_gettext(
            "First-party clients can skip the consent page if the organization's settings allow it."
        ),
    )
    client_uri = URLField(
        lazy_gettext("Home page"),
        description=lazy_gettext("Linked on the consent page."),
        render_kw=NO_AUTOCOMPLETE,
    )
    logo_uri = URLField(
        lazy_gettext("Logo URL"),
        description=lazy_gettext(
            "A PNG, JPEG, GIF or WebP image of up to 256 KiB. Sign-in and consent pages show a copy of it."
        ),
        render_kw=NO_AUTOCOMPLETE,
    )
    policy_uri = URLField(lazy_gettext("Privacy policy"), render_kw=NO_AUTOCOMPLETE)
    tos_uri = URLField(lazy_gettext("Terms of service"), render_kw=NO_AUTOCOMPLETE)
    contacts = StringListField(
        lazy_gettext("Contacts"),
        description=lazy_gettext("Email addresses of the people responsible, one per line."),
        render_kw={"rows": 2},
    )

    def values(self) -> dict[str, Any]:
        """Return the fields as the operation takes them."""
        values: dict[str, Any] = {
            "name": self.name.data,
            "description": self.description.data,
            "contacts": self.contacts.data,
            "status": "active" if self.is_active.data else "disabled",
        }
        for name in ("client_uri", "logo_uri", "policy_uri", "tos_uri"):
            values[name] = self[name].data or None
        if self.trust.raw_data and self.trust.data:
            values["trust"] = self.trust.data
        return values


class AdvancedForm(ClientForm):
    """The page Advanced; token exchange is only shown to actors who decide it, and only sent if it was shown."""

    grant_types = CheckboxListField(
        lazy_gettext("Grant types"), description=lazy_gettext("How the client can get tokens.")
    )
    token_endpoint_auth_method = select_field(lazy_gettext("Client authentication"))
    access_token_format = select_field(
        lazy_gettext("Access token format"),
        choices={**_DEFAULT, **{name: name for name in client_types.TOKEN_FORMATS}},
        description=lazy_gettext(
            "Opaque tokens can be revoked instantly. APIs verify JWTs themselves and accept them until"
            " they expire."
        ),
    )
    id_token_signed_response_alg = select_field(
        lazy_gettext("ID token signing algorithm"),
        choices={**_DEFAULT, **{name: name for name in client_types.SIGNING_ALGORITHMS}},
    )
    id_token_claims = select_field(
        lazy_gettext("ID token claims"),
        choices={
            "full": lazy_gettext("Name and email, for the scopes profile and email"),
            "minimal": lazy_gettext("None, only in userinfo"),
        },
    )
    jwks = JwksField(
        lazy_gettext("Public keys (JWKS)"),
        description=lazy_gettext(
            "A JWK set or a single JWK with public keys, for signed assertions and requests."
        ),
        render_kw={"rows": 4, "spellcheck": "false", "autocomplete": "off"},
    )
    jwks_uri = URLField(
        lazy_gettext("JWKS URL"),
        description=lazy_gettext(
            "Where the client publishes its keys. Enter either this URL or the keys above."
        ),
        render_kw=NO_AUTOCOMPLETE,
    )
    security_profile = select_field(
        lazy_gettext("Security profile"),
        choices={
            "": lazy_gettext("None"),
            **{name: SECURITY_PROFILES[name] for name in client_types.SECURITY_PROFILES},
        },
        description=lazy_gettext(
            "FAPI 2.0 requires private_key_jwt, pushed authorization requests (PAR), DPoP with a nonce, a"
            " PS256, ES256 or EdDSA signature, and https redirect URIs. A client that doesn't support all of this stops"
            " working when you save."
        ),
    )
    dpop_bound_access_tokens = BooleanField(
        lazy_gettext("Require DPoP"),
        description=lazy_gettext(
            "Tokens are bound to the client's key, so stolen tokens are useless. A client without DPoP"
            " support can no longer get tokens."
        ),
    )
    require_pkce = BooleanField(
        lazy_gettext("Require PKCE"),
        description=lazy_gettext(
            "Authorization requests without PKCE are rejected. Public clients and FAPI clients always need it."
            " The page Details shows whether the client uses it."
        ),
    )
    require_pushed_authorization_requests = BooleanField(
        lazy_gettext("Require pushed authorization requests (PAR)"),
        description=lazy_gettext("Authorization requests that weren't pushed first are rejected."),
    )
    token_exchange = select_field(
        lazy_gettext("Token exchange"),
        choices={"": lazy_gettext("None"), **TOKEN_EXCHANGE},
        description=lazy_gettext(
            "Lets the client exchange a user's token for a token of another API. Delegation names the client"
            " in the new token, impersonation doesn't."
        ),
    )
    resources = StringListField(
        lazy_gettext("APIs"),
        description=lazy_gettext("APIs that the client may request tokens for (RFC 8707), one URI per line."),
        render_kw={"rows": 2, "spellcheck": "false"},
    )

    def set_type_choices(self, client_type: str) -> None:
        """Offer the grant types and authentication methods of a type of client."""
        kind = CLIENT_TYPES[client_type]
        self.grant_types.choices = {name: GRANT_TYPES[name] for name in kind.possible_grant_types}
        methods = {name: AUTH_METHODS[name] for name in kind.auth_methods}
        if kind.auth_methods[0] in client_types.SECRET_METHODS:
            methods = {"": gettext("Secret, in the header or in the body"), **methods}
        self.token_endpoint_auth_method.choices = methods

    def values(self) -> dict[str, Any]:
        """Return the fields as the operation takes them."""
        values: dict[str, Any] = {
            "grant_types": self.grant_types.data,
            "token_endpoint_auth_method": self.token_endpoint_auth_method.data or None,
            "id_token_claims": self.id_token_claims.data or None,
            "jwks": self.jwks.data,
            "dpop_bound_access_tokens": self.dpop_bound_access_tokens.data,
            "require_pkce": self.require_pkce.data,
            "require_pushed_authorization_requests": self.require_pushed_authorization_requests.data,
            "resources": self.resources.data,
        }
        for name in ("access_token_format", "id_token_signed_response_alg", "jwks_uri", "security_profile"):
            values[name] = self[name].data or None
        if self.token_exchange.raw_data:
            values["token_exchange"] = self.token_exchange.data or None
        return values


def _group(scope: ScopeRecord) -> str:
    return _ACCOUNT if scope.is_identity else scope.resource_name or _OTHER


def _scope_title(scope: ScopeRecord) -> str:
    """Return the title; only those of built-in scopes are translated."""
    title = scope.title or scope.name
    return translate(title) if scope.is_identity else title


def _scope_help(scope: ScopeRecord) -> str:
    if scope.title is None:
        return gettext("No title yet")
    description = translate(scope.description or "") if scope.is_identity else scope.description
    return " · ".join(text for text in (scope.name, description) if text)
