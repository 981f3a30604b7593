"""Figures of an organization by hour or day: tokens, requests, failures, sign-ins and active users."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from app.api.endpoints import Endpoints, filter_queries
from app.api.representations import ClientId, Count, CredentialId, Representation
from app.operations.audit import usage_counts
from app.operations.audit.usage_counts import INTERVALS, METRICS
from app.rules.shapes import OneOf, SchemaOnly, described
from app.web.bearer import ApiContext

endpoints = Endpoints("Usage", "clients")


class UsageCount(Representation):
    """How often something happened in an hour or day. Zeros are left out."""

    start: Annotated[datetime, described("When the hour or day began, in UTC.")]
    metric: Annotated[
        str,
        OneOf(METRICS),
        described(
            "`tokens`: responses with an access token. `requests`: requests of clients that authenticated. `failed`: "
            "requests as in the log of failed requests. `sign_ins`: sessions started. `active_users`: different users "
            "who started a session or signed in to a client."
        ),
    ]
    count: Annotated[Count, described("How often, or how many users.")]
    detail: Annotated[
        str | None,
        described(
            "Grant type of tokens, endpoint and outcome of requests (`token:succeeded`), cause of failures, first "
            "method of sign-ins. Null unless grouped by it."
        ),
    ]
    client_id: Annotated[ClientId | None, described("The client. Null unless grouped by it.")]
    credential_id: Annotated[
        CredentialId | None,
        described("The secret that authenticated the client. Null for none, and unless grouped by it."),
    ]


class Usage(Representation):
    """Counts by hour or day."""

    interval: Annotated[str, OneOf(INTERVALS), described("The length of the period that each count covers.")]
    since: Annotated[datetime, described("When the first hour or day began.")]
    until: Annotated[datetime, described("When the last hour or day ends. That of the present is under way.")]
    counts: Annotated[
        list[UsageCount],
        SchemaOnly(maxItems=usage_counts.MAX_COUNTS),
        described("By time, then metric."),
    ]


@endpoints.get("/organizations/<slug>/usage", returns=Usage, query=filter_queries(usage_counts.FILTERS))
def get_usage(context: ApiContext, slug: str) -> object:
    """Get the usage of an organization.

    Counters of the last 90 days, some seconds old. Days begin at midnight UTC. With `clients:read:own` it has only
    clients that the user owns, without sign-ins and active users, which no client has. Grouped by client it has
    the 500 that were used last.
    """
    return usage_counts.get_usage(context.actor, slug, context.parameters)
