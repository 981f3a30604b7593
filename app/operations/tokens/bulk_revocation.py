"""Wider revocation: everything that was issued before a moment and hangs from one thing is dead, everywhere at once."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from app.operations.sign_in.actor_access import enter_organization
from app.operations.sign_in.reauthentication import require_fresh_user_sign_in
from app.operations.store import audit, clock
from app.operations.store.transactions import on_commit, transaction
from app.operations.tokens import cutoffs
from app.operations.tokens.cutoffs import end_issued_before
from app.operations.tokens.revocation_receipts import Receipt, draft_receipt, write_receipt
from app.operations.tokens.revocation_subjects import Subject, count, find_subject
from app.rules.actor import Actor
from app.rules.tokens.revocation import CLIENT, ORGANIZATION, SESSION, USER, RevocationOrder, revocation_order

_ACTION = "tokens.revoked"
# How far apart two workers may be about the database's time; each is off by half a round trip at most.
CLOCKS_APART = timedelta(milliseconds=100)


@dataclass(frozen=True, slots=True)
class WiderRevocation:
    """The receipt, or with a dry run what it would be; ``warnings`` are for who asked."""

    receipt: Receipt
    is_dry_run: bool
    warnings: tuple[str, ...]


@transaction
def revoke_widely(actor: Actor, slug: str, fields: Mapping[str, Any]) -> WiderRevocation:
    """What was selected and issued before the moment is dead on every worker; the receipt says how much it was.

    ``fields`` are those of ``revocation_order``: one of ``grant_id``, ``client_id``, ``credential_id``, ``user_id``,
    ``session_id`` and ``all``, and ``issued_before`` (now), ``sessions``, ``reason``, ``dry_run``. A dry run counts and
    changes nothing. Raises NotFound, Forbidden, InvalidInput naming every wrong field; FreshSignInRequired when a
    person who signed in too long ago would end a whole organization's. Audit: ``tokens.revoked``.
    """
    inside, organization = enter_organization(actor, slug)
    order = revocation_order(fields, clock.now())
    subject = find_subject(inside, slug, order)
    moment = order.issued_before or clock.now()
    counts = count(organization, subject, moment, sessions=order.sessions)
    draft = draft_receipt(inside, organization, subject, order, counts, moment)
    warnings = _warnings(inside, subject, order)
    if order.dry_run:
        return WiderRevocation(draft, True, warnings)
    if subject.kind == ORGANIZATION:
        require_fresh_user_sign_in(inside)
    if order.issued_before is None:
        # Counting takes its time, and workers measure the database's clock each for itself: what one of them issued
        # while this began is not to slip through. The answer waits for the moment, so what comes after it lives.
        moment = clock.now() + CLOCKS_APART
        draft = draft_receipt(inside, organization, subject, order, counts, moment)
        on_commit(lambda: time.sleep(CLOCKS_APART.total_seconds()))
    end_issued_before(inside, subject, moment, sessions=order.sessions)
    receipt = write_receipt(organization, draft)
    _record(inside, receipt)
    if subject.kind == ORGANIZATION and order.sessions:
        on_commit(cutoffs.begin)
    return WiderRevocation(receipt, False, warnings)


def _record(actor: Actor, receipt: Receipt) -> None:
    audit.record(
        actor,
        _ACTION,
        target_type=receipt.kind,
        target_id=receipt.subject,
        after={
            "revocation": receipt.public_id,
            "issued_before": receipt.issued_before.isoformat(),
            "sessions": receipt.sessions,
            "reason": receipt.reason,
            "counts": dict(receipt.counts),
        },
    )


def _warnings(actor: Actor, subject: Subject, order: RevocationOrder) -> tuple[str, ...]:
    if not _is_among(actor, subject, order):
        return ()
    if actor.session_id is not None:
        return (
            "Your own sign-in is among them, if it is older than the moment: you will have to sign in again.",
        )
    return (
        "The access token of this very call is among them, if it is older than the moment: get a new one.",
    )


def _is_among(actor: Actor, subject: Subject, order: RevocationOrder) -> bool:
    """Whether what the actor acts by is selected."""
    if subject.kind == ORGANIZATION:
        is_home = actor.organization_id == actor.home_organization_id
        return is_home and actor.kind != "system" and (actor.session_id is None or order.sessions)
    if actor.session_id is not None:
        is_own_user = subject.kind == USER and subject.row_id == actor.user_id
        return order.sessions and (
            is_own_user or (subject.kind == SESSION and subject.row_id == actor.session_id)
        )
    if subject.kind == CLIENT:
        return actor.client_id == subject.row_id
    return subject.kind == USER and actor.user_id is not None and actor.user_id == subject.row_id
