"""Wider revocations: by grant, client, secret, user, sign-in or everything, and the receipts of those done."""

from __future__ import annotations

from typing import Any

from flask import Response

from app.api import representations
from app.api.blueprint import api
from app.api.lists import listed
from app.operations.store.idempotency import IdempotentResult
from app.operations.tokens import revocation_receipts
from app.operations.tokens.bulk_revocation import revoke_widely
from app.operations.tokens.revocation_receipts import Receipt
from app.rules.tokens.revocation import ORGANIZATION, SELECTORS
from app.web.bearer import Call, management
from app.web.idempotency import created, once
from app.web.json_api import envelope, read_object
from app.web.pagination import PARAMETERS

_FIELD_OF = {kind: name for name, kind in SELECTORS.items()}


def revocation(receipt: Receipt) -> dict[str, Any]:
    """A receipt; of a dry run it has no id."""
    chosen = True if receipt.kind == ORGANIZATION else receipt.subject
    return {
        "id": receipt.public_id,
        "organization_id": receipt.organization_slug,
        "selection": {_FIELD_OF[receipt.kind]: chosen},
        "issued_before": representations.time(receipt.issued_before),
        "sessions": receipt.sessions,
        "reason": receipt.reason,
        "counts": dict(receipt.counts),
        "created_at": representations.time(receipt.created_at),
        "created_by": receipt.created_by,
        "created_by_id": receipt.created_by_id,
    }


@api.get("/organizations/<slug>/revocations")
@management(*PARAMETERS, names_organization=False)
def list_revocations(call: Call, slug: str) -> Response:
    """The receipts, the newest first."""
    return listed(call, f"revocations {slug}", revocation_receipts.list_receipts, slug, show=revocation)


@api.get("/organizations/<slug>/revocations/<revocation_id>")
@management(names_organization=False)
def get_revocation(call: Call, slug: str, revocation_id: str) -> Response:
    """One receipt."""
    return envelope(revocation(revocation_receipts.get_receipt(call.actor, slug, revocation_id)))


@api.post("/organizations/<slug>/revocations")
@management(names_organization=False)
def revoke_tokens(call: Call, slug: str) -> Response:
    """What is selected and was issued before the moment is dead; with ``dry_run`` it is only counted."""
    body = read_object()

    def work() -> IdempotentResult:
        done = revoke_widely(call.actor, slug, body)
        meta = {"warnings": list(done.warnings)}
        data = revocation(done.receipt)
        if done.receipt.public_id is None:
            return IdempotentResult(200, data, meta, {})
        return created(data, done.receipt.public_id, meta=meta)

    return once(call.actor, body, work)
