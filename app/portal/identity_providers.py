"""Identity providers: the list, one with its URLs and provisioning tokens, its form, and its deletion."""

from __future__ import annotations

from typing import Any

from flask import redirect, request
from werkzeug.wrappers import Response as BaseResponse
from wtforms import BooleanField, PasswordField, StringField, URLField
from wtforms.validators import InputRequired, Length, Optional

from app.operations.audit.audit_events import list_audit_events
from app.operations.sign_in.identity_providers import (
    IdentityProviderRecord,
    create_identity_provider,
    delete_identity_provider,
    get_identity_provider,
    list_identity_providers,
    redirect_uri_of,
    require_provider_permission,
    update_identity_provider,
)
from app.operations.sign_in.provisioning_tokens import (
    MAX_TOKENS_PER_PROVIDER,
    create_provisioning_token,
    delete_provisioning_token,
    list_provisioning_tokens,
)
from app.operations.store.rows import PageRequest
from app.portal.context import Confirmation, PageResponse, PortalContext, portal_page
from app.rules.errors import Conflict, InvalidInput, NotFound
from app.rules.sign_in.identity_providers import DEFAULT_GROUPS_CLAIM, DEFAULT_SCOPES, DISABLED, ENABLED
from app.web.forms import CODE, PageForm, StringListField, VersionField, name_field
from app.web.languages import gettext, lazy_gettext

_PLACEHOLDER = "NAME"


class IdentityProviderForm(PageForm):
    """An identity provider. The name in URLs is only in the form of a new one."""

    version = VersionField()
    name = name_field(lazy_gettext("Shown on the sign-in button: “Continue with Google”."), max_length=60)
    slug = StringField(
        lazy_gettext("Name in URLs"),
        [InputRequired(), Length(max=40)],
        description=lazy_gettext(
            "Lowercase letters, digits and hyphens, such as google. You can't change it later, because it is part of"
            " the redirect URI, which you register at the provider:"
        ),
        render_kw=CODE,
    )
    issuer = URLField(
        lazy_gettext("Issuer"),
        [InputRequired(), Length(max=255)],
        description=lazy_gettext(
            "Google: https://accounts.google.com · Microsoft Entra: https://login.microsoftonline.com/TENANT/v2.0 ·"
            " Okta: https://COMPANY.okta.com · GitLab: https://gitlab.com"
        ),
        render_kw=CODE,
    )
    client_id = StringField(
        lazy_gettext("Client ID"),
        [InputRequired(), Length(max=255)],
        description=lazy_gettext("The provider shows it when you register Gatehouse as an app there."),
        render_kw=CODE,
    )
    client_secret = PasswordField(
        lazy_gettext("Client secret"),
        [InputRequired(), Length(max=1000)],
        description=lazy_gettext("The provider shows it next to the client ID. It is stored encrypted."),
        render_kw={**CODE, "autocomplete": "new-password"},
    )
    scopes = StringListField(
        lazy_gettext("Scopes"),
        description=lazy_gettext("One per line. Most providers need only openid, email and profile."),
        render_kw={"rows": 3, **CODE},
    )
    create_users = BooleanField(
        lazy_gettext("Create accounts"),
        description=lazy_gettext(
            "People without an account get one when they first sign in. The provider must have verified their email,"
            " and the allowed email domains of your sign-up settings apply. Otherwise, only people who already have an"
            " account can sign in."
        ),
    )
    link_users = BooleanField(
        lazy_gettext("Link accounts by email"),
        description=lazy_gettext(
            "People who sign in with the email of an existing account sign in to that account, if the email is"
            " verified on both sides. Anyone who controls this email at the provider can then sign in as the user."
            " Otherwise, users link their account themselves, under Security. Those with more permissions"
            " than members always do."
        ),
    )
    trust_emails = BooleanField(
        lazy_gettext("Trust unverified emails"),
        description=lazy_gettext(
            "Emails count as verified unless the provider says that they are not. If people can enter any email at"
            " the provider, they can take over accounts of others. Use this only for a provider whose emails your"
            " organization assigns."
        ),
    )
    groups_claim = StringField(
        lazy_gettext("Groups claim"),
        [Length(max=100)],
        description=lazy_gettext(
            "The claim with the user's groups at the provider. Groups of this organization can take their members from"
            " it: edit a group to choose them."
        ),
        render_kw=CODE,
    )
    is_enabled = BooleanField(
        lazy_gettext("Enabled"),
        description=lazy_gettext(
            "A disabled provider is not offered on the sign-in page, and its provisioning tokens are rejected. Users"
            " who are signed in stay signed in."
        ),
    )

    def values(self) -> dict[str, Any]:
        """Return the fields as the operations take them."""
        values = {
            "name": self.name.data,
            "issuer": self.issuer.data,
            "client_id": self.client_id.data,
            "scopes": self.scopes.data,
            "create_users": self.create_users.data,
            "link_users": self.link_users.data,
            "trust_emails": self.trust_emails.data,
            "groups_claim": self.groups_claim.data or None,
            "status": ENABLED if self.is_enabled.data else DISABLED,
        }
        if "slug" in self:
            values["slug"] = self.slug.data
        if self.client_secret.data:
            values["client_secret"] = self.client_secret.data
        return values


