"""Bulk revocation of everything issued before a cutoff, for a grant, client, secret, user, session or organization."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from msgspec import Struct

from app.operations.sign_in.actor_access import enter_organization
from app.operations.sign_in.reauthentication import require_fresh_user_sign_in
from app.operations.store import audit, clock
from app.operations.store.transactions import on_commit, transaction
from app.operations.tokens import cutoffs
from app.operations.tokens.cutoffs import revoke_issued_before
from app.operations.tokens.revocation import Receipt, draft_receipt, write_receipt
from app.operations.tokens.revocation_subjects import Subject, count_affected, find_subject
from app.rules.actor import Actor
from app.rules.languages.translation import lazy_gettext
from app.rules.tokens.revocation import CLIENT, ORGANIZATION, SESSION, USER, RevocationOrder, revocation_order

_ACTION = "tokens.revoked"
# The maximum difference between the clocks of two workers. Each estimates the database's time within half a round trip.
MAX_CLOCK_DIFFERENCE = timedelta(milliseconds=100)


class BulkRevocation(Struct, frozen=True):
    """A receipt, stored unless this was a dry run, and warnings for the caller."""

    receipt: Receipt
    is_dry_run: bool
    warnings: tuple[str, ...]


@transaction
def bulk_revoke(actor: Actor, slug: str, fields: Mapping[str, Any]) -> BulkRevocation:
    """Revoke everything that was issued before the cutoff to the selected subject, and return a receipt.

    ``fields`` are those of ``revocation_order``: one of ``grant_id``, ``client_id``, ``credential_id``, ``user_id``,
    ``session_id`` and ``all``, and ``issued_before`` (now), ``sessions``, ``reason``, ``dry_run``. A dry run only
    counts. Raises NotFound, Forbidden, InvalidInput with every invalid field, and FreshSignInRequired if a user who
    signed in too long ago revokes everything in the organization. Audit: ``tokens.revoked``.
    """
    scoped_actor, organization = enter_organization(actor, slug)
    order = revocation_order(fields, clock.now())
    subject = find_subject(scoped_actor, slug, order)
    cutoff = order.issued_before or clock.now()
    counts = count_affected(organization, subject, cutoff, sessions=order.sessions)
    draft = draft_receipt(scoped_actor, organization, subject, order, counts, cutoff)
    warnings = _warnings(scoped_actor, subject, order)
    if order.dry_run:
        return BulkRevocation(draft, True, warnings)
    if subject.kind == ORGANIZATION:
        require_fresh_user_sign_in(scoped_actor)
    if order.issued_before is None:
        # Counting takes time, and each worker estimates the database's clock. The cutoff is therefore slightly in the
        # future, to include tokens that other workers are issuing now. The response waits until it has passed, so
        # that tokens issued after the response stay valid.
        cutoff = clock.now() + MAX_CLOCK_DIFFERENCE
        draft = draft_receipt(scoped_actor, organization, subject, order, counts, cutoff)
        on_commit(lambda: time.sleep(MAX_CLOCK_DIFFERENCE.total_seconds()))
    revoke_issued_before(scoped_actor, subject, cutoff, sessions=order.sessions)
    receipt = write_receipt(organization, draft)
    _record(scoped_actor, receipt)
    if subject.kind == ORGANIZATION and order.sessions:
        on_commit(cutoffs.start_session_cleanup)
    return BulkRevocation(receipt, False, warnings)


def _record(actor: Actor, receipt: Receipt) -> None:
    audit.record(
        actor,
        _ACTION,
        receipt.kind,
        receipt.subject,
        after={
            "revocation": receipt.public_id,
            "issued_before": receipt.issued_before.isoformat(),
            "sessions": receipt.sessions,
            "reason": receipt.reason,
            "counts": dict(receipt.counts),
        },
    )


def _warnings(actor: Actor, subject: Subject, order: RevocationOrder) -> tuple[str, ...]:
    if not _includes_own_access(actor, subject, order):
        return ()
    if actor.session_id is not None:
        return (lazy_gettext("This may end your own session. You would then have to sign in again."),)
    return (
        lazy_gettext(
            "This may revoke the access token of this request. Get a new one before the next request."
        ),
    )


def _includes_own_access(actor: Actor, subject: Subject, order: RevocationOrder) -> bool:
    """Return whether the actor's own session or token is selected."""
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
