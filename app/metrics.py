"""Figures of this process: counters, and how long requests took, for Prometheus and OpenTelemetry.

Counting is a change of a dict in memory, under a lock that is held for half a microsecond, so that it may happen on the
way of each token. ``app.web.metrics`` adds what is read at each scrape, and publishes all of it.

No label has a value that callers choose: routes are names of the code, and there are no organizations, clients or
users among them. The portal shows the figures of an organization.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

ROUTE = "gatehouse.route"
"""Key of the WSGI environment: the route, where Flask did not choose it."""
OUTCOME = "gatehouse.outcome"
"""Key of the WSGI environment: the name of a counter and its last label, such as the grant of a token."""
COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
SUM, MIN, MAX = "sum", "min", "max"
# Upper limits in seconds. A token takes one or two milliseconds, a password hash twenty.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
RETRY_REASONS = ("deadlock", "lock_wait", "certification", "connection", "outdated_read", "other")
METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})


class Family(Struct, frozen=True):
    """One metric. ``merge`` is how the values of this machine's workers become one."""

    name: str
    kind: str
    meaning: str
    labels: tuple[str, ...] = ()
    merge: str = SUM


FAMILIES: list[Family] = []
"""All metrics, in the order in which they are published."""


def _family(name: str, kind: str, meaning: str, labels: tuple[str, ...] = (), merge: str = SUM) -> Family:
    family = Family(name, kind, meaning, labels, merge)
    FAMILIES.append(family)
    return family


REQUESTS = _family(
    "gatehouse_requests_total",
    COUNTER,
    "Requests by route, method and status.",
    ("route", "method", "status"),
)
DURATION = _family(
    "gatehouse_request_duration_seconds", HISTOGRAM, "Time until the response.", ("route", "method")
)
TOKENS = _family(
    "gatehouse_tokens_issued_total", COUNTER, "Responses with an access token, by grant type.", ("grant",)
)
REFUSALS = _family(
    "gatehouse_refusals_total", COUNTER, "Rejected OAuth requests, by route and cause.", ("route", "cause")
)
HASHES = _family("gatehouse_password_hashes", GAUGE, "Password hashes that run or wait.", ("state",))
HASHES_REFUSED = _family(
    "gatehouse_password_hashes_refused_total",
    COUNTER,
    "Sign-ins refused because too many passwords are hashed.",
)
CONNECTIONS = _family(
    "gatehouse_database_connections",
    GAUGE,
    "Threads that use or wait for the database (threads) or a pooled connection (transactions), and their limit.",
    ("pool", "state"),
)
AVAILABLE = _family(
    "gatehouse_database_available", GAUGE, "1 while the database answers every worker.", merge=MIN
)
RETRIES = _family(
    "gatehouse_transaction_retries_total", COUNTER, "Repeated transactions, by reason.", ("reason",)
)
FAILURES = _family(
    "gatehouse_transactions_failed_total", COUNTER, "Transactions given up, whose requests got 503."
)
CACHE_AGE = _family(
    "gatehouse_cache_age_seconds", GAUGE, "Time since the oldest worker read what was changed.", merge=MAX
)
CPU = _family("gatehouse_cpu_seconds_total", COUNTER, "User and system time of the workers.")
MEMORY = _family(
    "gatehouse_resident_memory_bytes", GAUGE, "Memory of the workers; pages that they share count for each."
)
STARTS = _family("gatehouse_worker_starts_total", COUNTER, "Workers that began to serve.")
WORKERS = _family("gatehouse_workers", GAUGE, "Workers that serve now.")
BUILD = _family("gatehouse_build_info", GAUGE, "Always 1.", ("version", "python", "database"), MAX)
BACKLOG_AGE = _family(
    "gatehouse_backlog_age_seconds",
    GAUGE,
    "Time since the metrics below were read from the database.",
    merge=MAX,
)
OUTBOX = _family(
    "gatehouse_outbox_messages", GAUGE, "Messages that wait, by kind; counted up to 10,000.", ("kind",), MAX
)
OUTBOX_AGE = _family(
    "gatehouse_outbox_oldest_seconds",
    GAUGE,
    "Age of the oldest message that waits, but for no pause.",
    ("kind",),
    MAX,
)
UNSEALED = _family(
    "gatehouse_audit_unsealed_events", GAUGE, "Audit events outside of the chain, up to 1,000.", merge=MAX
)
UNSEALED_AGE = _family(
    "gatehouse_audit_unsealed_seconds", GAUGE, "Time since all audit events were in the chain.", merge=MAX
)
JANITOR_LAG = _family(
    "gatehouse_janitor_lag_seconds",
    GAUGE,
    "For how long the oldest row is overdue for deletion.",
    ("table",),
    MAX,
)
KEY_ROTATION = _family(
    "gatehouse_signing_key_rotation_seconds",
    GAUGE,
    "Time until the next planned rotation of a signing key; negative if it is overdue.",
    merge=MIN,
)
Value = float | list[float]
"""A number; of a histogram the count of each bucket, the last one without a limit, and the sum."""
Samples = dict[str, dict[tuple[str, ...], Value]]
"""Values by the name of their metric and their labels."""


