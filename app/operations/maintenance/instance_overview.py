"""The figures on root's Home: health, the busiest organizations, deliveries that fail, and a test email.

Every query is bounded and uses an index, and none waits for anything but the database.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from msgspec import Struct
from sqlalchemy import ColumnElement, case, func, select

from app.config import current
from app.database import ACROSS
from app.extensions import db
from app.models.audit import Lease, OutboxMessage, UsageCounter
from app.models.organization import Organization
from app.operations.directory.lookups import get_root_organization
from app.operations.mail import emails
from app.operations.maintenance.database_checks import Finding, check_version, ok, warning
from app.operations.maintenance.doctor import check_clock, check_disk
from app.operations.maintenance.janitor import LEASE
from app.operations.store import audit, clock, rate_limits
from app.operations.store.transactions import read, transaction
from app.operations.store.usage_counters import DAY, FAILED, NONE, SIGN_INS, TOKENS, start_of
from app.rules.actor import Actor
from app.rules.errors import Conflict, TooManyRequests
from app.rules.languages.translation import lazy_gettext as _
from app.rules.store.outgoing_http import DELIVERY_TIMEOUT
from app.uptime import uptime

MAX_ORGANIZATIONS = 8
MAX_WAITING = 1_000
_BUSIEST_SECONDS = 60.0
_MAX_RECEIVERS = 10
# The janitor works once a minute, and messages are found within seconds.
_JANITOR_PATIENCE = timedelta(minutes=10)
_OUTBOX_PATIENCE = timedelta(minutes=2)
# The first attempt takes less.
_FIRST_ATTEMPT = timedelta(minutes=1)
_TEST_EMAILS_PER_HOUR = 10
_HOUR = timedelta(hours=1)


class BusyOrganization(Struct, frozen=True):
    """The traffic of an organization in whole days of UTC, the current one included."""

    slug: str
    name: str
    tokens: int
    sign_ins: int
    failed: int


class FailingReceiver(Struct, frozen=True):
    """A mail server, webhook or client that does not take its messages. ``kind`` is that of the messages."""

    organization_slug: str
    organization_name: str
    kind: str
    receiver: str
    messages: int
    attempts: int
    since: datetime
    next_attempt_at: datetime


class InstanceOverview(Struct, frozen=True):
    """The state of the instance. ``mail_server`` is its host and port, None if there is none."""

    health: tuple[Finding, ...]
    busiest: tuple[BusyOrganization, ...]
    failing: tuple[FailingReceiver, ...]
    mail_server: str | None
    mail_from: str | None


@read
def get_instance_overview(actor: Actor, *, days: int) -> InstanceOverview:
    """Return the state of the instance and the traffic of the last days. Raises Forbidden without ``instance:read``."""
    actor.require("instance:read")
    actor.require("organizations:read")
    server = current().mail_server
    return InstanceOverview(
        health=tuple(_check_health()),
        busiest=_find_busiest(days),
        failing=_find_failing(),
        mail_server=f"{server.host}:{server.port}" if server else None,
        mail_from=server.sender if server else None,
    )


class NoMailServer(Conflict):
    """Emails cannot be sent: no mail server is configured, or the actor has no email address."""

    code = "no_mail_server"


@transaction
def send_test_email(actor: Actor) -> str:
    """Send an email to the actor and return the address. It is one attempt among the others of the outbox.

    Raises NoMailServer, TooManyRequests, and Forbidden without ``instance:write``. Audit: ``mail.tested``.
    """
    actor.require("instance:write")
    if not emails.is_possible() or "@" not in actor.label:
        raise NoMailServer("No mail server is configured. Set GATEHOUSE_SMTP_URL and GATEHOUSE_MAIL_FROM.")
    bucket = rate_limits.bucket_key("test email", actor.label)
    if not rate_limits.consume_quota(actor.organization_id, bucket, _TEST_EMAILS_PER_HOUR, _HOUR):
        raise TooManyRequests(
            "You have sent many test emails. Wait an hour before you send another.",
            retry_after=int(_HOUR.total_seconds()),
        )
    emails.send(get_root_organization(), actor.label, "test", {"url": current().base_url})
    audit.record(actor, "mail.tested", "mail_server", after={"email": actor.label})
    return actor.label


def _check_health() -> Iterator[Finding]:
    yield check_version(db.session.connection())
    now = clock.now()
    ran_at = db.session.scalar(select(Lease.expires_at).where(Lease.name == LEASE))
    fix = _("Let at least one worker run with GATEHOUSE_JANITOR=on, and look for errors in its log.")
    if ran_at is None:
        yield warning(
            "janitor", _("No cleanup has run yet: the first one runs two minutes after the start."), fix
        )
    elif ran_at < now - _JANITOR_PATIENCE:
        yield warning("janitor", _("Expired rows have not been deleted for ten minutes."), fix)
    else:
        yield ok("janitor", _("Expired rows are deleted every minute."))
    due_at = db.session.scalar(
        select(OutboxMessage.available_at)
        .where(OutboxMessage.done_at.is_(None))
        .order_by(OutboxMessage.available_at)
        .limit(1)
        .execution_options(**ACROSS)
    )
    if due_at is not None and due_at < now - _OUTBOX_PATIENCE:
        yield warning(
            "outbox",
            _(
                "Emails and webhooks have waited for %(minutes)s minutes.",
                minutes=int((now - due_at).total_seconds() // 60),
            ),
            _("Look for errors of the outbox in the log of the workers, and for receivers that take long."),
        )
    else:
        yield ok("outbox", _("No email or webhook is overdue."))
    yield from check_clock(current())
    yield from check_disk(current())


# By days: until when, by ``uptime``, and what was found. With 10,000 active organizations a week takes 0.1 seconds.
_busiest: dict[int, tuple[float, tuple[BusyOrganization, ...]]] = {}


def _find_busiest(days: int) -> tuple[BusyOrganization, ...]:
    """Return the busiest organizations, as they were within the last minute."""
    until, found = _busiest.get(days, (0.0, ()))
    if uptime() > until:
        found = _read_busiest(days)
        _busiest[days] = (uptime() + _BUSIEST_SECONDS, found)
    return found


def _read_busiest(days: int) -> tuple[BusyOrganization, ...]:
    """Add up the counters of whole days, which the index of their start finds."""
    today = start_of(DAY, clock.now())
    starts = [today - timedelta(days=back) for back in range(days)]

    def total(metric: str) -> ColumnElement[int]:
        return func.sum(case((UsageCounter.metric == metric, UsageCounter.count), else_=0))

    tokens, sign_ins, failed = (total(metric) for metric in (TOKENS, SIGN_INS, FAILED))
    rows = db.session.execute(
        select(
            UsageCounter.organization_id,
            tokens.label("tokens"),
            sign_ins.label("sign_ins"),
            failed.label("failed"),
        )
        .where(
            UsageCounter.starts_at.in_(starts),
            UsageCounter.span == DAY,
            UsageCounter.client_id == NONE,
            UsageCounter.metric.in_((TOKENS, SIGN_INS, FAILED)),
        )
        .group_by(UsageCounter.organization_id)
        .order_by((tokens + failed).desc(), UsageCounter.organization_id)
        .limit(MAX_ORGANIZATIONS)
        .execution_options(**ACROSS)
    ).all()
    names = _names(row.organization_id for row in rows)
    return tuple(
        BusyOrganization(*names[row.organization_id], int(row.tokens), int(row.sign_ins), int(row.failed))
        for row in rows
        if row.organization_id in names
    )


def _find_failing() -> tuple[FailingReceiver, ...]:
    """Find the receivers of the messages that were tried in vain, among those that are tried next.

    Messages of an organization that has moved are tried in its new cell.
    """
    now = clock.now()
    waiting = (
        select(
            OutboxMessage.organization_id,
            OutboxMessage.kind,
            OutboxMessage.receiver,
            OutboxMessage.attempts,
            OutboxMessage.created_at,
            OutboxMessage.available_at,
        )
        .where(OutboxMessage.done_at.is_(None), OutboxMessage.available_at < now + DELIVERY_TIMEOUT)
        .order_by(OutboxMessage.available_at)
        .limit(MAX_WAITING)
        .subquery()
    )
    message = waiting.c
    rows = db.session.execute(
        select(
            message.organization_id,
            message.kind,
            message.receiver,
            func.count().label("messages"),
            func.max(message.attempts).label("attempts"),
            func.min(message.created_at).label("since"),
            func.min(message.available_at).label("next"),
        )
        .where(message.attempts > 0, message.created_at < now - _FIRST_ATTEMPT)
        .group_by(message.organization_id, message.kind, message.receiver)
        .order_by(func.count().desc())
        .limit(_MAX_RECEIVERS)
        .execution_options(**ACROSS)
    ).all()
    names = _names(row.organization_id for row in rows)
    return tuple(
        FailingReceiver(
            *names[row.organization_id],
            row.kind,
            row.receiver,
            row.messages,
            row.attempts,
            row.since,
            row.next,
        )
        for row in rows
        if row.organization_id in names
    )


def _names(organization_ids: Iterator[str]) -> dict[str, tuple[str, str]]:
    found = select(Organization.id, Organization.slug, Organization.name).where(
        Organization.id.in_(set(organization_ids))
    )
    return {row.id: (row.slug, row.name) for row in db.session.execute(found.execution_options(**ACROSS))}
