"""Secrets of a client: made, viewed, rotated and revoked."""

from __future__ import annotations

from typing import Any

from flask import redirect, request

from app.operations.people.freshness import require_fresh_sign_in
from app.operations.registration.clients import ClientRecord, get_client
from app.operations.registration.credentials import (
    CredentialRecord,
    cancel_rotation,
    create_credential,
    list_credentials,
    reveal_credential,
    revoke_credentials,
)
from app.portal.blueprint import portal
from app.portal.client_pages import client_page
from app.portal.visit import Answer, Visit, visiting
from app.rules.errors import Conflict, InvalidInput, NotFound
from app.web.forms import field_errors, is_ticked, text


@portal.get("/portal/<organization>/clients/<client_id>/credentials")
@visiting
def credentials(visit: Visit, client_id: str) -> Answer:
    """The client ID, and the ledger of secrets for who may see it."""
    client = get_client(visit.actor, client_id)
    listed = _ledger(visit, client)
    live = [credential for credential in listed or () if credential.is_live]
    return client_page(
        visit,
        client,
        "credentials",
        secrets=live if listed is not None else None,
        ended=[credential for credential in listed or () if not credential.is_live],
        retiring=[credential for credential in live if credential.is_retiring],
        keeps_secret=client.token_endpoint_auth_method in {"client_secret_basic", "client_secret_post"},
        most=visit.organization.settings["oauth"]["clients"]["max_secrets"],
        **_rights(visit, client),
    )


@portal.route("/portal/<organization>/clients/<client_id>/credentials/new", methods=["GET", "POST"])
@visiting
def new_secret(visit: Visit, client_id: str) -> Answer:
    """A further secret, or, with an end for those before it, a rotation. The answer to the form shows it."""
    client = get_client(visit.actor, client_id)
    visit.actor.require("credentials:write", owner_id=client.created_by_user_id)
    # Asked before the form is filled in; the operation asks again.
    require_fresh_sign_in(visit.actor)
    overlap = visit.organization.settings["oauth"]["clients"]["rotation_overlap_seconds"]
    errors: dict[str, str] = {}
    if request.method == "POST":
        try:
            made = create_credential(
                visit.actor,
                client_id,
                name=text("name") or None,
                retire_others_in_seconds=overlap if text("others") == "retire" else None,
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
        live=[credential for credential in _ledger(visit, client) or () if credential.is_live],
        overlap=overlap,
        name=text("name"),
        others=text("others") or "keep",
        errors=errors,
    )


@portal.post("/portal/<organization>/clients/<client_id>/credentials/cancel-rotation")
@visiting
def cancel(visit: Visit, client_id: str) -> Answer:
    """The secrets that were to end keep working."""
    cancel_rotation(visit.actor, client_id)
    return visit.done(f"/clients/{client_id}/credentials", "rotation-cancelled")


@portal.route(
    "/portal/<organization>/clients/<client_id>/credentials/<credential_id>/reveal", methods=["GET", "POST"]
)
@visiting
def reveal(visit: Visit, client_id: str, credential_id: str) -> Answer:
    """The secret in clear, in the answer to a form and for a fresh sign-in alone; a link shows the form."""
    client = get_client(visit.actor, client_id)
    visit.actor.require("credentials:read", owner_id=client.created_by_user_id)
    require_fresh_sign_in(visit.actor)
    credential = _find(visit, client, credential_id)
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
    client = get_client(visit.actor, client_id)
    visit.actor.require("credentials:write", owner_id=client.created_by_user_id)
    live = [credential for credential in _ledger(visit, client) or () if credential.is_live]
    credential = _find(visit, client, credential_id)
    is_last = [other.public_id for other in live] == [credential_id]
    if is_last:
        require_fresh_sign_in(visit.actor)
    if request.method == "POST":
        revokes_tokens = is_ticked("revoke_tokens")
        revoke_credentials(visit.actor, client_id, credential_id=credential_id, revoke_tokens=revokes_tokens)
        what = "secret-and-tokens-revoked" if revokes_tokens else "secret-revoked"
        return visit.done(f"/clients/{client_id}/credentials", what)
    if not credential.is_live:
        return redirect(f"{_url(visit, client)}/credentials", 303)
    return visit.render(
        "portal/clients/revoke_secret.html",
        client=client,
        client_url=_url(visit, client),
        credential=credential,
        is_last=is_last,
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


def _find(visit: Visit, client: ClientRecord, credential_id: str) -> CredentialRecord:
    for credential in _ledger(visit, client) or ():
        if credential.public_id == credential_id:
            return credential
    raise NotFound("There is no such secret.")


def _ledger(visit: Visit, client: ClientRecord) -> list[CredentialRecord] | None:
    if not visit.actor.may("credentials:read", owner_id=client.created_by_user_id):
        return None
    return list(list_credentials(visit.actor, client.client_id))


def _rights(visit: Visit, client: ClientRecord) -> dict[str, bool]:
    owner = client.created_by_user_id
    return {
        "may_see_secrets": visit.actor.may("credentials:read", owner_id=owner),
        "may_change_secrets": visit.actor.may("credentials:write", owner_id=owner),
    }


def _url(visit: Visit, client: ClientRecord) -> str:
    return visit.url(f"/clients/{client.client_id}")
