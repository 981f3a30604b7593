"""The first tab of a client: its traffic, its failures, the rotation of its secret, and what production still needs."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import urlsplit

from flask import request
from msgspec import Struct

from app.operations.audit.failed_requests import can_read_failed_requests
from app.operations.audit.failure_groups import list_failure_groups
from app.operations.audit.usage import Traffic, get_credential_use, get_traffic
from app.operations.clients.client_records import ClientRecord
from app.operations.clients.clients import get_client
from app.operations.clients.ownership import find_owner
from app.operations.store import clock
from app.portal.clients import client_page, may_read_logs
from app.portal.context import PageResponse, PortalContext, portal_page
from app.portal.quickstarts import has_token, quickstart_snippet
from app.portal.traffic import PERIODS, credential_chart, traffic_chart
from app.web.languages import gettext, percent

_WEEK = 7 * 24
_MAX_ERROR_RATE = 0.01
_RECENT = timedelta(days=7)


class Check(Struct, frozen=True):
    """One thing that a client in production should have. ``tab`` is where to change it."""

    is_met: bool
    text: str
    tab: str | None = None


@portal_page("/clients/<client_id>", "GET")
def client(context: PortalContext, client_id: str) -> PageResponse:
    """Show how the client is doing, and what to do next."""
    actor = context.actor
    found = get_client(actor, client_id)
    may_see_secrets = actor.has_permission("credentials:read", owner_id=found.owner_id)
    uses_secret = may_see_secrets and found.uses_secret
    traffic = get_traffic(actor, hours=_WEEK, client_id=found.client_id)
    may_read_log = can_read_failed_requests(actor)
    use = get_credential_use(actor, found.client_id) if uses_secret else None
    return client_page(
        context,
        found,
        "",
        template="overview",
        owner=find_owner(actor, found.owner_id),
        traffic=traffic,
        chart=traffic_chart(traffic),
        comparison=PERIODS[1].comparison,
        failures=list_failure_groups(actor, client_id=found.client_id, limit=1) if may_read_log else (),
        secrets=[secret for secret in use.secrets if secret.is_live] if use else (),
        rotation=credential_chart(use) if use else None,
        checks=_checks(
            found, traffic, has_first_token=has_token(actor, found), may_read_logs=may_read_logs(actor, found)
        ),
        snippet=quickstart_snippet(found, request.args.get("lang", ""), organization=context.organization),
    )


def _checks(
    client: ClientRecord, traffic: Traffic, *, has_first_token: bool, may_read_logs: bool
) -> list[Check]:
    """Return what a client in production should have, computed from its data."""
    checks = [Check(has_first_token, gettext("First token issued"), "quickstart")]
    if "authorization_code" in client.grant_types:
        omitted = client.pkce_omitted_at
        checks += [
            Check(
                client.pkce_used_at is not None
                and (omitted is None or clock.now() - omitted > _RECENT or client.require_pkce),
                gettext("Uses PKCE in every authorization request"),
                "advanced",
            ),
            Check(not _local_uris(client), gettext("No redirect URI on localhost"), "redirects"),
            Check(
                bool(client.logo_uri and client.policy_uri) or client.trust == "first_party",
                gettext("Logo and privacy policy on the consent page"),
                "details",
            ),
        ]
    if client.type == "web":
        checks.append(
            Check(
                client.backchannel_logout_uri is not None,
                gettext("Signs users out everywhere (back-channel logout)"),
                "advanced",
            )
        )
    rate = traffic.totals.error_rate
    checks.append(
        Check(
            rate is not None and rate < _MAX_ERROR_RATE,
            gettext("Less than %(rate)s of requests failed this week", rate=percent(_MAX_ERROR_RATE * 100)),
            "logs" if may_read_logs else None,
        )
    )
    return checks


def _local_uris(client: ClientRecord) -> list[str]:
    if client.type == "native":
        return []
    hosts = {"localhost", "127.0.0.1", "::1"}
    return [uri for uri in client.redirect_uris if urlsplit(uri).hostname in hosts]
