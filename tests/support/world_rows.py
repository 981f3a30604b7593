"""Single rows of the world, as the real flows would store them."""

from __future__ import annotations

import math
import secrets
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import insert, select

from app.extensions import db
from app.models.audit import FailedRequest
from app.models.client import ClientAccess, ClientRequest
from app.models.grant import Consent, Grant
from app.models.identity_provider import LinkedIdentity
from app.models.token import AccessToken
from app.models.user import Registration
from app.operations.audit import failed_requests, webhook_deliveries, webhooks
from app.operations.audit.failed_requests import RejectedRequest
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.sign_in import identity_providers, provider_metadata, provisioning_tokens
from app.operations.sign_in.identity_providers import IdentityProviderRecord
from app.operations.sign_in.provider_metadata import Published
from app.operations.store import clock
from app.rules.actor import Actor
from app.rules.errors import Cause
from app.rules.identifiers import digest, new_id, parse_public_id, public_id
from app.rules.sign_in.identity_providers import ProviderMetadata
from tests.factories import MadeClient, MadeUser

ISSUER = "https://idp.example"


def registered(
    organization: OrganizationSnapshot, email: str, *, ended: bool = False, token: str = ""
) -> str:
    """Add a pending registration and return its id."""
    now, row_id = clock.now(), new_id()
    db.session.execute(
        insert(Registration).values(
            organization_id=organization.id,
            id=row_id,
            digest=digest(token) if token else secrets.token_bytes(32),
            email=email,
            email_canonical=email,
            name="Somebody",
            password_hash="none",
            is_mailed=False,
            created_at=now,
            expires_at=now if ended else now + timedelta(days=1),
        )
    )
    db.session.commit()
    return public_id("reg", row_id)


def told(actor: Actor) -> tuple[str, str]:
    """Add a webhook for test events only, and a delivery to it; return their ids."""
    fields = {"url": "https://hooks.example/told", "event_types": ["webhook.created"]}
    webhook = webhooks.create_webhook(actor, fields).record.public_id
    return webhook, webhook_deliveries.send_test(actor, webhook).public_id


def linked(actor: Actor, slug: str, user_id: str) -> tuple[str, str]:
    """Add an identity provider and an account there that the user has linked; return their ids.

    The organization may add more providers with ``ISSUER``, which answers nothing.
    """
    endpoints = {
        name: f"{ISSUER}/{name}" for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")
    }
    published = Published(ProviderMetadata(**endpoints), {"keys": []}, math.inf)
    provider_metadata._published.put(actor.organization_id, ISSUER, value=published)
    fields = {"slug": slug, "name": "Example", "issuer": ISSUER, "client_id": "x", "client_secret": "x"}
    provider = identity_providers.create_identity_provider(actor, fields)
    owner = parse_public_id("usr", user_id)
    assert owner is not None
    return provider.public_id, linked_to(provider, owner, slug)


def provisioning_token(actor: Actor, provider_id: str) -> str:
    """Create a provisioning token of the provider and return its id."""
    return provisioning_tokens.create_provisioning_token(actor, provider_id).record.public_id


def linked_to(provider: IdentityProviderRecord, user_id: UUID, subject: str) -> str:
    """Link an account at the provider to the user and return the id of the link."""
    row_id = new_id()
    db.session.execute(
        insert(LinkedIdentity).values(
            organization_id=provider.organization_id,
            id=row_id,
            provider_id=provider.id,
            user_id=user_id,
            subject=subject,
            email="example@idp.example",
            created_at=clock.now(),
        )
    )
    db.session.commit()
    return public_id("idn", row_id)


def granted(client: MadeClient, user: MadeUser, *, revoked: bool = False) -> str:
    """Add a grant of the client by the user and return its id."""
    now = clock.now()
    row_id = new_id()
    db.session.execute(
        insert(Grant).values(
            organization_id=client.organization.id,
            id=row_id,
            client_id=client.registered.client.id,
            user_id=user.id,
            scope="openid",
            auth_time=now,
            amr="pwd",
            created_at=now,
            allowed_at=now,
            expires_at=now + timedelta(hours=1),
            revoked_at=now if revoked else None,
        )
    )
    db.session.commit()
    return public_id("grt", row_id)


def issued(client: MadeClient, *, ended: bool = False) -> str:
    """Add an access token of the client itself and return its id."""
    now, row_id = clock.now(), new_id()
    db.session.execute(
        insert(AccessToken).values(
            organization_id=client.organization.id,
            id=row_id,
            digest=secrets.token_bytes(32),
            client_id=client.registered.client.id,
            scope="openid",
            audience="https://orchard.example",
            issued_at=now,
            expires_at=now if ended else now + timedelta(hours=1),
        )
    )
    db.session.commit()
    return public_id("tok", row_id)


def consented(client: MadeClient, user: MadeUser, *, ended: bool = False) -> str:
    """Add a consent of the user for the client and return its id."""
    now = clock.now()
    row_id = new_id()
    db.session.execute(
        insert(Consent).values(
            organization_id=client.organization.id,
            id=row_id,
            client_id=client.registered.client.id,
            user_id=user.id,
            scope="openid",
            created_at=now,
            updated_at=now,
            expires_at=now if ended else None,
        )
    )
    db.session.commit()
    return public_id("con", row_id)


def wanted(client: MadeClient, user: MadeUser, *, ended: bool = False) -> str:
    """Add a user's request for approval of the client and return its id."""
    now = clock.now()
    row_id = new_id()
    db.session.execute(
        insert(ClientRequest).values(
            organization_id=client.organization.id,
            id=row_id,
            client_id=client.registered.client.id,
            user_id=user.id,
            is_open=True,
            status="open",
            scope="openid",
            reason="For the harvest.",
            created_at=now,
            expires_at=now if ended else now + timedelta(days=1),
        )
    )
    db.session.commit()
    return public_id("crq", row_id)


def access_requested(client: MadeClient, resource_id: str, *, status: str = "requested") -> str:
    """Add a pending request, or another access, of the client to the resource and return its id."""
    row_id, parsed = new_id(), parse_public_id("res", resource_id)
    db.session.execute(
        insert(ClientAccess).values(
            organization_id=client.organization.id,
            id=row_id,
            client_id=client.registered.client.id,
            resource_id=parsed,
            status=status,
            scopes=[],
            reason="For the harvest.",
            created_at=clock.now(),
        )
    )
    db.session.commit()
    return public_id("acc", row_id)


def refused(client: MadeClient, at: datetime) -> str:
    """Add an entry to the failed-request log and return its id; one long past has expired."""
    request_id = public_id("req", new_id())
    entry = RejectedRequest(
        client=(client.organization.id, client.registered.client.id),
        at=at,
        request_id=request_id,
        endpoint="token",
        method="POST",
        status=400,
        error="invalid_grant",
        description="The code has expired or was revoked.",
        cause=Cause("code_expired"),
        parameters={},
        address=None,
        path_organization=None,
    )
    failed_requests.store_rejected_requests(Actor.system(client.organization.id), [entry])
    row_id = db.session.scalar(select(FailedRequest.id).where(FailedRequest.request_id == request_id))
    assert row_id is not None
    return public_id("flr", row_id)
