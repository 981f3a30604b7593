"""Credentials of a client: list, view, create, rotate, revoke."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from flask import request

from app.api.endpoints import Body, Endpoints, Query, Shown, boolean_query, show_page
from app.api.representations import (
    CappedCount,
    ClientId,
    Count,
    CreatedAt,
    CreatedBy,
    CredentialId,
    Representation,
    Source,
    optional,
)
from app.operations.clients import credential_revocation, credentials, rotations
from app.operations.clients.credentials import NewCredential
from app.operations.store.idempotency import IdempotentResult
from app.rules.clients import credentials as credential_terms
from app.rules.shapes import OneOf, described
from app.web.bearer import ApiContext
from app.web.json_api import boolean_parameter, created, envelope, expected_version

endpoints = Endpoints("Credentials", "credentials")
_REVEAL = boolean_query("reveal", "Include the secrets. This is audited and rate limited.")
_CREDENTIAL_ID = Query(
    "credential_id", {"type": "string", "minLength": 1, "maxLength": 1000}, "Revoke only this credential."
)
_REVOKE_TOKENS = boolean_query("revoke_tokens", "Also revoke every token that was issued with them.")


class CredentialUse(Representation):
    """An IP address that a secret was used from."""

    ip_address: Annotated[str, Source("address"), described("The IP address of the client.")]
    last_used_at: Annotated[datetime, described("When the secret was last used from this address.")]


class Credential(Representation):
    """A client secret."""

    id: Annotated[CredentialId, Source("public_id")]
    client_id: ClientId
    name: Annotated[str, described("A name for administrators, to tell secrets apart.")]
    hint: Annotated[str, described("The last four characters.")]
    status: Annotated[
        str,
        OneOf(credential_terms.STATUSES),
        described(
            "An `expiring` secret is still accepted. After a restore of a backup, a `blocked` one needs a confirmation."
        ),
    ]
    created_at: CreatedAt
    created_by: CreatedBy
    expires_at: Annotated[
        datetime | None, described("When it stops being accepted. Null if it does not expire.")
    ]
    revoked_at: Annotated[datetime | None, described("When it was revoked. Null if it is not revoked.")]
    first_used_at: Annotated[datetime | None, described("When it was first used. Null if it never was.")]
    last_used_at: Annotated[datetime | None, described("Updated about once a minute.")]
    last_used_ip_address: Annotated[
        str | None,
        Source("last_used_address"),
        described("The IP address that last used it. Null if it was never used."),
    ]
    ip_addresses: Annotated[
        list[CredentialUse], Source("addresses"), described("Where it was used from in the last 30 days.")
    ]
    active_tokens: Annotated[CappedCount, Source("live_tokens"), described("Active tokens issued with it.")]
    verdict: Annotated[str, described("Whether the secret can be revoked safely, and why.")]
    revealable: Annotated[bool, described("Whether the secret can be viewed.")]
    revokes_tokens_on_expiry: Annotated[
        bool, Source("takes_tokens"), described("Whether its tokens are revoked when it expires.")
    ]
    client_secret: Annotated[str, described("The secret. Keep it confidential.")] = optional()


class CreatedCredential(Credential):
    """A new client secret."""

    retired: Annotated[list[Credential], described("Existing secrets that now expire.")]


class RevokedCredentialCounts(Representation):
    """Numbers of revoked secrets and tokens."""

    credentials: Annotated[Count, described("Revoked secrets.")]
    tokens: CappedCount


class RevokedCredentials(Representation):
    """Revoked client secrets."""

    client_id: ClientId
    credential_id: Annotated[
        CredentialId | None, described("The revoked secret. Null if all secrets of the client were revoked.")
    ]
    revoked: RevokedCredentialCounts


class Rotation(Representation):
    """The rotation of a client's secret."""

    client_id: ClientId
    in_progress: Annotated[
        bool, Source("is_under_way"), described("Whether old secrets are still accepted beside the new one.")
    ]
    started_at: Annotated[
        datetime | None, described("When the rotation started. Null if none is in progress.")
    ]
    expires_at: Annotated[
        datetime | None, Source("ends_at"), described("When the first of the old secrets expires.")
    ]
    safe_to_finish: Annotated[
        bool, Source("is_safe"), described("Whether the new secret is in use and the old ones are not.")
    ]
    verdict: Annotated[str | None, described("The reason.")]
    new: Annotated[
        Credential | None, described("The secret to use from now on. Null if no rotation is in progress.")
    ]
    old: Annotated[list[Credential], described("The secrets that will expire.")]


@endpoints.page("/clients/<client_id>/credentials", query=(_REVEAL,), returns=Credential, errors=(409,))
def list_credentials(context: ApiContext, client_id: str) -> object:
    """Retrieve the credentials of a client application.

    The newest first, including expired and revoked ones. The ETag is the version of all active ones.
    """
    # Read first: a secret that is created meanwhile must not be part of a version that nobody has seen.
    version = credentials.get_credentials_version(context.actor, client_id)
    page = show_page(context, f"credentials {client_id}", credentials.list_credentials, client_id)
    wanted = [record.public_id for record in page.record if record.revealable]
    secrets: dict[str, str] = {}
    if _reveals(context) and wanted:
        secrets = credentials.reveal_credentials(context.actor, client_id, wanted)
    data = [Credential.to_json(record, **_in_clear(secrets.get(record.public_id))) for record in page.record]
    return envelope(data, meta=page.meta, version=version)


