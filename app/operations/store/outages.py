"""Outages: when no process of the installation could write to the database.

Every two seconds one worker of all hosts writes the time. If the time before was more than five seconds ago, the
service was not reachable in between: all workers were stopped, or the database was away. Both end without a process
that could tell when they began, so the last report is what shows it.

Times are those that every process measures (``clock.measured_now``): after the database's clock was set back, the
``now`` of processes that run on is ahead of that of new ones, which would look like outages.
"""

from __future__ import annotations

import contextlib
import logging
import time
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery
from app.models.audit import InstanceFact
from app.operations.store import clock
from app.operations.store.transactions import count_changed, read, transaction

INTERVAL = timedelta(seconds=1.5)
# A busy worker may report a little late.
MIN_OUTAGE = timedelta(seconds=5)
# Older ones are forgotten: then a pause that they caused counts as time in which the service was reachable.
_MAX_OUTAGES = 50
HEARTBEAT = "heartbeat"
"""The fact that one worker of all hosts writes every two seconds."""
# A server that runs has reported in this time, and reports again in that one, even on a busy machine.
_RECENT = timedelta(minutes=1)
_REPORTS_WITHIN_SECONDS = 6.0
_log = logging.getLogger("gatehouse.outages")

Outage = tuple[datetime, datetime]
_GO_ON = CompiledQuery(
    update(InstanceFact)
    .where(
        InstanceFact.name == HEARTBEAT,
        InstanceFact.updated_at <= bindparam("due"),
        InstanceFact.updated_at >= bindparam("latest"),
    )
    .values(updated_at=bindparam("now"))
)


def beat() -> None:
    """Report that the service is reachable, unless another worker has just done so, and the outage that this ends."""
    now = clock.measured_now()
    # One statement if there is nothing to report but the time.
    if not _GO_ON.insert(now=now, due=now - INTERVAL, latest=now - MIN_OUTAGE) and _is_due():
        # Otherwise another worker has just created the row.
        with contextlib.suppress(IntegrityError):
            _report()


@read
def unreachable_since(since: datetime) -> timedelta:
    """Return for how long, from ``since`` (a time of ``clock.now``) until now, the service was not reachable."""
    now = clock.measured_now()
    # This process may be ahead of a clock that was set back, and reports have the measured time.
    since += now - clock.now()
    reported = _find_report()
    if reported is None:
        return timedelta()
    value, last = reported
    outages = _end_outage(_parse(value, last, now), last, now)
    overlaps = (end - max(begin, since) for begin, end in outages)
    return sum((each for each in overlaps if each > timedelta()), timedelta())


def is_served() -> bool:
    """Return whether a process is serving this database: whether one reports within the next six seconds.

    Nobody waits for the last report of a server that was stopped a while ago.
    """
    first = _last_report()
    if first is None or not timedelta() <= clock.measured_now() - first < _RECENT:
        return False
    deadline = time.monotonic() + _REPORTS_WITHIN_SECONDS
    while time.monotonic() < deadline:
        time.sleep(0.2)
        if _last_report() != first:
            return True
    return False


@read
def _last_report() -> datetime | None:
    reported = _find_report()
    return None if reported is None else reported[1]


@read
def _is_due() -> bool:
    reported = _find_report()
    # A clock that stepped back must not stop the reports.
    return reported is None or not clock.measured_now() - INTERVAL < reported[1] <= clock.measured_now()


@transaction
def _report() -> None:
    now = clock.measured_now()
    reported = _find_report()
    if reported is None:
        db.session.execute(insert(InstanceFact).values(name=HEARTBEAT, value=_to_json(()), updated_at=now))
        return
    value, last = reported
    before = _parse(value, last, now)
    outages = _end_outage(before, last, now)
    changed = count_changed(
        update(InstanceFact)
        .where(InstanceFact.name == HEARTBEAT, InstanceFact.updated_at == last)
        .values(value=_to_json(outages), updated_at=now)
    )
    if changed and outages != before:
        _log.info("the service was not reachable for %.1f seconds", (now - last).total_seconds())


def _find_report() -> tuple[Any, datetime] | None:
    """Return the outages and the time of the last report."""
    found = select(InstanceFact.value, InstanceFact.updated_at).where(InstanceFact.name == HEARTBEAT)
    row = db.session.execute(found).first()
    return None if row is None else (row.value, row.updated_at)


def _end_outage(outages: tuple[Outage, ...], last: datetime, now: datetime) -> tuple[Outage, ...]:
    """Add the outage between the last report and now, if there was one."""
    return (*outages, (last, now))[-_MAX_OUTAGES:] if now - last > MIN_OUTAGE else outages


def _parse(value: Any, last: datetime, now: datetime) -> tuple[Outage, ...]:
    """Return the outages of a report.

    If the database's clock was set back since, those that would end in the future are left out: the step by which the
    clock went ahead before is none.
    """
    times = ((datetime.fromisoformat(begin), datetime.fromisoformat(end)) for begin, end in value["outages"])
    was_set_back = last - now > MIN_OUTAGE
    return tuple((begin, end) for begin, end in times if end <= now or not was_set_back)


def _to_json(outages: tuple[Outage, ...]) -> dict[str, Any]:
    return {"outages": [[begin.isoformat(), end.isoformat()] for begin, end in outages]}