@portal_page("/identity-providers", "GET")
def identity_providers(context: PortalContext) -> PageResponse:
    """List the identity providers, newest first."""
    page = list_identity_providers(context.actor, context.page_request())
    return context.render("portal/identity_providers/list.html", page=page)


@portal_page("/identity-providers/new", "GET", "POST")
def identity_provider_new(context: PortalContext) -> PageResponse:
    """Add an identity provider."""
    # Require the fresh sign-in before the user fills in the form.
    require_provider_permission(context.actor)
    form = IdentityProviderForm(scopes=DEFAULT_SCOPES, groups_claim=DEFAULT_GROUPS_CLAIM, is_enabled=True)
    del form.version
    if form.validate_on_submit():
        with form.show_errors(InvalidInput, Conflict):
            made = create_identity_provider(context.actor, form.values())
            return context.done(f"/identity-providers/{made.public_id}", "identity-provider-added")
    return _form_page(context, None, form)


@portal_page("/identity-providers/<provider_id>", "GET")
def identity_provider_page(
    context: PortalContext, provider_id: str, error: Conflict | None = None
) -> BaseResponse:
    """Show one identity provider."""
    provider = get_identity_provider(context.actor, provider_id)
    failure = None
    if context.actor.has_permission("audit:read"):
        # A failure from before the last change may be mended.
        filters = {
            "action": "identity_provider.failed",
            "target": provider.public_id,
            "since": provider.updated_at.isoformat(),
        }
        page = list_audit_events(context.actor, PageRequest(limit=1), filters=filters)
        failure = page.items[0] if page.items else None
    return context.render(
        "portal/identity_providers/show.html",
        provider=provider,
        failure=failure,
        tokens=list_provisioning_tokens(context.actor, provider_id),
        max_tokens=MAX_TOKENS_PER_PROVIDER,
        error=error,
    )


@portal_page("/identity-providers/<provider_id>/provisioning-tokens", "GET", "POST")
def provisioning_token_new(context: PortalContext, provider_id: str) -> PageResponse:
    """Create a provisioning token, which the provider's page shows once.

    Requires a fresh sign-in, which leads back to the provider's page.
    """
    require_provider_permission(context.actor)
    provider = get_identity_provider(context.actor, provider_id)
    path = f"/identity-providers/{provider.public_id}"
    if request.method != "POST":
        return redirect(context.url(path), 303)
    try:
        made = create_provisioning_token(context.actor, provider_id)
    except Conflict as error:
        return identity_provider_page(context, provider_id, error)
    return context.done(path, kind="provisioning_token", name=provider.name, secret=made.token)


