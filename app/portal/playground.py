"""The playground: the real flows with a client that the user may change, one request at a time."""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from flask import redirect, request
from wtforms import HiddenField, SelectChoice, SelectField

from app.operations.authorization import playground
from app.operations.authorization.playground import Run, may_try
from app.operations.clients.client_records import ClientRecord, list_clients
from app.operations.clients.clients import get_client
from app.operations.store.rows import PageRequest
from app.operations.tokens.inspection import Check, check_id_token
from app.portal.context import PageResponse, PortalContext, portal_page
from app.rules.audit.failed_requests import CAUSES, default_cause
from app.rules.audit.request_explained import curl_parameter
from app.rules.clients.client_types import (
    AUTHORIZATION_CODE,
    BASIC,
    CLIENT_CREDENTIALS,
    DEVICE_CODE,
    NONE,
    POST,
    PRIVATE_KEY_JWT,
    REFRESH_TOKEN,
)
from app.rules.errors import InvalidInput
from app.rules.scopes import OPENID_SCOPES
from app.web.browser_session import browser_id
from app.web.endpoint_calls import EndpointCall, call_endpoint
from app.web.forms import CheckboxListField, PageForm
from app.web.languages import gettext, lazy_gettext

_PATH = "/playground"
_FLOWS = {
    AUTHORIZATION_CODE: lazy_gettext("Authorization code"),
    CLIENT_CREDENTIALS: lazy_gettext("Client credentials"),
    DEVICE_CODE: lazy_gettext("Device code"),
}
_PROMPTS = {
    "": lazy_gettext("Default"),
    "login": "login",
    "consent": "consent",
    "select_account": "select_account",
    "none": "none",
}
# Only those that a developer would not miss: the rest of the scopes is one click away.
_USUAL_SCOPES = frozenset({"openid", "profile", "email"})
_MEANINGS = {
    "response_type": lazy_gettext("Asks for a one-time code."),
    "client_id": lazy_gettext("Names your client."),
    "redirect_uri": lazy_gettext(
        "Where the code is sent. Here it is the playground, and only for this request of yours."
    ),
    "scope": lazy_gettext("What your client asks for."),
    "state": lazy_gettext("Must come back unchanged. It shows that the response belongs to this browser."),
    "nonce": lazy_gettext("Must be in the ID token, so that nobody can replay an old one."),
    "code_challenge": lazy_gettext("The hash of a secret that only the playground knows."),
    "code_challenge_method": lazy_gettext("The hash is SHA-256."),
    "prompt": lazy_gettext("What the user must do, even if it isn't necessary."),
    "resource": lazy_gettext("The API that the token is for."),
    "grant_type": lazy_gettext("How your client gets tokens."),
    "code": lazy_gettext("The code from the callback."),
    "code_verifier": lazy_gettext("The secret behind the code challenge."),
    "refresh_token": lazy_gettext("The latest refresh token."),
    "device_code": lazy_gettext("The code that the device polls with."),
    "token": lazy_gettext("The token in question."),
}
_BREAKS = {
    "verifier": lazy_gettext("with a wrong verifier"),
    "reuse": lazy_gettext("a second time"),
    "redirect": lazy_gettext("with another redirect URI"),
}
_BREAK_BUTTONS = {
    "verifier": lazy_gettext("Send it with a wrong verifier"),
    "reuse": lazy_gettext("Send it a second time"),
    "redirect": lazy_gettext("Send it with another redirect URI"),
}


class RunForm(PageForm):
    """The parameters of a run: client, grant type, scopes, prompt and resource."""

    client = HiddenField()
    grant_type = HiddenField()
    scopes = CheckboxListField(lazy_gettext("Scopes"))
    prompt = SelectField(lazy_gettext("Prompt"), choices=[SelectChoice(*one) for one in _PROMPTS.items()])
    resource = SelectField(lazy_gettext("For the API"))

    @classmethod
    def of(cls, client: ClientRecord, grant_type: str) -> RunForm:
        """Return the form for a client and grant type, with the usual scopes checked."""
        offered = [
            scope for scope in client.scopes if grant_type != CLIENT_CREDENTIALS or scope not in OPENID_SCOPES
        ]
        usual = [scope for scope in offered if scope in _USUAL_SCOPES] or offered
        form = cls(client=client.client_id, grant_type=grant_type, scopes=usual)
        form.scopes.choices = offered
        form.resource.choices = [SelectChoice("", gettext("None")), *map(SelectChoice, client.resources)]
        if not offered:
            del form.scopes
        if not client.resources:
            del form.resource
        if grant_type != AUTHORIZATION_CODE:
            del form.prompt
        return form

    def choices(self) -> dict[str, Any]:
        """Return the choices as the operation takes them."""
        scopes = self.scopes.data if "scopes" in self else []
        return {
            "grant_type": self.grant_type.data,
            "scopes": [scope for scope in scopes if scope in self.scopes.choices] if scopes else [],
            "prompt": self.prompt.data if "prompt" in self else "",
            "resource": self.resource.data if "resource" in self else "",
        }


