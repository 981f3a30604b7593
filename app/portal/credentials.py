"""Secrets of a client: made, viewed, rotated and revoked."""

from __future__ import annotations

from typing import Any

from flask import redirect, request

from app.operations.clients.clients import ClientRecord
from app.operations.clients.credentials import (
    CredentialRecord,
    create_credential,
    reveal_credential,
    revoke_credentials,
)
from app.operations.clients.previews import (
    get_client_credentials,
    preview_credential_creation,
    preview_reveal,
    preview_revocation,
)
from app.portal.blueprint import portal
from app.portal.client_pages import client_page
from app.portal.visit import Answer, Visit, visiting
from app.rules.errors import Conflict, InvalidInput
from app.web.forms import field_errors, is_ticked, text


@portal.get("/portal/<organization>/clients/<client_id>/credentials")
@visiting
def credentials(visit: Visit, client_id: str) -> Answer:
    """The client ID, and the ledger of secrets for who may see it."""
    ledger = get_client_credentials(visit.actor, client_id)
    sees = ledger.secrets is not None
    return client_page(
        visit,
        ledger.client,
        "credentials",
        secrets=ledger.live if sees else None,
        ended=ledger.ended,
        retiring=[credential for credential in ledger.live if credential.is_retiring],
        keeps_secret=ledger.client.token_endpoint_auth_method
        in {"client_secret_basic", "client_secret_post"},
        most=visit.organization.settings["oauth"]["clients"]["max_secrets"],
        may_see_secrets=sees,
        may_change_secrets=ledger.may_change,
    )


@portal.route("/portal/<organization>/clients/<client_id>/credentials/new", methods=["GET", "POST"])
@visiting
def new_secret(visit: Visit, client_id: str) -> Answer:
    """A further secret, or, with an end for those before it, a rotation. The answer to the form shows it."""
    ledger = preview_credential_creation(visit.actor, client_id)
    client = ledger.client
    overlap = visit.organization.settings["oauth"]["clients"]["rotation_overlap_seconds"]
    errors: dict[str, str] = {}
    if request.method == "POST":
        try:
            made = create_credential(
                visit.actor,
                client_id,
                name=text("name") or None,
                retire_others_in_seconds=overlap if text("others") == "retire" else None,
                revoke_tokens=is_ticked("revoke_tokens"),
            )
        except (InvalidInput, Conflict) as refusal:
            errors = field_errors(refusal, {"retire_others_in_seconds": "others"})
        else:
            return _shown(visit, client, made.credential, made.secret, retired=made.retired)
    return visit.render(
        "portal/clients/new_secret.html",
        code=400 if errors else 200,
        client=client,
        client_url=_url(visit, client),
        live=ledger.live,
        overlap=overlap,
        name=text("name"),
        others=text("others") or "keep",
        takes_tokens=is_ticked("revoke_tokens"),
        errors=errors,
    )


@portal.route(
    "/portal/<organization>/clients/<client_id>/credentials/<credential_id>/reveal", methods=["GET", "POST"]
)
@visiting
def reveal(visit: Visit, client_id: str, credential_id: str) -> Answer:
    """The secret in clear, in the answer to a form and for a fresh sign-in alone; a link shows the form."""
    found = preview_reveal(visit.actor, client_id, credential_id)
    client, credential = found.client, found.secret
    if request.method == "GET":
        return visit.render(
            "portal/clients/reveal.html", client=client, client_url=_url(visit, client), credential=credential
        )
    secret = reveal_credential(visit.actor, client_id, credential_id)
    return _shown(visit, client, credential, secret, is_new=False)


@portal.route(
    "/portal/<organization>/clients/<client_id>/credentials/<credential_id>/revoke", methods=["GET", "POST"]
)
@visiting
def revoke(visit: Visit, client_id: str, credential_id: str) -> Answer:
    """What will stop working; afterwards the secret no longer works. The last one asks for a fresh sign-in."""
    found = preview_revocation(visit.actor, client_id, credential_id)
    client = found.client
    if request.method == "POST":
        revokes_tokens = is_ticked("revoke_tokens")
        revoke_credentials(visit.actor, client_id, credential_id=credential_id, revoke_tokens=revokes_tokens)
        what = "secret-and-tokens-revoked" if revokes_tokens else "secret-revoked"
        return visit.done(f"/clients/{client_id}/credentials", what)
    if not found.secret.is_live:
        return redirect(f"{_url(visit, client)}/credentials", 303)
    return visit.render(
        "portal/clients/revoke_secret.html",
        client=client,
        client_url=_url(visit, client),
        credential=found.secret,
        is_last=found.is_last,
    )


def _shown(
    visit: Visit, client: ClientRecord, credential: CredentialRecord, secret: str, **context: Any
) -> Answer:
    return visit.render(
        "portal/clients/secret.html",
        client=client,
        client_url=_url(visit, client),
        credential=credential,
        secret=secret,
        **{"is_new": True, "retired": (), **context},
    )


def _url(visit: Visit, client: ClientRecord) -> str:
    return visit.url(f"/clients/{client.client_id}")
