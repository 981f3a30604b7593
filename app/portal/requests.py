"""The clients' requests to the OAuth endpoints: what failed and why, each failure explained with its fix, and samples
of what succeeded.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from flask import redirect, request
from werkzeug.wrappers import Response as BaseResponse

from app.operations.audit.audit_events import AuditRecord, list_audit_events
from app.operations.audit.failed_requests import FailedRequestRecord, get_failed_request, list_failed_requests
from app.operations.audit.failure_groups import list_failure_groups
from app.operations.audit.fix_requests import apply_fix, find_fix, find_request_client
from app.operations.audit.sampled_requests import FAILED, OUTCOMES, SUCCEEDED, SampleRecord, list_requests
from app.operations.authorization.playground import may_try
from app.operations.clients.client_records import ClientRecord
from app.operations.clients.clients import get_client
from app.operations.store import clock
from app.operations.store.rows import Page, PageRequest
from app.portal.clients import client_page
from app.portal.context import PageResponse, PortalContext, portal_page, sent_filters
from app.portal.labels import AUDIT_ACTIONS
from app.rules.audit.failed_requests import CAUSES, closest_difference
from app.rules.audit.request_explained import (
    check_parameters,
    curl_command,
    find_consequence,
    find_snippet,
    flow_steps,
)
from app.rules.audit.request_fixes import SECRET
from app.rules.errors import Conflict, DomainError, Forbidden, InvalidInput, NotFound, PreconditionFailed
from app.rules.languages.translation import ENGLISH
from app.web.forms import PageForm, VersionField
from app.web.languages import gettext, lazy_gettext, page_language, translate

_FILTERS = ("cause", "client", "period", "outcome", "request_id")
# The filters of the operation, and their names in the URL.
_LIST_FILTERS = {"cause": "cause", "client_id": "client"}
# Label and hours of each period.
_PERIODS = {
    "day": (lazy_gettext("24 hours"), 24),
    "week": (lazy_gettext("7 days"), 7 * 24),
    "month": (lazy_gettext("30 days"), 30 * 24),
}
_MAX_GROUPS = 100
# The page of a request that is not written yet looks again so often.
_MAX_TRIES = 5
# The page highlights the first different character for these causes.
_URI_CAUSES = frozenset(
    {"redirect_uri_not_registered", "post_logout_redirect_uri_not_registered", "redirect_uri_mismatch"}
)
# The setting that rejected the request, by cause: its topic and its field.
_SETTINGS = {"pkce_or_nonce_missing": "clients#oauth-pkce"}
_POSSESSIONS = ("The client secret", "The client assertion", "The client metadata")
_MAX_SHOWN = 5
_MAX_READ = 25
# Consents and tokens of users are about a client too, but change nothing for its requests.
_CHANGES = ("client.", "client_access.", "credential.", "organization.", "settings.")
_BEFORE = timedelta(hours=24)


class FixForm(PageForm):
    """Makes the change that the page offers."""

    version = VersionField()


@portal_page("/logs", "GET")
def logs(context: PortalContext) -> PageResponse:
    """Show why requests failed, or with ``view=all`` every request; ``cause``, ``client`` and ``period`` filter.

    ``request_id`` opens the explanation of that request. It is written shortly after the response, so the page waits.
    """
    context.actor.require_for_own("logs:read")
    chosen = _filters()
    if "request_id" in chosen:
        return _find_request(context, chosen["request_id"])
    client = None
    if "client" in chosen:
        try:
            client = get_client(context.actor, chosen["client"])
        except (NotFound, Forbidden):
            chosen.pop("client")
    is_list = request.args.get("view") == "all"
    url = context.url("/logs")
    variables: dict[str, Any] = {
        "client": client,
        "chosen": chosen,
        "causes": CAUSES,
        "tabs": _tabs(url, chosen, is_list=is_list),
        "periods": _periods(url, chosen, is_list=is_list),
        "outcomes": _outcomes(url, chosen) if is_list else (),
        "removals": [
            (label, _url(url, {**chosen, name: ""}, is_list=is_list))
            for name, label in (
                ("cause", translate(CAUSES[chosen["cause"]].what) if "cause" in chosen else ""),
                ("client", client.name if client else ""),
            )
            if name in chosen
        ],
    }
    if not is_list:
        groups = list_failure_groups(
            context.actor,
            client_id=chosen.get("client"),
            cause=chosen.get("cause"),
            hours=_PERIODS[chosen["period"]][1],
            limit=_MAX_GROUPS,
            with_users=True,
        )
        return context.render("portal/logs/causes.html", groups=groups, **variables)
    page = _list(context, chosen)
    return context.render("portal/logs/list.html", page=page, **variables)


@portal_page("/clients/<client_id>/logs", "GET")
def client_logs(context: PortalContext, client_id: str) -> PageResponse:
    """List the requests of one client, as a tab of its page."""
    client = get_client(context.actor, client_id)
    context.actor.require("logs:read", owner_id=client.owner_id)
    chosen = _filters()
    url = context.url(f"/clients/{client.client_id}/logs")
    page = _list(context, {**chosen, "client": client.client_id})
    return client_page(
        context,
        client,
        "logs",
        page=page,
        chosen=chosen,
        outcomes=_outcomes(url, chosen, is_list=False),
        periods=_periods(url, chosen, is_list=False),
    )


@portal_page("/logs/<failed_request_id>", "GET")
def log_entry(
    context: PortalContext, failed_request_id: str, error: DomainError | None = None
) -> BaseResponse:
    """Show where the request stopped, received and expected values, and how to fix it."""
    actor = context.actor
    entry = get_failed_request(actor, failed_request_id)
    client = find_request_client(actor, entry)
    sent = dict(entry.parameters)
    offer = find_fix(actor, entry, client)
    same_cause = {"client_id": entry.client_id, "cause": entry.cause}
    others = list_failed_requests(actor, PageRequest(_MAX_SHOWN + 1), filters=same_cause).items
    [recent] = list_failure_groups(actor, client_id=entry.client_id, cause=entry.cause, limit=1) or (None,)
    return context.render(
        "portal/logs/entry.html",
        entry=entry,
        title=_title(entry),
        consequence=find_consequence(entry.endpoint, entry.cause),
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
        parameters=check_parameters(entry.cause, sent, entry.received, entry.expected, client),
        curl=_curl(context, entry, sent, client),
        others=[one for one in others if one.id != entry.id][:_MAX_SHOWN],
        recent=recent,
        events=_events_before(context, entry),
        actions=AUDIT_ACTIONS,
        may_try=client is not None and entry.explanation.is_in_app and may_try(actor, client),
        setting=_SETTINGS.get(entry.cause),
        error=error,
    )


@portal_page("/logs/<failed_request_id>/fix", "POST")
def fix_request(context: PortalContext, failed_request_id: str) -> PageResponse:
    """Make the change that the page offers, if the client is still as the page showed it."""
    try:
        # No client has version 0.
        entry = apply_fix(context.actor, failed_request_id, expected_version=FixForm().version.data or 0)
    except (InvalidInput, Conflict, PreconditionFailed) as error:
        return log_entry(context, failed_request_id, error)
    return context.done(f"/logs/{entry.public_id}", "request-fixed")


def _filters() -> dict[str, str]:
    """Return the valid filters of the URL; ``period`` is always among them."""
    found = {name: value for name, value in sent_filters(_FILTERS).items() if value}
    if found.get("cause") not in CAUSES:
        found.pop("cause", None)
    if found.get("outcome") not in OUTCOMES:
        found.pop("outcome", None)
    if found.get("period") not in _PERIODS:
        found["period"] = "day"
    return found


def _list(context: PortalContext, chosen: dict[str, str]) -> Page[FailedRequestRecord | SampleRecord]:
    since = clock.now() - timedelta(hours=_PERIODS[chosen["period"]][1])
    filters = {"since": since.isoformat()}
    filters |= {name: chosen[field] for name, field in _LIST_FILTERS.items() if field in chosen}
    return list_requests(
        context.actor, context.page_request(), filters=filters, outcome=chosen.get("outcome")
    )


def _find_request(context: PortalContext, request_id: str) -> PageResponse:
    """Redirect to the explanation of the request, or explain that it is not there, and look again in a moment."""
    found = list_requests(context.actor, PageRequest(2), filters={"request_id": request_id}).items
    failed = [one for one in found if isinstance(one, FailedRequestRecord)]
    if len(failed) == 1:
        return redirect(context.url(f"/logs/{failed[0].public_id}"), 303)
    tries = request.args.get("tries", "0")
    number = int(tries) if tries.isascii() and tries.isdecimal() and len(tries) < 3 else _MAX_TRIES
    page = context.render(
        "portal/logs/find.html", requests=found, request_id=request_id, is_waiting=number < _MAX_TRIES
    )
    if not found and number < _MAX_TRIES:
        query = urlencode({"request_id": request_id, "tries": number + 1})
        page.headers["Refresh"] = f"2; url={context.url('/logs')}?{query}"
    return page


def _url(url: str, chosen: dict[str, str], *, is_list: bool) -> str:
    query = {"view": "all"} if is_list else {}
    query |= {name: value for name, value in chosen.items() if value and (name, value) != ("period", "day")}
    return f"{url}?{urlencode(query)}" if query else url


def _tabs(url: str, chosen: dict[str, str], *, is_list: bool) -> list[dict[str, Any]]:
    shared = {**chosen, "outcome": ""}
    return [
        {"label": gettext("By cause"), "url": _url(url, shared, is_list=False), "current": not is_list},
        {"label": gettext("All requests"), "url": _url(url, shared, is_list=True), "current": is_list},
    ]


def _periods(url: str, chosen: dict[str, str], *, is_list: bool) -> list[tuple[str, str, bool]]:
    return [
        (label, _url(url, {**chosen, "period": name}, is_list=is_list), name == chosen["period"])
        for name, (label, _) in _PERIODS.items()
    ]


def _outcomes(url: str, chosen: dict[str, str], *, is_list: bool = True) -> list[tuple[str, str, bool]]:
    return [
        (label, _url(url, {**chosen, "outcome": name}, is_list=is_list), name == chosen.get("outcome", ""))
        for name, label in (
            ("", gettext("All")),
            (FAILED, gettext("Failed")),
            (SUCCEEDED, gettext("Succeeded")),
        )
    ]


def _title(entry: FailedRequestRecord) -> str:
    """Return the explanation with the client's name in place of "The client"; other languages put it in front."""
    sentence = translate(entry.explanation.what).removesuffix(".")
    if page_language() != ENGLISH:
        return f"{entry.client_name}: {sentence}"
    for owned in _POSSESSIONS:
        if sentence.startswith(owned):
            return sentence.replace(owned, f"{owned} of {entry.client_name}", 1)
    if sentence.startswith("The client"):
        return sentence.replace("The client", entry.client_name, 1)
    return sentence


def _events_before(context: PortalContext, entry: FailedRequestRecord) -> list[AuditRecord] | None:
    """Return what changed in the client and its organization before the cause began, or None without permission."""
    if not context.actor.has_permission("audit:read"):
        return None
    began = entry.similar_since or entry.at
    period = {"since": (began - _BEFORE).isoformat(), "until": began.isoformat()}
    found = [
        event
        for about in ({"target": entry.client_id}, {"action": "settings.updated"}, {"action": "organization"})
        for event in list_audit_events(context.actor, PageRequest(_MAX_READ), filters=period | about).items
        if event.action.startswith(_CHANGES)
    ]
    return sorted(found, key=lambda event: event.at, reverse=True)[:_MAX_SHOWN]


def _curl(
    context: PortalContext, entry: FailedRequestRecord, sent: dict[str, str], client: ClientRecord | None
) -> str:
    return curl_command(
        f"{context.organization.issuer}/oauth/{entry.endpoint}",
        entry.method,
        entry.endpoint,
        entry.cause,
        sent,
        entry.client_id,
        client,
    )
