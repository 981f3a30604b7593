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
from app.operations.users import import_runner, password_resets, registrations
from app.operations.users.import_uploads import import_ready
from app.rules.actor import Actor
from app.rules.audit.events import format_checkpoint
from app.web import failed_requests, metrics, telemetry

EVERY_SECONDS = 60.0
HEARTBEAT_EVERY_SECONDS = 2.0
CHECKPOINT_EVERY_SECONDS = 10.0
SEALS_EVERY_SECONDS = 6.0
_AFTER_A_FAULT_SECONDS = 5.0
_POLLS_PER_MEASUREMENT = 12
_log = logging.getLogger("gatehouse.janitor")
_audit_log = logging.getLogger("gatehouse.audit")


def start(app: Flask) -> None:
    """Start the threads, the janitor only if it is enabled. They end with the process."""
    config: Config = app.config["GATEHOUSE"]
    threading.Thread(target=_follow, args=(app,), name="follower", daemon=True).start()
    with app.app_context():
        guard = breaker()
    threading.Thread(target=guard.watch, name="circuit breaker", daemon=True).start()
    threading.Thread(
        target=failed_requests.write_for_ever, args=(app,), name="failed requests", daemon=True
    ).start()
    # Not a daemon: a process that is stopped waits for its last counters.
    threading.Thread(target=_count, args=(app,), name="usage").start()
    metrics.start(app)
    if (stop_telemetry := telemetry.start(app)) is not None:
        telemetry.stop_with_process(stop_telemetry)
    threading.Thread(target=_share_counts, args=(app,), name="request limits", daemon=True).start()
    logout.register()
    credential_revocation.register()
    delivery.register()
    password_resets.register_recovery_delivery()
    registrations.register_registration_delivery()
    logos.register()
    webhook_deliveries.register_webhook_delivery()
    dispatcher = Dispatcher()
    for number in range(THREADS):
        name = f"dispatcher-{number}"
        threading.Thread(target=_dispatch, args=(app, dispatcher), name=name, daemon=True).start()
    threading.Thread(target=_beat, args=(app,), name="heartbeat", daemon=True).start()
    threading.Thread(target=_checkpoint, args=(app,), name="checkpoints", daemon=True).start()
    threading.Thread(target=_seal, args=(app,), name="sealer", daemon=True).start()
    threading.Thread(target=_import, args=(app,), name="importer", daemon=True).start()
    if config.janitor:
        threading.Thread(target=_work, args=(app,), name="janitor", daemon=True).start()


def _follow(app: Flask) -> None:
    pause = threading.Event()
    with app.app_context():
        for turn in itertools.count():
            try:
                cache_invalidation.follow()
                # The leader asks the database, unless no process needs the time, and shares it with the others.
                if cache_invalidation.is_in_use() and (
                    turn % _POLLS_PER_MEASUREMENT == 0 or not cache_invalidation.is_lead()
                ):
                    clock.measure()
            except Exception:  # noqa: BLE001 - until the next poll succeeds, cached entries expire within a second
                _log.debug("changes could not be read", exc_info=True)
            pause.wait(cache_invalidation.POLL_SECONDS)


def _count(app: Flask) -> None:
    """Write counters every few seconds, and for the last time when the main thread has ended."""
    main = threading.main_thread()
    while main.is_alive():
        main.join(usage_counters.FLUSH_SECONDS * random.uniform(0.75, 1.25))  # noqa: S311 - jitter is no secret
        with app.app_context():
            try:
                usage_counters.counters.flush()
            except Exception as error:  # noqa: BLE001 - what was counted is written by a later turn
                _log.warning("counters could not be written: %s", type(error).__name__)
                _log.debug("the fault of the counters", exc_info=True)


def _share_counts(app: Flask) -> None:
    pause = threading.Event()
    while True:
        pause.wait(request_limits.SHARE_EVERY_SECONDS)
        with app.app_context():
            try:
                request_limits.counts.share()
            except Exception:  # noqa: BLE001 - until the next turn, this process goes by its own counts
                _log.debug("the counts of request limits could not be shared", exc_info=True)