class Recorder:
    """The counters of this process. ``is_on`` is False if metrics are not published."""

    def __init__(self) -> None:
        self.is_on = False
        self.on_request: Callable[[str | None, str, str, float], None] | None = None
        self.forget()

    def forget(self) -> None:
        """Begin at zero."""
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, ...], float] = defaultdict(float)
        self._requests: dict[tuple[Any, ...], list[float]] = {}

    def count(self, family: Family, *labels: str) -> None:
        """Add one to a counter."""
        with self._lock:
            self._counts[(family.name, *labels)] += 1

    def record_request(self, environ: WSGIEnvironment, status: str, seconds: float) -> None:
        """Count a request, its duration and its outcome."""
        key = (environ.get(ROUTE), environ["REQUEST_METHOD"], status, environ.get(OUTCOME))
        with self._lock:
            entry = self._requests.get(key)
            if entry is None:
                entry = self._add_key(key)
            entry[bisect_left(BUCKETS, seconds)] += 1
            entry[-1] += seconds
        if self.on_request is not None:
            self.on_request(*key[:3], seconds)

    def samples(self) -> Samples:
        """Return the counters as they are now."""
        with self._lock:
            counts = dict(self._counts)
            requests = {key: entry.copy() for key, entry in self._requests.items()}
        # From zero on, so that the first one is seen as an increase.
        found: Samples = defaultdict(dict, {family.name: {(): 0.0} for family in (FAILURES, HASHES_REFUSED)})
        found[RETRIES.name] = {(reason,): 0.0 for reason in RETRY_REASONS}
        for (name, *labels), count in counts.items():
            found[name][tuple(labels)] = count
        for (endpoint, method, status, outcome), entry in requests.items():
            route, count = route_of(endpoint), sum(entry[:-1])
            _add(found[REQUESTS.name], (route, method, status), count)
            _add(found[DURATION.name], (route, method), entry)
            if outcome is not None:
                name, detail = outcome
                _add(found[name], (detail,) if name == TOKENS.name else (route, detail), count)
        return found

    def _add_key(self, key: tuple[Any, ...]) -> list[float]:
        # A caller may invent methods, and each new one would stay in memory.
        known = key if key[1] in METHODS else (key[0], "other", *key[2:])
        return self._requests.setdefault(known, [0.0] * (len(BUCKETS) + 2))


def route_of(endpoint: str | None) -> str:
    """Return the route label of a Flask endpoint: one name for the same view below several paths."""
    if endpoint is None:
        return "unmatched"
    blueprint, _, view = endpoint.partition(".")
    if blueprint == "discovery" and "_" in view and view != "protected_resource":
        return "discovery.metadata"
    return f"{_SAME_VIEWS.get(blueprint, blueprint)}.{view}" if view else endpoint


_SAME_VIEWS = {"organization_oauth": "oauth", "api_v1": "api", "api_v1_only": "api"}


def merge(many: list[Samples], merges: Mapping[str, str]) -> Samples:
    """Return the values of several processes as one; ``merges`` says how, by the name of the metric."""
    merged: Samples = defaultdict(dict)
    for samples in many:
        for name, values in samples.items():
            for labels, value in values.items():
                _add(merged[name], labels, value, merges.get(name, SUM))
    return merged


def _add(values: dict[tuple[str, ...], Value], labels: tuple[str, ...], value: Value, how: str = SUM) -> None:
    before = values.get(labels)
    if before is None:
        values[labels] = value
    elif isinstance(before, list) and isinstance(value, list):
        values[labels] = [one + other for one, other in zip(before, value, strict=True)]
    elif not isinstance(before, list) and not isinstance(value, list):
        values[labels] = {SUM: before + value, MIN: min(before, value), MAX: max(before, value)}[how]


recorder = Recorder()
# The requests of a worker are its own.
os.register_at_fork(after_in_child=recorder.forget)
