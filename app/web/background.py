"""Background work of a serving process: changes, deliveries, audit sealing, counters, purging, key rotation.

Every worker of every host has these threads. What one worker of a host is enough for is left to the one that leads it
(``cache_invalidation.is_lead``), so that idle workers ask the database nothing; for what only one of all hosts may do,
leases elect it.
"""

from __future__ import annotations

import itertools
import logging
import random
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from flask import Flask

from app.config import Config
from app.database import breaker
from app.fast_path import cache_invalidation
from app.operations.audit import webhook_deliveries
from app.operations.audit.chain import ChainHead, seal_pending_events
from app.operations.audit.chain_verification import remember_heads
from app.operations.clients import credential_revocation, logos
from app.operations.grants.key_rotation import rotate_due_keys
from app.operations.mail import delivery
from app.operations.maintenance.dispatcher import THREADS, Dispatcher
from app.operations.maintenance.janitor import purge_expired
from app.operations.store import checkpoints, clock, outages, request_limits, usage_counters
from app.operations.tokens import logout
from app.operations.users import erased_labels, import_runner, password_resets, registrations
from app.operations.users.import_uploads import import_ready
from app.rules.actor import Actor
from app.rules.audit.events import AUDIT_LOGGER, format_checkpoint
from app.web import failed_requests, metrics, telemetry

EVERY_SECONDS = 60.0
# A backlog of expired rows must not hold up what else is due each minute.
MAX_PURGE_SECONDS = 300.0
HEARTBEAT_EVERY_SECONDS = 2.0
CHECKPOINT_EVERY_SECONDS = 10.0
SEALS_EVERY_SECONDS = 6.0
_AFTER_A_FAULT_SECONDS = 5.0
_POLLS_PER_MEASUREMENT = 12
_log = logging.getLogger("gatehouse.janitor")
_audit_log = logging.getLogger(AUDIT_LOGGER)


def start(app: Flask) -> None:
    """Start the threads, the janitor only if it is enabled. They end with the process."""
    config: Config = app.config["GATEHOUSE"]
    with app.app_context():
        guard = breaker()
    # Not a daemon: a process that is stopped waits for its last counters.
    threading.Thread(target=_count, args=(app,), name="usage").start()
    metrics.start(app)
    if (stop_telemetry := telemetry.start(app)) is not None:
        telemetry.stop_with_process(stop_telemetry)
    logout.register()
    credential_revocation.register()
    delivery.register()
    password_resets.register_recovery_delivery()
    registrations.register_registration_delivery()
    erased_labels.register()
    logos.register()
    webhook_deliveries.register_webhook_delivery()
    dispatch = partial(_dispatch, app, Dispatcher())
    for name, target in (
        ("follower", partial(_follow, app)),
        ("circuit breaker", guard.watch),
        ("failed requests", partial(failed_requests.write_for_ever, app)),
        ("request limits", partial(_share_counts, app)),
        *((f"dispatcher-{number}", dispatch) for number in range(THREADS)),
        ("heartbeat", partial(_beat, app)),
        ("checkpoints", partial(_checkpoint, app)),
        ("sealer", partial(_seal, app)),
        ("importer", partial(_import, app)),
        *([("janitor", partial(_work, app))] if config.janitor else ()),
    ):
        threading.Thread(target=target, name=name, daemon=True).start()


@contextmanager
def _turn(app: Flask, fault: str, level: int = logging.WARNING) -> Iterator[None]:
    """Run one turn of a thread. An error ends the turn and not the thread: until the next one all may be well again."""
    with app.app_context():
        try:
            yield
        except Exception as error:  # noqa: BLE001 - it is logged, and what the turn left undone is still due
            _log.log(level, "%s: %s", fault, type(error).__name__)
            _log.debug("the fault", exc_info=True)


def _follow(app: Flask) -> None:
    pause = threading.Event()
    for turn in itertools.count():
        # Until changes can be read, cached entries expire within a second.
        with _turn(app, "changes could not be read", logging.DEBUG):
            cache_invalidation.follow()
            # The leader asks the database, unless no process needs the time, and shares it with the others.
            if cache_invalidation.is_in_use() and (
                turn % _POLLS_PER_MEASUREMENT == 0 or not cache_invalidation.is_lead()
            ):
                clock.measure()
        pause.wait(cache_invalidation.POLL_SECONDS)