def _dispatch(app: Flask, dispatcher: Dispatcher) -> None:
    pause = threading.Event()
    while True:
        with app.app_context():
            try:
                dispatcher.deliver_next()
            except Exception as error:  # noqa: BLE001 - what was taken is due again when its lease ends
                _log.warning("the outbox could not be read or written: %s", type(error).__name__)
                _log.debug("the fault of the outbox", exc_info=True)
                pause.wait(_AFTER_A_FAULT_SECONDS)


def _beat(app: Flask) -> None:
    pause = threading.Event()
    while True:
        # A worker that takes over reports before the pause counts as an outage.
        seconds = cache_invalidation.POLL_SECONDS
        with app.app_context():
            try:
                if cache_invalidation.is_lead():
                    seconds = HEARTBEAT_EVERY_SECONDS
                    outages.beat()
            except Exception:  # noqa: BLE001 - the next report that can be written contains the outage
                _log.debug("the heartbeat could not be written", exc_info=True)
        pause.wait(seconds)


def _checkpoint(app: Flask) -> None:
    pause = threading.Event()
    while True:
        with app.app_context():
            try:
                if cache_invalidation.is_lead():
                    checkpoints.advance()
            except Exception as error:  # noqa: BLE001 - the database may be back at the next turn
                _log.warning("the checkpoint could not be raised: %s", type(error).__name__)
                _log.debug("the fault of the checkpoint", exc_info=True)
        pause.wait(CHECKPOINT_EVERY_SECONDS * random.uniform(0.75, 1.25))  # noqa: S311 - jitter is no secret


def _seal(app: Flask) -> None:
    me = secrets.token_hex(8)
    pause = threading.Event()
    grown: dict[str, ChainHead] = {}
    told = time.monotonic()
    for turn in itertools.count():
        # Workers that started together do not ask together.
        pause.wait(SEALS_EVERY_SECONDS * random.uniform(0.75, 1.25))  # noqa: S311 - jitter is no secret
        with app.app_context():
            if not cache_invalidation.has_turn(turn):
                continue
            try:
                heads = seal_pending_events(Actor.system("", "sealer"), holder=me) or {}
                remember_heads(heads.values())
                grown |= heads
            except Exception as error:  # noqa: BLE001 - what waits is sealed by the next turn, here or elsewhere
                _log.warning("audit events could not be sealed: %s", type(error).__name__)
                _log.debug("the fault of the sealer", exc_info=True)
        if grown and time.monotonic() - told > EVERY_SECONDS:
            for head in grown.values():
                _audit_log.info(format_checkpoint(head.organization_id, head.length, head.mac))
            grown, told = {}, time.monotonic()


def _import(app: Flask) -> None:
    me = secrets.token_hex(8)
    while True:
        # Workers that started together do not look together.
        is_ready = import_ready.wait(import_runner.POLL_INTERVAL_SECONDS * random.uniform(0.75, 1.25))  # noqa: S311
        import_ready.clear()
        with app.app_context():
            if not is_ready and not cache_invalidation.is_lead():
                continue
            try:
                import_runner.process_due_imports(Actor.system("", "importer"), holder=me)
            except Exception as error:  # noqa: BLE001 - the state is in the database, and the next run continues
                _log.warning("imports could not go on: %s", type(error).__name__)
                _log.debug("the fault of the importer", exc_info=True)


def _work(app: Flask) -> None:
    me = secrets.token_hex(8)
    pause = threading.Event()
    for turn in itertools.count():
        # Workers that started together do not ask together.
        pause.wait(EVERY_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311 - jitter is no secret
        with app.app_context():
            if not cache_invalidation.has_turn(turn):
                continue
            try:
                gone = purge_expired(Actor.system("", "janitor"), holder=me)
                rotated = rotate_due_keys(Actor.system("", "key rotation"))
            except Exception:  # noqa: BLE001 - in a minute the database may be back; the thread must be there then
                _log.warning("the work of this minute was not done", exc_info=True)
                continue
        if gone:
            _log.info("purged %s", ", ".join(f"{table} {count}" for table, count in sorted(gone.items())))
        if rotated:
            _log.info("signing keys published or rotated: %s", ", ".join(rotated))
