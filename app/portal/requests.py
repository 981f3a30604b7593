"""The clients' requests to the OAuth endpoints: what failed and why, each failure explained with its fix, and samples
of what succeeded.
"""

from __future__ import annotations

from datetime import timedelta

from flask import request
from werkzeug.wrappers import Response as BaseResponse

from app.operations.audit.audit_events import AuditRecord, list_audit_events
from app.operations.audit.failed_requests import FailedRequestRecord, get_failed_request, list_failed_requests
from app.operations.audit.failure_groups import list_failure_groups
from app.operations.audit.fix_requests import apply_fix, find_fix, find_request_client
from app.operations.clients.clients import ClientRecord, get_client
from app.operations.store.transactions import Page
from app.portal.clients import client_page
from app.portal.context import PageResponse, PortalContext, portal_page
from app.portal.labels import AUDIT_ACTIONS
from app.rules.audit.failed_requests import CAUSES, closest_difference
from app.rules.audit.request_explained import curl_command, find_snippet, flow_steps, judge_parameters
from app.rules.audit.request_fixes import SECRET
from app.rules.errors import Conflict, DomainError, InvalidInput, PreconditionFailed

_LISTING = "portal logs"
# The page highlights the first different character for these causes.
_URI_CAUSES = frozenset(
    {"redirect_uri_not_registered", "post_logout_redirect_uri_not_registered", "redirect_uri_mismatch"}
)
# The setting that rejected the request, by cause: its topic and its field.
_SETTINGS = {"pkce_or_nonce_missing": "clients#oauth-pkce"}
_MAX_SHOWN = 5
_BEFORE = timedelta(hours=24)


@portal_page("/logs", "GET")
def logs(context: PortalContext) -> PageResponse:
    """List rejected requests, newest first; ``cause`` and ``request_id`` filter."""
    context.actor.require_for_own("logs:read")
    page, filters = _list(context)
    return context.render(
        "portal/logs/list.html",
        page=page,
        filters=filters,
        causes=CAUSES,
        pager=context.pager(page, _LISTING),
    )


@portal_page("/clients/<client_id>/logs", "GET")
def client_logs(context: PortalContext, client_id: str) -> PageResponse:
    """List the rejected requests of one client, as a tab of its page."""
    client = get_client(context.actor, client_id)
    context.actor.require("logs:read", owner_id=client.created_by_user_id)
    page, filters = _list(context, client_id=client.client_id)
    return client_page(
        context,
        client,
        "logs",
        page=page,
        filters=filters,
        causes=CAUSES,
        pager=context.pager(page, f"{_LISTING} {client.client_id}"),
    )


@portal_page("/logs/<failed_request_id>", "GET")
def log_entry(context: PortalContext, failed_request_id: str) -> PageResponse:
    """Show where the request stopped, received and expected values, and how to fix it."""
    return _entry(context, get_failed_request(context.actor, failed_request_id))


@portal_page("/logs/<failed_request_id>/fix", "POST")
def fix_request(context: PortalContext, failed_request_id: str) -> PageResponse:
    """Make the change that the page offers, if the client is still as the page showed it."""
    version = request.form.get("version", "")
    try:
        entry = apply_fix(
            context.actor,
            failed_request_id,
            expected_version=int(version) if version.isascii() and version.isdecimal() else 0,
        )
    except (InvalidInput, Conflict, PreconditionFailed) as error:
        return _entry(context, get_failed_request(context.actor, failed_request_id), error)
    return context.done(f"/logs/{entry.public_id}", "request-fixed")


def _list(
    context: PortalContext, client_id: str | None = None
) -> tuple[Page[FailedRequestRecord], dict[str, str]]:
    values = {name: request.args.get(name, "").strip()[:64] for name in ("cause", "request_id")}
    filters = {name: value for name, value in values.items() if value}
    if filters.get("cause") not in CAUSES:
        filters.pop("cause", None)
    listing = _LISTING if client_id is None else f"{_LISTING} {client_id}"
    all_filters = filters if client_id is None else filters | {"client_id": client_id}
    after = context.position(listing)
    return list_failed_requests(context.actor, after=after, filters=all_filters), filters


def _entry(
    context: PortalContext, entry: FailedRequestRecord, error: DomainError | None = None
) -> BaseResponse:
    actor = context.actor
    client = find_request_client(actor, entry)
    offer = find_fix(actor, entry, client)
    same_cause = {"client_id": entry.client_id, "cause": entry.cause}
    others = list_failed_requests(actor, limit=_MAX_SHOWN + 1, filters=same_cause).items
    [recent] = list_failure_groups(actor, client_id=entry.client_id, cause=entry.cause, limit=1) or (None,)
    return context.render(
        "portal/logs/entry.html",
        entry=entry,
        title=_title(entry),
        steps=flow_steps(entry.endpoint, entry.parameters.get("grant_type"), entry.cause),
        difference=closest_difference(entry.received, entry.expected)
        if entry.received and entry.cause in _URI_CAUSES
        else None,
        offer=offer,
        fix_url=context.url(f"/clients/{entry.client_id}/credentials/new")
        if offer is not None and offer.fix.target == SECRET
        else context.url(f"/logs/{entry.public_id}/fix"),
        is_secret_fix=offer is not None and offer.fix.target == SECRET,
        snippet=find_snippet(entry.cause, entry.received, entry.expected, client),
        parameters=judge_parameters(entry.cause, entry.parameters, entry.received, entry.expected, client),
        curl=_curl(context, entry, client),
        others=[one for one in others if one.id != entry.id][:_MAX_SHOWN],
        recent=recent,
        events=_events_before(context, entry),
        actions=AUDIT_ACTIONS,
        may_try=client is not None
        and actor.has_permission("clients:write", owner_id=client.created_by_user_id),
        setting=_SETTINGS.get(entry.cause),
        error=error,
    )


def _title(entry: FailedRequestRecord) -> str:
    """Return the explanation with the client's name in place of "The client"."""
    sentence = entry.explanation.what.removesuffix(".")
    return (
        sentence.replace("The client", entry.client_name, 1)
        if sentence.startswith("The client")
        else sentence
    )


def _events_before(context: PortalContext, entry: FailedRequestRecord) -> list[AuditRecord] | None:
    """Return what changed in the client and the settings before the cause began, or None without permission."""
    if not context.actor.has_permission("audit:read"):
        return None
    began = entry.similar_since or entry.at
    period = {"since": (began - _BEFORE).isoformat(), "until": began.isoformat()}
    found = [
        event
        for about in ({"target": entry.client_id}, {"action": "settings.updated"})
        for event in list_audit_events(context.actor, limit=_MAX_SHOWN, filters=period | about).items
    ]
    return sorted(found, key=lambda event: event.at, reverse=True)[:_MAX_SHOWN]


def _curl(context: PortalContext, entry: FailedRequestRecord, client: ClientRecord | None) -> str:
    return curl_command(
        f"{context.organization.issuer}/oauth/{entry.endpoint}",
        entry.method,
        entry.endpoint,
        entry.cause,
        entry.parameters,
        entry.client_id,
        client,
    )