@endpoints.get(
    "/clients/<client_id>/credentials/<credential_id>", query=(_REVEAL,), returns=Credential, errors=(409,)
)
def get_credential(context: ApiContext, client_id: str, credential_id: str) -> object:
    """Get one credential."""
    reveals = _reveals(context)
    record = credentials.get_credential(context.actor, client_id, credential_id)
    secret = credentials.reveal_credential(context.actor, client_id, credential_id) if reveals else None
    return Shown(record, _in_clear(secret))


@endpoints.post(
    "/clients/<client_id>/credentials",
    body=credential_terms.NewCredential,
    is_body_optional=True,
    returns=CreatedCredential,
)
def create_credential(context: ApiContext, body: Body, client_id: str) -> object:
    """Generate new credentials for a client application."""
    return _created(credentials.create_credential(context.actor, client_id, body))


@endpoints.post(
    "/clients/<client_id>/credentials/<credential_id>/confirmation",
    returns=Credential,
    status=200,
    is_idempotent=False,
    errors=(409,),
)
def confirm_credential(context: ApiContext, client_id: str, credential_id: str) -> object:
    """Confirm a credential from before a restore of a backup.

    Its status is `blocked` until then. Confirming any other credential changes nothing.
    """
    return credentials.confirm_credential(context.actor, client_id, credential_id)


@endpoints.delete(
    "/clients/<client_id>/credentials",
    query=(_CREDENTIAL_ID, _REVOKE_TOKENS),
    returns=RevokedCredentials,
    if_match=True,
)
def revoke_credentials(context: ApiContext, client_id: str) -> object:
    """Revoke the credentials of a client application.

    If-Match names the version of the list or, with `credential_id`, of the credential. A user needs a recent sign-in
    (RFC 9470) if no active credential remains.
    """
    return _revoke(context, client_id, context.parameters.get("credential_id"))


@endpoints.delete(
    "/clients/<client_id>/credentials/<credential_id>",
    query=(_REVOKE_TOKENS,),
    returns=RevokedCredentials,
    if_match=True,
)
def revoke_credential(context: ApiContext, client_id: str, credential_id: str) -> object:
    """Revoke one credential.

    A user needs a recent sign-in (RFC 9470) for the last active one.
    """
    return _revoke(context, client_id, credential_id)


@endpoints.get("/clients/<client_id>/credentials/rotation", returns=Rotation)
def get_rotation(context: ApiContext, client_id: str) -> object:
    """Get the progress of a rotation.

    The progress is based on real use: it shows whether the new secret is deployed everywhere.
    """
    return Shown(rotations.get_rotation(context.actor, client_id), {"client_id": client_id})


@endpoints.post(
    "/clients/<client_id>/credentials/rotation",
    body=credential_terms.NewRotation,
    is_body_optional=True,
    returns=CreatedCredential,
)
def rotate_credential(context: ApiContext, body: Body, client_id: str) -> object:
    """Rotate the secret of a client application.

    Creates a new secret. The existing ones expire after the overlap.
    """
    return _created(credentials.rotate_credential(context.actor, client_id, body))


@endpoints.put(
    "/clients/<client_id>/credentials/rotation",
    body=credential_terms.RotationChange,
    returns=Rotation,
    reports_changes=False,
    etag=False,
    if_match=False,
)
def update_rotation(context: ApiContext, body: Body, client_id: str) -> object:
    """Extend, shorten or finish a rotation.

    A user needs a recent sign-in (RFC 9470) to change the expiry if there is no new credential.
    """
    return Shown(rotations.update_rotation(context.actor, client_id, body), {"client_id": client_id})


@endpoints.delete(
    "/clients/<client_id>/credentials/rotation",
    query=(boolean_query("revoke_new", "Also revoke the new secret."),),
    returns=list[Credential],
    errors=(409,),
)
def cancel_rotation(context: ApiContext, client_id: str) -> object:
    """Cancel a rotation.

    The secrets that were about to expire stay active. Returns the active secrets.
    """
    revokes_new = boolean_parameter(context.parameters, "revoke_new")
    return rotations.cancel_rotation(context.actor, client_id, revoke_new=revokes_new)


def _reveals(context: ApiContext) -> bool:
    """Return whether to show secrets: never for HEAD, which would record and count what nobody sees."""
    return boolean_parameter(context.parameters, "reveal") and request.method == "GET"


def _in_clear(secret: str | None) -> dict[str, str]:
    return {} if secret is None else {"client_secret": secret}


def _created(new: NewCredential) -> IdempotentResult:
    retired = [Credential.to_json(record) for record in new.retired]
    data = CreatedCredential.to_json(new.credential, client_secret=new.secret, retired=retired)
    collection = request.path.removesuffix("/rotation")
    return created(data, new.credential.public_id, version=new.credential.version, collection=collection)


def _revoke(context: ApiContext, client_id: str, credential_id: str | None) -> object:
    revokes_tokens = boolean_parameter(context.parameters, "revoke_tokens")
    counts = credential_revocation.revoke_credentials(
        context.actor,
        client_id,
        credential_id=credential_id,
        revoke_tokens=revokes_tokens,
        expected_version=expected_version(),
    )
    revoked = RevokedCredentialCounts.to_json(counts)
    return {"client_id": client_id, "credential_id": credential_id, "revoked": revoked}