@portal_page(_PATH, "GET", "POST")
def playground_home(context: PortalContext) -> PageResponse:
    """Choose a client and what to ask for, and begin a run. ``client`` and ``grant_type`` are chosen in the URL."""
    context.actor.require_for_own("clients:write")
    client = _chosen_client(context)
    clients = _clients(context, client)
    if client is None and len(clients) == 1:
        [client] = clients
    grant_type = request.values.get("grant_type", "")
    grant_types = _grant_types(context, client) if client else {}
    if grant_type not in grant_types:
        grant_type = next(iter(grant_types), "")
    form = RunForm.of(client, grant_type) if client and grant_type else None
    if client and form and form.validate_on_submit():
        with form.show_errors(InvalidInput):
            run = playground.start_run(
                context.actor, client.client_id, form.choices(), browser_id=browser_id()
            )
            return redirect(_url(context, run), 303)
    return context.render(
        "portal/playground.html",
        form=form,
        clients=clients,
        client=client,
        grant_type=grant_type,
        grant_types=grant_types,
        run=None,
    )


@portal_page(f"{_PATH}/callback", "GET")
def playground_callback(context: PortalContext) -> PageResponse:
    """Show what came back from the authorization endpoint. Nothing is stored until the code is sent."""
    context.actor.require_for_own("clients:write")
    answer = {
        name: request.args.get(name, "")[:2000] for name in ("code", "error", "error_description", "iss")
    }
    run = playground.find_run_of_callback(
        context.actor, request.args.get("state", ""), browser_id=browser_id()
    )
    if run is None:
        return context.render("portal/playground_callback.html", code=400)
    return _page(context, run, callback=answer | {"iss_is_right": answer["iss"] == run.organization.issuer})


@portal_page(f"{_PATH}/<run_id>", "GET", "POST")
def playground_run(context: PortalContext, run_id: str) -> PageResponse:
    """Show a run, or send its next request and come back."""
    run = playground.get_run(context.actor, run_id, browser_id=browser_id())
    if request.method == "GET":
        return _page(context, run)
    action = request.form.get("action", "")
    if action in _ACTIONS:
        _ACTIONS[action](context, run)
    return redirect(f"{_url(context, run)}#step-{'next' if action in _NEXT else 'token'}", 303)


def _send(
    context: PortalContext,
    run: Run,
    endpoint: str,
    parameters: Mapping[str, str],
    *,
    bearer: str | None = None,
    broken: str = "",
    code: str | None = None,
) -> dict[str, Any]:
    """Send a request of the run and record it with its response."""
    fields = {name: value for name, value in parameters.items() if value}
    if run.client.token_endpoint_auth_method == NONE and bearer is None:
        fields["client_id"] = run.authorization_parameters["client_id"]
    said = {"endpoint": endpoint} | {name: fields[name] for name in ("grant_type",) if name in fields}
    client = None if bearer is not None else playground.act_as_client(context.actor, run, said)
    answer = call_endpoint(
        EndpointCall(
            context.organization.slug, endpoint, fields, client, bearer, ip_address=context.actor.ip_address
        )
    )
    exchange = {
        "endpoint": endpoint,
        "fields": fields,
        "bearer": bearer,
        "broken": broken,
        "status": answer.status,
        "headers": answer.headers,
        "body": answer.body,
        "milliseconds": answer.milliseconds,
        "request_id": answer.request_id,
        "cause": answer.cause,
    }
    playground.record_exchange(context.actor, run, exchange, code=code)
    return exchange


def _token_request(run: Run, code: str | None) -> dict[str, str] | None:
    """Return the parameters of the flow's token request, or None while a code is missing."""
    document, device = run.document, _device(run)
    asked = {"resource": document["resource"]}
    if document["grant_type"] == CLIENT_CREDENTIALS:
        asked |= {"scope": " ".join(document["scopes"])}
    elif document["grant_type"] == DEVICE_CODE:
        if device is None:
            return None
        asked = {"device_code": device["device_code"]}
    else:
        if not code:
            return None
        asked |= {"code": code, "redirect_uri": run.redirect_uri, "code_verifier": document["verifier"]}
    return {name: value for name, value in {"grant_type": document["grant_type"], **asked}.items() if value}