@portal_page(
    "/identity-providers/<provider_id>/provisioning-tokens/<provisioning_token_id>/delete", "GET", "POST"
)
def provisioning_token_delete(
    context: PortalContext, provider_id: str, provisioning_token_id: str
) -> PageResponse:
    """Confirm and delete a provisioning token. Requires a fresh sign-in."""
    require_provider_permission(context.actor)
    provider = get_identity_provider(context.actor, provider_id)
    tokens = list_provisioning_tokens(context.actor, provider_id)
    found = next((each for each in tokens if each.public_id == provisioning_token_id), None)
    if found is None:
        raise NotFound(lazy_gettext("This token was deleted."))
    impact = (
        gettext("%(name)s can no longer manage users and groups with this token.", name=provider.name),
        gettext("The users and groups stay."),
    )
    return context.confirm_change(
        Confirmation(
            gettext("Delete the token that ends with %(hint)s?", hint=found.hint),
            gettext("Delete token"),
            _parents(provider),
            impact,
        ),
        lambda: delete_provisioning_token(context.actor, provider_id, provisioning_token_id),
        f"/identity-providers/{provider.public_id}",
        "provisioning-token-deleted",
    )


@portal_page("/identity-providers/<provider_id>/edit", "GET", "POST")
def identity_provider_edit(context: PortalContext, provider_id: str) -> PageResponse:
    """Show and change an identity provider."""
    require_provider_permission(context.actor)
    provider = get_identity_provider(context.actor, provider_id)
    form = IdentityProviderForm(obj=provider)
    del form.slug
    form.client_secret.validators = [Optional(), Length(max=1000)]
    form.client_secret.flags.required = False
    form.client_secret.description = gettext("Leave it empty to keep the current one.")
    if form.validate_on_submit():
        with form.show_edit_errors(gettext("this identity provider"), provider.version):
            _, changed = update_identity_provider(
                context.actor, provider_id, form.values(), expected_version=form.version.data
            )
            return context.done(f"/identity-providers/{provider_id}", "saved" if changed else "unchanged")
    return _form_page(context, provider, form)


@portal_page("/identity-providers/<provider_id>/delete", "GET", "POST")
def identity_provider_delete(context: PortalContext, provider_id: str) -> PageResponse:
    """Confirm and delete an identity provider."""
    require_provider_permission(context.actor)
    provider = get_identity_provider(context.actor, provider_id)
    impact = (
        gettext("Users can no longer sign in with %(name)s.", name=provider.name),
        gettext("The links of users to their accounts there are deleted."),
        gettext("Its provisioning tokens are deleted. The users and groups that it manages stay.")
        if list_provisioning_tokens(context.actor, provider_id)
        else None,
        gettext("Users without a password or passkey have to set a password by email to sign in again."),
        gettext("Users who are signed in stay signed in."),
    )
    return context.confirm_change(
        Confirmation(
            gettext("Delete %(name)s?", name=provider.name),
            gettext("Delete identity provider"),
            _parents(provider),
            impact,
            gettext("To stop sign-ins for a while, disable the identity provider instead."),
        ),
        lambda: delete_identity_provider(context.actor, provider_id),
        "/identity-providers",
        "identity-provider-deleted",
    )


def _parents(provider: IdentityProviderRecord) -> tuple[tuple[str, str], ...]:
    return (
        (gettext("Identity providers"), "/identity-providers"),
        (provider.name, f"/identity-providers/{provider.public_id}"),
    )


def _form_page(
    context: PortalContext, provider: IdentityProviderRecord | None, form: IdentityProviderForm
) -> BaseResponse:
    organization = context.organization
    return context.render(
        "portal/identity_providers/form.html",
        form=form,
        provider=provider,
        redirect_pattern=redirect_uri_of(organization.base_url, organization.slug, _PLACEHOLDER),
        placeholder=_PLACEHOLDER,
    )
