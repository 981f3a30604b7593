"""Signing in with an identity provider, and the accounts there that a user has linked."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from flask import redirect, request
from werkzeug.exceptions import MethodNotAllowed
from werkzeug.wrappers import Response

from app.account.context import (
    AccountContext,
    account,
    account_page,
    provider_name,
    restore_return_parameters,
    return_parameters,
)
from app.account.forms import SignInForm
from app.account.sign_in import continue_sign_in, current_browser, pending_request, sign_in_form
from app.operations.authorization.authorization_requests import AuthorizationRequestRecord, RequestEnded
from app.operations.directory.lookups import get_organization_by_slug
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.sign_in.linked_identities import list_own_identities, unlink_own_identity
from app.operations.sign_in.provider_answers import ProviderAnswer
from app.operations.sign_in.provider_metadata import ProviderUnusable
from app.operations.users.provider_sign_in import (
    INVITATION,
    ProviderOutcome,
    ProviderRefused,
    begin_linking,
    begin_provider_sign_in,
    complete_provider_sign_in,
)
from app.rules.authorization.interaction import demands_new_sign_in
from app.rules.errors import Conflict
from app.web.browser_session import account_actor, anonymous_actor
from app.web.forms import PageForm
from app.web.headers import page_class

_LIST = "/security/identities"
_STATUS = {"expired": 400, "cancelled": 400, "failed": 400, "unavailable": 503}


@account.post("/organizations/<organization>/login/with/<provider>")
@page_class("flow")
def begin_provider_sign_in_action(organization: str, provider: str) -> Response:
    """Redirect to the identity provider. The parameters say where the sign-in leads."""
    org = get_organization_by_slug(organization)
    pending = pending_request(org)
    sent = pending.sent if pending is not None else {}
    parameters = return_parameters()
    if INVITATION in request.form:
        parameters[INVITATION] = request.form[INVITATION]
    try:
        url = begin_provider_sign_in(
            org,
            provider,
            current_browser(org),
            parameters=parameters,
            login_hint=sent.get("login_hint", "")[:254],
            must_be_fresh="reauthenticate" in parameters or demands_new_sign_in(sent),
            selects_account="account" in parameters or "select_account" in sent.get("prompt", "").split(),
        )
    except ProviderUnusable:
        return _refuse(org, provider, pending, "unavailable")
    return redirect(url, 303)


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
        query = urlencode({"refused": outcome.result.reason, "provider": provider})
        return redirect(f"/organizations/{org.slug}/invite/{quote(invitation)}?{query}", 303)
    try:
        pending = pending_request(org)
    except RequestEnded:
        # The app's request ended in another tab, or took too long. The sign-in has succeeded or failed without it.
        restore_return_parameters({})
        pending = None
    if isinstance(outcome.result, ProviderRefused):
        return _refuse(org, provider, pending, outcome.result.reason)
    if outcome.result is None:
        return _refuse(org, provider, pending, "expired")
    return continue_sign_in(org, outcome.result, pending)


@account_page("/account/security/identities", "GET")
@page_class("flow")
def identities_page(context: AccountContext) -> Response:
    """List the accounts that the user has linked, and the providers of which they may link one."""
    return _identities_page(context, PageForm())


@account_page("/account/security/identities/link/<provider>", "POST")
@page_class("flow")
def link_identity_action(context: AccountContext, provider: str) -> Response:
    """Redirect to the identity provider, to link an account there. Requires a recent sign-in."""
    try:
        return redirect(begin_linking(context.actor, provider, current_browser(context.organization)), 303)
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
    return _identities_page(context, form)


def _identities_page(context: AccountContext, form: PageForm) -> Response:
    own = list_own_identities(context.actor)
    return context.render("account/identities.html", form=form, own=own)


def _linked(context: AccountContext, outcome: ProviderOutcome) -> Response:
    reason = outcome.result.reason if isinstance(outcome.result, ProviderRefused) else "linked"
    return context.done(_LIST, f"identity-{reason}")


def _refuse(
    organization: OrganizationSnapshot,
    slug: str,
    pending: AuthorizationRequestRecord | None,
    reason: str,
) -> Response:
    return sign_in_form(
        organization,
        pending,
        SignInForm(formdata=None),
        refused_provider=(reason, provider_name(organization, slug)),
        code=_STATUS.get(reason, 403),
    )
