"""Questions for an account: put into the outbox as they came, so that whoever asks is answered before anybody looks.

The dispatcher finds out whether the address is free, and writes to it in either case (EN-1).
"""

from __future__ import annotations

from app.operations.mail.sealed_payloads import seal_payload
from app.operations.transaction import transaction
from app.operations.upkeep import outbox

KIND = "registration"


@transaction
def ask_for_account(
    organization_id: str,
    *,
    email: str,
    name: str,
    password_hash: str,
    address: str | None,
    request_id: str | None,
) -> None:
    """The question waits for the dispatcher, sealed."""
    values = {
        "email": email,
        "name": name,
        "password_hash": password_hash,
        "address": address,
        "request_id": request_id,
    }
    outbox.enqueue(
        organization_id, KIND, seal_payload(organization_id, KIND, values), receiver="registration"
    )