def _request_tokens(context: PortalContext, run: Run) -> None:
    code = request.form.get("code", "") or run.document["code"]
    broken = request.form.get("break", "")
    parameters = _token_request(run, code)
    if parameters is None:
        return
    if run.document["grant_type"] != AUTHORIZATION_CODE:
        _send(context, run, "token", parameters)
        return
    if broken == "reuse":
        if run.redeemed_at is None:
            _send(context, run, "token", parameters, code=code)
    elif broken == "verifier":
        parameters["code_verifier"] = secrets.token_urlsafe(48)
    elif broken == "redirect":
        parameters["redirect_uri"] = next(iter(run.client.redirect_uris), f"{run.redirect_uri}/other")
    _send(context, run, "token", parameters, broken=broken if broken in _BREAKS else "", code=code)


def _start_device(context: PortalContext, run: Run) -> None:
    asked = {"scope": " ".join(run.document["scopes"]), "resource": run.document["resource"]}
    _send(context, run, "device_authorization", asked)


def _refresh(context: PortalContext, run: Run) -> None:
    token = _latest(run, "refresh_token")
    if token is not None:
        _send(context, run, "token", {"grant_type": REFRESH_TOKEN, "refresh_token": token})


def _use_access_token(context: PortalContext, run: Run) -> None:
    """Send the latest access token to the endpoint that the action is named after."""
    token, endpoint = _latest(run, "access_token"), request.form["action"]
    if token is not None and endpoint == "userinfo":
        _send(context, run, endpoint, {}, bearer=token)
    elif token is not None:
        _send(context, run, endpoint, {"token": token})


def _revoke_all(context: PortalContext, run: Run) -> None:
    for token in dict.fromkeys(run.tokens):
        _send(context, run, "revoke", {"token": token}, broken="all")


_ACTIONS = {
    "device": _start_device,
    "token": _request_tokens,
    "refresh": _refresh,
    "userinfo": _use_access_token,
    "introspect": _use_access_token,
    "revoke": _use_access_token,
    "revoke-all": _revoke_all,
}
_NEXT = frozenset({"refresh", "userinfo", "introspect", "revoke", "revoke-all"})


def _page(context: PortalContext, run: Run, *, callback: dict[str, Any] | None = None) -> PageResponse:
    document = run.document
    exchanges = [_shown(run, exchange) for exchange in document["exchanges"]]
    first = [one for one in exchanges if one["is_first"]]
    parameters = run.authorization_parameters
    received = (callback or {}).get("code") or document["code"]
    token_request = _token_request(run, received)
    return context.render(
        "portal/playground.html",
        run=run,
        run_url=_url(context, run),
        client=run.client,
        clients=_clients(context, run.client),
        grant_types=_grant_types(context, run.client),
        flow=_FLOWS[document["grant_type"]],
        grant_type=document["grant_type"],
        callback=callback,
        callback_error=_explained(default_cause(callback["error"]))
        if callback and callback["error"]
        else None,
        received=received,
        curl=None if token_request is None else _curl(run, "token", token_request),
        code_seconds=run.organization.settings["oauth"]["authorization_code_ttl_seconds"],
        authorize_url=f"{run.organization.issuer}/oauth/authorize?{urlencode(parameters)}",
        parameters=[(name, value, _MEANINGS[name]) for name, value in parameters.items()],
        device=_device(run),
        device_exchange=next((one for one in exchanges if one["endpoint"] == "device_authorization"), None),
        first=first,
        later=[one for one in exchanges if not one["is_first"] and one["endpoint"] != "device_authorization"],
        has_tokens=bool(run.tokens),
        access_token=_latest(run, "access_token"),
        has_refresh_token=_latest(run, "refresh_token") is not None,
        may_introspect=run.client.token_endpoint_auth_method != NONE,
        id_token_checks=_id_token_checks(run),
        authentication=_authentication(run.client),
        milliseconds=sum(one["milliseconds"] for one in exchanges),
        breaks=_BREAKS,
        break_buttons=_BREAK_BUTTONS,
    )


