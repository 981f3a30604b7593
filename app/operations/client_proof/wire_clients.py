"""The client that a ``client_id`` on the wire names: the one place where it becomes a row.

It is an id that we gave, which names its organization, or where an organization takes such ids the address of the
client's own metadata. An address names no organization: it is known at the endpoints of one issuer, and at those
without one to the root organization, whose issuer they are.
"""

from __future__ import annotations

from app.operations import directory
from app.operations.directory import ClientView, OrganizationView
from app.operations.self_registration import documents
from app.rules.errors import NotFound

_ROOT = "root"


def find_wire_client(
    client_id: str, *, organization_id: str | None, address: str | None = None, fresh: bool = False
) -> ClientView | None:
    """The client, whatever its state, if the organization of the path knows it, where there is one (MX-3).

    ``address`` is the caller's; ``fresh`` is as in ``directory.find_client``. Raises DocumentRefused when a client's
    metadata cannot be read at its address, TooManyRequests. Called outside of a unit of work.
    """
    if client_id.startswith("https://"):
        return _of_address(client_id, organization_id, address, fresh)
    client = directory.find_client(client_id, fresh=fresh)
    if client is None or organization_id not in {None, client.organization.id}:
        return None
    # A client has one name on the wire.
    return client if client.metadata_document_uri is None else None


def find_authenticating_client(
    client_id: str, *, organization_id: str | None, address: str | None = None, fresh: bool = False
) -> ClientView | None:
    """As ``find_wire_client``, where a client whose metadata cannot be read is as unknown as any other (CA-3)."""
    try:
        return find_wire_client(client_id, organization_id=organization_id, address=address, fresh=fresh)
    except documents.DocumentRefused:
        return None


def _of_address(
    client_id: str, organization_id: str | None, address: str | None, fresh: bool
) -> ClientView | None:
    try:
        organization = _organization(organization_id)
    except NotFound:
        return None
    row_id = documents.client_at(organization, client_id, address)
    client = None if row_id is None else directory.client_of_row(organization.id, row_id, fresh=fresh)
    if row_id is None or client is not None:
        return client
    # It ended since this process met it; who comes back after that is met anew.
    documents.forget_documents()
    row_id = documents.client_at(organization, client_id, address)
    return None if row_id is None else directory.client_of_row(organization.id, row_id, fresh=True)


def _organization(organization_id: str | None) -> OrganizationView:
    if organization_id is None:
        return directory.organization_by_slug(_ROOT, fresh=False)
    return directory.organization_by_id(organization_id, fresh=False)