def _count(app: Flask) -> None:
    """Write counters every few seconds, and for the last time when the main thread has ended."""
    main = threading.main_thread()
    while main.is_alive():
        main.join(_jittered(usage_counters.FLUSH_SECONDS))
        with _turn(app, "counters could not be written"):
            usage_counters.counters.flush()


def _share_counts(app: Flask) -> None:
    pause = threading.Event()
    while True:
        pause.wait(request_limits.SHARE_EVERY_SECONDS)
        # Until the counts can be shared, this process goes by its own.
        with _turn(app, "the counts of request limits could not be shared", logging.DEBUG):
            request_limits.counts.share()


def _dispatch(app: Flask, dispatcher: Dispatcher) -> None:
    pause = threading.Event()
    while True:
        is_done = False
        # What was taken is due again when its lease ends.
        with _turn(app, "the outbox could not be read or written"):
            dispatcher.deliver_next()
            is_done = True
        if not is_done:
            pause.wait(_AFTER_A_FAULT_SECONDS)


def _beat(app: Flask) -> None:
    pause = threading.Event()
    while True:
        # A worker that takes over reports before the pause counts as an outage.
        seconds = cache_invalidation.POLL_SECONDS
        # The next report that can be written contains the outage.
        with _turn(app, "the heartbeat could not be written", logging.DEBUG):
            if cache_invalidation.is_lead():
                seconds = HEARTBEAT_EVERY_SECONDS
                outages.beat()
        pause.wait(seconds)


def _checkpoint(app: Flask) -> None:
    pause = threading.Event()
    while True:
        with _turn(app, "the checkpoint could not be raised"):
            if cache_invalidation.is_lead():
                checkpoints.advance()
        pause.wait(_jittered(CHECKPOINT_EVERY_SECONDS))


def _seal(app: Flask) -> None:
    me = secrets.token_hex(8)
    pause = threading.Event()
    grown: dict[str, ChainHead] = {}
    told = time.monotonic()
    for turn in itertools.count():
        pause.wait(_jittered(SEALS_EVERY_SECONDS))
        with _turn(app, "audit events could not be sealed"):
            if not cache_invalidation.has_turn(turn):
                continue
            heads = seal_pending_events(Actor.system("", "sealer"), holder=me) or {}
            remember_heads(heads.values())
            grown |= heads
        if grown and time.monotonic() - told > EVERY_SECONDS:
            for head in grown.values():
                _audit_log.info(format_checkpoint(head.organization_id, head.length, head.mac))
            grown, told = {}, time.monotonic()


def _import(app: Flask) -> None:
    me = secrets.token_hex(8)
    while True:
        is_ready = import_ready.wait(_jittered(import_runner.POLL_INTERVAL_SECONDS))
        import_ready.clear()
        # The state is in the database, and the next run continues.
        with _turn(app, "imports could not go on"):
            if is_ready or cache_invalidation.is_lead():
                import_runner.process_due_imports(Actor.system("", "importer"), holder=me)


def _is_past(tick: float) -> bool:
    return time.monotonic() > tick


def _work(app: Flask) -> None:
    me = secrets.token_hex(8)
    pause = threading.Event()
    for turn in itertools.count():
        pause.wait(_jittered(EVERY_SECONDS, 0.5))
        _purge_and_rotate(app, me, turn)


def _purge_and_rotate(app: Flask, me: str, turn: int) -> None:
    """Purge, and rotate keys also if that fails."""
    with _turn(app, "expired rows were not deleted"):
        if cache_invalidation.has_turn(turn):
            is_over = partial(_is_past, time.monotonic() + MAX_PURGE_SECONDS)
            if gone := purge_expired(Actor.system("", "janitor"), holder=me, should_stop=is_over):
                _log.info("purged %s", ", ".join(f"{table} {count}" for table, count in sorted(gone.items())))
    with _turn(app, "signing keys were not rotated"):
        if cache_invalidation.has_turn(turn) and (
            rotated := rotate_due_keys(Actor.system("", "key rotation"))
        ):
            _log.info("signing keys published or rotated: %s", ", ".join(rotated))


def _jittered(seconds: float, most: float = 0.25) -> float:
    """Return a time around this one, so that workers that started together do not ask together."""
    return seconds * random.uniform(1 - most, 1 + most)  # noqa: S311 - jitter is no secret
