"""Clients: list, register, show, change, delete."""

from __future__ import annotations

from flask import Response

from app.api import representations
from app.api.blueprint import api
from app.api.lists import filters_of, listed
from app.operations.clients import clients, sector_documents
from app.operations.clients.client_records import FILTERS
from app.operations.store.idempotency import IdempotentResult
from app.rules.errors import InvalidInput
from app.web.bearer import Call, management
from app.web.etag import etag_of, expected_version
from app.web.idempotency import created, once
from app.web.json_api import envelope, read_object
from app.web.pagination import PARAMETERS


@api.get("/clients")
@management(*PARAMETERS, "q", "sort", *FILTERS)
def list_clients(call: Call) -> Response:
    """The clients of the organization, without secrets."""
    return listed(
        call,
        "clients",
        clients.list_clients,
        show=lambda record: representations.client(record, call.organization),
        query=call.parameters.get("q"),
        filters=filters_of(call, FILTERS),
        sort=call.parameters.get("sort", "name"),
    )


@api.post("/clients")
@management()
def register_client(call: Call) -> Response:
    """A new client, with its first secret if it keeps one."""
    body = read_object()
    fields = dict(body)
    _take_organization(call, fields)
    sector_documents.prefetch_sector_document(call.actor, fields.get(sector_documents.FIELD))

    def work() -> IdempotentResult:
        registered = clients.register_client(call.actor, fields)
        data = representations.client(registered.client, call.organization)
        if registered.credential is not None:
            data["credential_id"] = registered.credential.public_id
            data["client_secret"] = registered.secret
            data["client_secret_expires_at"] = representations.time(registered.credential.expires_at)
        meta = {"warnings": registered.warnings} if registered.warnings else {}
        headers = {"ETag": etag_of(registered.client.version)}
        return created(data, registered.client.client_id, meta=meta, headers=headers)

    return once(call.actor, body, work)


@api.get("/clients/<client_id>")
@management()
def get_client(call: Call, client_id: str) -> Response:
    """One client, without secrets."""
    record = clients.get_client(call.actor, client_id)
    return envelope(
        representations.client(record, call.organization), headers={"ETag": etag_of(record.version)}
    )


@api.put("/clients/<client_id>")
@management()
def update_client(call: Call, client_id: str) -> Response:
    """The fields sent are replaced; ``meta.changed`` lists those that differ now."""
    updated = clients.update_client(call.actor, client_id, read_object(), expected_version=expected_version())
    meta = {"changed": updated.changed, **({"warnings": updated.warnings} if updated.warnings else {})}
    return envelope(
        representations.client(updated.client, call.organization),
        meta=meta,
        headers={"ETag": etag_of(updated.client.version)},
    )


@api.delete("/clients/<client_id>")
@management()
def delete_client(call: Call, client_id: str) -> Response:
    """The client and all that hangs from it is dead; the answer counts what that was."""
    counts = clients.delete_client(call.actor, client_id, expected_version=expected_version())
    data = {
        "client_id": client_id,
        "deleted": True,
        "revoked": {
            "access_tokens": counts.access_tokens,
            "grants": counts.grants,
            "consents": counts.consents,
            "credentials": counts.credentials,
        },
    }
    return envelope(data)


def _take_organization(call: Call, fields: dict[str, object]) -> None:
    """A body may repeat which organization the client is for; choosing another is for the query parameter."""
    named = fields.pop("organization_id", call.organization.slug)
    if named != call.organization.slug:
        message = (
            "The client is registered in the organization of the call. Name another with ?organization_id=."
        )
        raise InvalidInput(message, field="organization_id", code="other_organization")
