"""Signing in with an identity provider, and the accounts there that a user has linked."""

from __future__ import annotations

from flask import redirect, request
from werkzeug.exceptions import MethodNotAllowed
from werkzeug.wrappers import Response

from app.account.context import (
    AccountContext,
    account,
    account_page,
    restore_return_parameters,
    return_parameters,
)
from app.account.sign_in import (
    begin_with_provider,
    continue_sign_in,
    current_browser,
    pending_request,
    refuse_provider,
)
from app.operations.authorization.authorization_requests import RequestEnded
from app.operations.directory.lookups import get_organization_by_slug
from app.operations.sign_in.linked_identities import list_own_identities, unlink_own_identity
from app.operations.sign_in.provider_answers import ProviderAnswer
from app.operations.sign_in.provider_metadata import ProviderUnusable
from app.operations.users.provider_sign_in import (
    INVITATION,
    ProviderOutcome,
    ProviderRefused,
    begin_linking,
    complete_provider_sign_in,
)
from app.rules.errors import Conflict, NotFound
from app.web.browser_session import account_actor, anonymous_actor
from app.web.forms import PageForm
from app.web.headers import page_class

_LIST = "/security/identities"


@account.post("/organizations/<organization>/login/with/<provider>")
@page_class("flow")
def begin_provider_sign_in_action(organization: str, provider: str) -> Response:
    """Redirect to the identity provider. The parameters say where the sign-in leads."""
    org = get_organization_by_slug(organization)
    pending = pending_request(org)
    parameters = return_parameters()
    if INVITATION in request.form:
        parameters[INVITATION] = request.form[INVITATION]
    return begin_with_provider(org, provider, pending, parameters)


@account.get("/organizations/<organization>/login/with/<provider>/callback")
@page_class("flow")
def provider_callback(organization: str, provider: str) -> Response:
    """Complete what began at the identity provider: a sign-in, or linking an account."""
    if request.method == "HEAD":
        raise MethodNotAllowed(["GET"])
    org = get_organization_by_slug(organization)
    own_actor = account_actor(org.id)
    answer = ProviderAnswer(
        state=request.args.get("state", ""),
        code=request.args.get("code", ""),
        error=request.args.get("error", ""),
        issuer=request.args.get("iss"),
    )
    outcome = complete_provider_sign_in(
        anonymous_actor(org), org, provider, answer, current_browser(org), own_actor=own_actor
    )
    invitation = outcome.parameters.get(INVITATION)
    restore_return_parameters(
        {name: value for name, value in outcome.parameters.items() if name != INVITATION}
    )
    if outcome.is_linking and own_actor is not None:
        return _linked(AccountContext(org, own_actor), outcome)
    if invitation is not None and isinstance(outcome.result, ProviderRefused):
        return refuse_provider(org, provider, None, outcome.result.reason, invitation)
    try:
        pending = pending_request(org)
    except RequestEnded:
        # The app's request ended in another tab, or took too long. The sign-in has succeeded or failed without it.
        restore_return_parameters({})
        pending = None
    if isinstance(outcome.result, ProviderRefused):
        return refuse_provider(org, provider, pending, outcome.result.reason)
    if outcome.result is None:
        return refuse_provider(org, provider, pending, "expired")
    return continue_sign_in(org, outcome.result, pending)


@account_page("/account/security/identities", "GET")
@page_class("flow")
def identities_page(context: AccountContext, form: PageForm | None = None) -> Response:
    """List the accounts that the user has linked, and the providers of which they may link one."""
    own = list_own_identities(context.actor)
    return context.render("account/identities.html", form=form or PageForm(), own=own)


@account_page("/account/security/identities/link/<provider>", "POST")
@page_class("flow")
def link_identity_action(context: AccountContext, provider: str) -> Response:
    """Redirect to the identity provider, to link an account there. Requires a recent sign-in."""
    try:
        return redirect(begin_linking(context.actor, provider, current_browser(context.organization)), 303)
    except NotFound:
        return context.done(_LIST, "identity-withdrawn")
    except ProviderUnusable:
        return context.done(_LIST, "identity-failed")


@account_page("/account/security/identities/<identity_id>/remove", "POST")
@page_class("flow")
def unlink_identity_action(context: AccountContext, identity_id: str) -> Response:
    """Remove the link of an account. Requires a recent sign-in with two-step verification."""
    form = PageForm()
    with form.show_errors(Conflict):
        token = unlink_own_identity(context.actor, identity_id)
        return context.done(_LIST, "identity-removed", token=token)
    return identities_page(context, form)


def _linked(context: AccountContext, outcome: ProviderOutcome) -> Response:
    reason = outcome.result.reason if isinstance(outcome.result, ProviderRefused) else "linked"
    return context.done(_LIST, f"identity-{reason}")
