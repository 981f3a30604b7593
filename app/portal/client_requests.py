"""Requests of members for clients: the queue, and what is decided about each."""

from __future__ import annotations

from flask import request

from app.operations.authorization.approval_requests import get_client_request, list_client_requests
from app.operations.authorization.client_decisions import approve_client_request, decline_client_request
from app.operations.clients.scopes import list_scopes
from app.portal.blueprint import portal
from app.portal.paging import pages_of, position
from app.portal.visit import Answer, Visit, visiting
from app.portal.words import REQUEST_STATUS, TRUST
from app.rules.authorization.consents import LONGEST_REASON
from app.rules.errors import Conflict, InvalidInput
from app.web.forms import field_errors, is_ticked, text, version_read

_LIST = "portal client requests"


@portal.get("/portal/<organization>/client-requests")
@visiting
def client_requests(visit: Visit) -> Answer:
    """What members asked for: those that wait, or with ``?status=`` those that were decided."""
    wanted = request.args.get("status", "open")
    status = wanted if wanted in REQUEST_STATUS else "open"
    here = visit.organization.id
    page = list_client_requests(visit.actor, after=position(here, _LIST), filters={"status": status})
    return visit.render(
        "portal/client_requests/list.html",
        page=page,
        state=status,
        statuses=REQUEST_STATUS,
        words=_words(visit),
        trust_words=TRUST,
        setting=visit.organization.settings["oauth"]["consent"]["members_may_allow"],
        pager=pages_of(page, here, _LIST),
    )


@portal.route("/portal/<organization>/client-requests/<request_id>/approve", methods=["GET", "POST"])
@visiting
def approve_request(visit: Visit, request_id: str) -> Answer:
    """What an approval means; afterwards members may allow the client."""
    record = get_client_request(visit.actor, request_id)
    visit.actor.require("clients:trust")
    errors: dict[str, str] = {}
    if request.method == "POST":
        try:
            sent = {"verified": is_ticked("verified"), "client_version": version_read()}
            approve_client_request(visit.actor, request_id, sent)
        except Conflict as refusal:
            errors = {"": refusal.description}
        else:
            return visit.done("/client-requests", "client-request-approved")
    return _page(visit, "approve", record, errors)


@portal.route("/portal/<organization>/client-requests/<request_id>/decline", methods=["GET", "POST"])
@visiting
def decline_request(visit: Visit, request_id: str) -> Answer:
    """Words for the member; afterwards the request is closed."""
    record = get_client_request(visit.actor, request_id)
    visit.actor.require("clients:trust")
    errors: dict[str, str] = {}
    if request.method == "POST":
        try:
            decline_client_request(visit.actor, request_id, {"message": text("message") or None})
        except Conflict as refusal:
            errors = {"": refusal.description}
        except InvalidInput as refusal:
            errors = field_errors(refusal)
        else:
            return visit.done("/client-requests", "client-request-declined")
    return _page(visit, "decline", record, errors)


def _page(visit: Visit, name: str, record: object, errors: dict[str, str]) -> Answer:
    return visit.render(
        f"portal/client_requests/{name}.html",
        code=(409 if "" in errors else 400) if errors else 200,
        record=record,
        words=_words(visit),
        trust_words=TRUST,
        errors=errors,
        message=text("message"),
        longest=LONGEST_REASON,
    )


def _words(visit: Visit) -> dict[str, str]:
    return {scope.name: scope.title or scope.name for scope in list_scopes(visit.actor)}