def _shown(run: Run, exchange: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request and its response as the page shows them."""
    grant_type = exchange["fields"].get("grant_type")
    return {
        **exchange,
        "is_first": exchange["endpoint"] == "token" and grant_type != REFRESH_TOKEN,
        "method": "POST" if exchange["bearer"] is None else "GET",
        "title": gettext("Refresh") if grant_type == REFRESH_TOKEN else _TITLES[exchange["endpoint"]],
        "parameters": [(name, value, _MEANINGS[name]) for name, value in exchange["fields"].items()],
        "pretty": _pretty(exchange["body"]),
        # Runs of the release before this one have no length.
        "cut_length": length
        if (length := exchange.get("body_length", 0)) > playground.MAX_BODY_LENGTH
        else None,
        "curl": _curl(run, exchange["endpoint"], exchange["fields"], exchange["bearer"]),
        "explanation": _explained(exchange["cause"]),
    }


_TITLES = {
    "token": lazy_gettext("Token"),
    "device_authorization": lazy_gettext("Device authorization"),
    "userinfo": "UserInfo",
    "introspect": lazy_gettext("Introspect"),
    "revoke": lazy_gettext("Revoke"),
}


def _explained(cause: str | None) -> Any:
    return None if cause is None else CAUSES.get(cause, CAUSES["refused"])


def _pretty(body: str) -> str:
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except ValueError:
        return body


def _curl(run: Run, endpoint: str, fields: Mapping[str, str], bearer: str | None = None) -> str:
    """Return the request as a curl command, with a shell variable in place of the client's credential."""
    url = f"{run.organization.issuer}/oauth/{endpoint}"
    if bearer is not None:
        return f"curl -i {url} \\\n  -H {shlex.quote('Authorization: Bearer ' + bearer)}"
    client_id = run.authorization_parameters["client_id"]
    parts = [f"curl -i {url}"]
    method = run.client.token_endpoint_auth_method
    if method == BASIC:
        parts.append(f'-u "{client_id}:$CLIENT_SECRET"')
    elif method == POST:
        parts.append(f'-d client_id={shlex.quote(client_id)} -d "client_secret=$CLIENT_SECRET"')
    elif method == PRIVATE_KEY_JWT:
        parts.append(
            "-d client_assertion_type=urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
            ' -d "client_assertion=$CLIENT_ASSERTION"'
        )
    if method == NONE:
        fields = {**fields, "client_id": client_id}
    parts += [curl_parameter(name, value) for name, value in fields.items()]
    return " \\\n  ".join(parts)


def _authentication(client: ClientRecord) -> str:
    if client.token_endpoint_auth_method == NONE:
        return gettext("A public client doesn't authenticate.")
    return gettext(
        "The playground sends this for your client without its credentials, which it doesn't "
        "know. Your client authenticates with %(method)s.",
        method=client.token_endpoint_auth_method,
    )


def _device(run: Run) -> dict[str, Any] | None:
    """Return the response of the device authorization endpoint, if it was successful."""
    for exchange in reversed(run.document["exchanges"]):
        if exchange["endpoint"] == "device_authorization" and exchange["status"] == 200:
            body: dict[str, Any] = json.loads(exchange["body"])
            return body
    return None


def _latest(run: Run, name: str) -> str | None:
    for exchange in reversed(run.document["exchanges"]):
        token = playground.issued_tokens(exchange).get(name)
        if token is not None:
            return token
    return None


def _id_token_checks(run: Run) -> list[Check]:
    for exchange in reversed(run.document["exchanges"]):
        tokens = playground.issued_tokens(exchange)
        if "id_token" in tokens:
            is_code = exchange["fields"].get("grant_type") == AUTHORIZATION_CODE
            return check_id_token(
                run.organization,
                tokens["id_token"],
                client_id=run.authorization_parameters["client_id"],
                nonce=run.document["nonce"] if is_code else None,
                access_token=tokens["access_token"],
            )
    return []


def _chosen_client(context: PortalContext) -> ClientRecord | None:
    client_id = request.values.get("client", "")
    if not client_id:
        return None
    client = get_client(context.actor, client_id)
    return client if may_try(context.actor, client) else None


def _clients(context: PortalContext, chosen: ClientRecord | None) -> list[ClientRecord]:
    listed = [
        client
        for client in list_clients(context.actor, PageRequest(100)).items
        if may_try(context.actor, client)
    ]
    if chosen is not None and all(client.id != chosen.id for client in listed):
        listed.insert(0, chosen)
    return listed


def _grant_types(context: PortalContext, client: ClientRecord) -> dict[str, str]:
    is_member = context.actor.home_organization_id == context.actor.organization_id
    return {
        name: label
        for name, label in _FLOWS.items()
        if name in client.grant_types and (is_member or name == CLIENT_CREDENTIALS)
    }


def _url(context: PortalContext, run: Run) -> str:
    return context.url(f"{_PATH}/{run.public_id}")
