"""Initial access tokens: who may register clients by RFC 7591, until when and how often."""

from __future__ import annotations

from typing import Any

import flask_babel
from wtforms.widgets import NumberInput

from app.operations.clients.initial_access_tokens import (
    create_registration_token,
    get_registration_token,
    list_registration_tokens,
    revoke_registration_token,
)
from app.portal.context import Confirmation, PageResponse, PortalContext, portal_page
from app.rules.clients.credentials import DEFAULT_LIFETIME, MAX_INITIAL_ACCESS_LIFETIME
from app.rules.errors import Conflict, InvalidInput
from app.web.forms import NumberField, PageForm, name_field
from app.web.languages import counted, gettext, lazy_gettext


class RegistrationTokenForm(PageForm):
    """Creates an initial access token."""

    name = name_field(lazy_gettext("Who or what the token is for."))
    days = NumberField(
        lazy_gettext("Valid for (days)"),
        default=DEFAULT_LIFETIME.days,
        widget=NumberInput(),
        description=flask_babel.lazy_gettext("Up to %(days)s days.", days=MAX_INITIAL_ACCESS_LIFETIME.days),
        render_kw={"min": 1, "max": MAX_INITIAL_ACCESS_LIFETIME.days},
    )
    max_uses = NumberField(
        lazy_gettext("Maximum clients"),
        default=1,
        widget=NumberInput(),
        description=lazy_gettext("Leave empty for no limit."),
        render_kw={"min": 1},
    )

    def values(self) -> dict[str, Any]:
        """Return the fields as the operation takes them; empty ones get its defaults."""
        values = {
            "name": self.name.data or None,
            "expires_in_days": self.days.data,
            "max_uses": self.max_uses.data,
        }
        return {name: value for name, value in values.items() if value is not None or name == "name"}


@portal_page("/registration-tokens", "GET", "POST")
def registration_tokens(context: PortalContext) -> PageResponse:
    """List the tokens, and create one, whose value is shown once."""
    form = RegistrationTokenForm()
    registration_url = f"{context.organization.issuer}/oauth/register"
    if form.validate_on_submit():
        with form.show_errors(InvalidInput, Conflict, fields={"expires_in_days": "days"}):
            made = create_registration_token(context.actor, form.values())
            return context.done(
                "/registration-tokens",
                kind="registration_token",
                name=made.record.name,
                secret=made.token,
                max_uses=made.record.max_uses,
                expires_at=made.record.expires_at,
            )
    page = list_registration_tokens(context.actor, context.page_request())
    return context.render(
        "portal/registration_tokens/list.html",
        form=form,
        page=page,
        mode=context.organization.settings["oauth"]["dynamic_registration"]["mode"],
        registration_url=registration_url,
    )


@portal_page("/registration-tokens/<token_id>/revoke", "GET", "POST")
def revoke_initial_access(context: PortalContext, token_id: str) -> PageResponse:
    """Confirm and revoke a token."""
    record = get_registration_token(context.actor, token_id)
    context.actor.require("clients:write")
    form = PageForm()
    if form.validate_on_submit():
        revoke_registration_token(context.actor, token_id)
        return context.done("/registration-tokens", "registration-token-revoked")
    impact = (
        gettext("The token can't be used to register more clients."),
        gettext("%(clients)s registered with it will stay.", clients=counted(record.uses, "client")),
    )
    parents = ((gettext("Settings"), "/settings"), (gettext("Initial access tokens"), "/registration-tokens"))
    return context.confirm(
        form,
        Confirmation(
            gettext("Revoke the token for %(name)s?", name=record.name),
            gettext("Revoke token"),
            parents,
            impact,
        ),
    )
