"""The organization chooser, an organization's overview and root's: the state of the instance."""

from __future__ import annotations

from flask import redirect, render_template, request

from app.config import command_line
from app.operations.audit.failure_groups import list_failure_groups
from app.operations.audit.usage import get_clients_traffic, get_traffic
from app.operations.authorization.approval_requests import count_open_requests
from app.operations.clients.access_records import count_pending_requests
from app.operations.clients.client_records import list_clients
from app.operations.maintenance.instance_overview import get_instance_overview, send_test_email
from app.operations.organizations.overview import get_overview
from app.operations.store.rows import PageRequest
from app.operations.users.registrations import count_registrations
from app.portal.context import (
    PageResponse,
    PortalContext,
    lists_all_organizations,
    portal,
    portal_page,
    role_names,
    search_query,
)
from app.portal.labels import AUDIT_ACTIONS, CLIENT_TYPE_LABELS
from app.portal.navigation import first_page
from app.portal.traffic import PERIODS, traffic_chart
from app.rules.errors import Conflict, Forbidden, NotFound, TooManyRequests
from app.rules.languages.translation import lazy_gettext
from app.web.browser_session import current_sessions
from app.web.forms import PageForm

_MIN_SESSIONS_FOR_SEARCH = 9
_MAX_CLIENTS = 5
_HEALTH_TOPICS = {
    "database": lazy_gettext("Database"),
    "janitor": lazy_gettext("Cleanup"),
    "outbox": lazy_gettext("Deliveries"),
    "clock": lazy_gettext("Clock"),
    "disk": lazy_gettext("Disk"),
}
# Labels of the kinds of messages that the outbox delivers.
_DELIVERIES = {
    "mail": lazy_gettext("Email"),
    "mail_about_deletion": lazy_gettext("Email"),
    "webhook": lazy_gettext("Webhook"),
    "backchannel_logout": lazy_gettext("Logout notification"),
    "client_logo": lazy_gettext("Client logo"),
}
_BUSY_PERIODS = (("day", lazy_gettext("Today"), 1), ("week", lazy_gettext("7 days"), 7))


@portal.get("/portal")
def choose_organization() -> PageResponse:
    """List the organizations that this browser is signed in to."""
    sessions = current_sessions()
    if not sessions:
        return redirect("/login", 303)
    query = search_query()
    wanted = query.casefold()
    return render_template(
        "portal/choose.html",
        sessions=[
            session
            for session in sessions
            if wanted in session.organization_name.casefold()
            or wanted in session.organization_slug
            or wanted in session.user_email.casefold()
        ],
        role_names=role_names,
        query=query,
        is_searchable=len(sessions) >= _MIN_SESSIONS_FOR_SEARCH,
        lists_all_organizations=any(map(lists_all_organizations, sessions)),
    )


@portal_page("", "GET")
def overview(context: PortalContext) -> PageResponse:
    """Show the traffic of a period, what needs attention, the newest clients and what changed.

    A new organization gets a checklist. Users who may not see the page, such as members who can register clients, are
    redirected to the first page that they may open.
    """
    actor = context.actor
    if context.organization.is_root and actor.has_permission("instance:read"):
        return _instance_home(context)
    try:
        figures = get_overview(actor)
    except Forbidden:
        page = first_page(context.organization, actor)
        if page is None:
            raise Forbidden(
                lazy_gettext("The portal is for people with a role in this organization.")
            ) from None
        return redirect(page, 303)
    period = next((one for one in PERIODS if one.key == request.args.get("period")), PERIODS[1])
    traffic = get_traffic(actor, hours=period.hours) if actor.has_permission_for_own("clients:read") else None
    clients = (
        list_clients(actor, PageRequest(_MAX_CLIENTS), filters={"sort": "-created_at"}).items
        if traffic
        else ()
    )
    reads_logs = actor.has_permission_for_own("logs:read")
    return context.render(
        "portal/overview.html",
        figures=figures,
        period=period,
        periods=PERIODS,
        traffic=traffic,
        chart=traffic_chart(traffic) if traffic else None,
        clients=clients,
        client_traffic=get_clients_traffic(actor, [client.client_id for client in clients])
        if clients
        else {},
        types=CLIENT_TYPE_LABELS,
        failures=list_failure_groups(actor, hours=period.hours) if reads_logs else None,
        requests=count_open_requests(actor),
        access_requests=count_pending_requests(actor),
        registrations=count_registrations(actor),
        actions=AUDIT_ACTIONS,
        has_colleague=figures.has_colleague,
        has_token=any(client.last_used_at for client in clients),
        is_new=not (figures.clients and figures.has_tokens and figures.has_colleague),
    )


def _instance_home(context: PortalContext, form: PageForm | None = None) -> PageResponse:
    """Show the state of the instance: health, the busiest organizations, failing deliveries and email."""
    key, _, days = next(
        (one for one in _BUSY_PERIODS if one[0] == request.args.get("period")), _BUSY_PERIODS[1]
    )
    return context.render(
        "portal/instance.html",
        form=form or PageForm(),
        overview=get_instance_overview(context.actor, days=days),
        events=get_overview(context.actor).recent_events,
        actions=AUDIT_ACTIONS,
        period=key,
        periods=_BUSY_PERIODS,
        topics=_HEALTH_TOPICS,
        deliveries=_DELIVERIES,
        doctor_command=command_line("doctor"),
    )


@portal_page("/test-email", "POST")
def test_email(context: PortalContext) -> PageResponse:
    """Send an email to the administrator, to try the mail server."""
    if not context.organization.is_root:
        raise NotFound("This page does not exist.")
    form = PageForm()
    if form.validate_on_submit():
        with form.show_errors(Conflict, TooManyRequests):
            send_test_email(context.actor)
            return context.done("", "test-email-sent")
    return _instance_home(context, form)
