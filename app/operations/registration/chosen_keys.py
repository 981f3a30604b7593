"""The keys behind what clients chose to have signed: published before they sign.

Who reads the key set while signing in must find the key of the userinfo that follows. Libraries keep the set for a
minute and take an unknown key within it for a forgery.
"""

from __future__ import annotations

from functools import partial

from app.operations.directory import OrganizationView
from app.operations.tokens import signing_keys
from app.operations.transaction import on_commit
from app.rules.registration.client_metadata import ClientMetadata


def publish_chosen(organization: OrganizationView, metadata: ClientMetadata) -> None:
    """A key for each algorithm that the client chose stands once the unit under way is committed (KY-2).

    Not before: making an RSA key takes its time, and rows would wait for it.
    """
    chosen = {
        metadata.id_token_signed_response_alg,
        metadata.userinfo_signed_response_alg,
        metadata.introspection_signed_response_alg,
    }
    for algorithm in sorted(chosen - {None}, key=str):
        on_commit(partial(_stand, organization, str(algorithm)))


def _stand(organization: OrganizationView, algorithm: str) -> None:
    signing_keys.active_key(organization, algorithm)
