"""Protected-resource metadata (RFC 9728) of the organization's resources and of our own management API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.config import current
from app.operations.directory import organization_by_id
from app.operations.registration.resources import get_resource
from app.operations.tokens.audiences import management_audience
from app.operations.transaction import read
from app.rules.actor import Actor
from app.rules.client_proof import dpop
from app.rules.people.permissions import PERMISSIONS, ROOT_ONLY
from app.rules.tokens.protected_resource import challenge_of, metadata_address, metadata_of


@dataclass(frozen=True, slots=True)
class ResourceMetadata:
    """The document, where it belongs, and the header that leads there; None for what is no web address."""

    document: dict[str, Any]
    address: str | None
    challenge: str | None


@read
def metadata_for(actor: Actor, resource_id: str) -> ResourceMetadata:
    """What the resource should serve about itself. Raises NotFound, Forbidden."""
    record = get_resource(actor, resource_id)
    issuer = organization_by_id(actor.organization_id).issuer
    scopes = [scope.name for scope in record.scopes]
    address = metadata_address(record.identifier)
    return ResourceMetadata(
        metadata_of(record.identifier, issuer=issuer, scopes=scopes, name=record.name),
        address,
        None if address is None else challenge_of(address),
    )


def management_metadata() -> dict[str, Any]:
    """The document of the management API; the endpoints at the base URL serve every organization's clients."""
    scopes = (*PERMISSIONS, *ROOT_ONLY)
    document = metadata_of(
        management_audience(), issuer=current().base_url, scopes=scopes, name="Gatehouse management API"
    )
    return document | {"dpop_signing_alg_values_supported": list(dpop.ALGORITHMS)}


def management_metadata_address() -> str:
    """Where that document stands."""
    return metadata_address(management_audience()) or ""
