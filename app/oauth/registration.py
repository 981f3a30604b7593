"""Dynamic client registration (RFC 7591) and the management of a registration (RFC 7592).

Browser apps register themselves too, and no cookie authorizes anything here: any page may read the responses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from authlib.oauth2 import rfc7591, rfc7592
from authlib.oidc.registration import ClientMetadataClaims
from flask import Response

from app.oauth.protocol_request import ProtocolRequest, handle
from app.oauth.protocol_response import REALM, ProtocolResponse, error_response
from app.oauth.request_parsing import ParsedJsonRequest, require_https
from app.oauth.server import checked_response, server
from app.operations.clients import dynamic_registration
from app.operations.clients.clients import delete_client
from app.operations.clients.dynamic_registration import Registration, RegistrationPermit
from app.operations.directory import lookups
from app.operations.store.transactions import read, transaction
from app.rules.actor import Actor
from app.rules.clients.dynamic_metadata import MAX_BYTES, NAMES, as_document, refusal_code, refusal_words
from app.rules.errors import DomainError, Forbidden, InvalidInput, OAuthError, Unauthenticated
from app.rules.strict_json import load_object


class MetadataClaims(ClientMetadataClaims):
    """Client metadata of RFC 7591 and OpenID Connect."""

    REGISTERED_CLAIMS = NAMES

    def validate(self, now: Any = None, leeway: int = 0) -> None:
        """Leave the checks to the operation, which reports every wrong field and what is allowed.

        The stock checks reject redirect URIs of native apps (RFC 8252 section 7.1) and scopes that should be left
        out, and fail with a 500 for values of a wrong type.
        """


class RegistrationRequest(ParsedJsonRequest):
    """A request of a stranger (``permit``) or of a registered client (``client_id`` and ``access_token``)."""

    def __init__(self, request: ProtocolRequest, client_id: str = "") -> None:
        super().__init__(request, _metadata(request) if request.method in {"POST", "PUT"} else {})
        here = request.organization_id or lookups.get_root_organization().id
        self.actor = Actor.anonymous(here, request.ip_address, request.request_id)
        self.client_id = client_id
        scheme, _, token = (request.authorization or "").partition(" ")
        self.access_token = token.strip() if scheme.lower() == "bearer" else None
        self.permit: RegistrationPermit | None = None
        self.document: dict[str, Any] = {}


class RegisteredClient:
    """A registered client as Authlib needs to see it, with the actor of its registration access token."""

    def __init__(self, registrar: Actor, client_id: str, access_token: str) -> None:
        self.registrar, self.client_id, self.access_token = registrar, client_id, access_token
        self.registration: Registration | None = None

    @property
    def client_info(self) -> dict[str, Any]:
        """The registered metadata of the client."""
        if self.registration is None:
            self.registration = dynamic_registration.get_registration(
                self.registrar, self.client_id, self.access_token
            )
        return _document(self.registration)

    @property
    def client_metadata(self) -> dict[str, Any]:
        """Nothing more: ``client_info`` has the metadata too."""
        return {}

    def get_client_id(self) -> str:
        """Return the public ``client_id``."""
        return self.client_id

    def check_client(self, client: RegisteredClient) -> bool:
        """Return whether the registration access token, which this object also represents, belongs to the client."""
        return client.client_id == self.client_id

    def check_client_secret(self, client_secret: str) -> bool:
        """Return True: a sent secret is ignored. It changes nothing, and need not match to change nothing."""
        return True


class RegistrationEndpoint(rfc7591.ClientRegistrationEndpoint):
    """Registration by a stranger."""

    def authenticate_token(self, request: RegistrationRequest) -> RegistrationPermit | None:
        """Return the permit, which was given before the transaction."""
        return request.permit

    def get_server_metadata(self) -> dict[str, Any]:
        """Return nothing: the organization's rules leave out what it does not offer, where Authlib would fail."""
        return {}

    def generate_client_info(self, request: RegistrationRequest) -> dict[str, Any]:
        """Return nothing: the operation generates id and secret. Stock gives a secret to public clients too."""
        return {}

    def save_client(
        self, client_info: dict[str, Any], client_metadata: Mapping[str, Any], request: RegistrationRequest
    ) -> Registration:
        """Register the client."""
        if request.permit is None:
            raise Unauthenticated("This is not an initial access token.")
        registration = dynamic_registration.register_dynamic_client(
            request.actor, request.permit, client_metadata
        )
        request.document = _document(registration)
        return registration

    def create_registration_response(self, request: RegistrationRequest) -> tuple[int, Any, Any]:
        """Return what was registered (RFC 7591 section 3.2.1); Authlib's body repeats what was sent."""
        status, _, headers = super().create_registration_response(request)
        return status, request.document, headers


class ConfigurationEndpoint(rfc7592.ClientConfigurationEndpoint):
    """Management of a registration by the client itself."""

    def authenticate_token(self, request: RegistrationRequest) -> RegisteredClient:
        """Authenticate the registration access token. Raises Unauthenticated, Forbidden."""
        token = request.access_token or ""
        registrar = dynamic_registration.authenticate_registrar(request.actor, request.client_id, token)
        return RegisteredClient(registrar, request.client_id, token)

    def authenticate_client(self, request: RegistrationRequest) -> RegisteredClient:
        """Return the client in the path, which the token was authenticated for."""
        client: RegisteredClient = request.credential
        return client

    def revoke_access_token(self, token: RegisteredClient, request: RegistrationRequest) -> None:
        """Do nothing: a token without its client is not authenticated."""

    def check_permission(self, client: RegisteredClient, request: RegistrationRequest) -> bool:
        """Check that a change is about this client. Raises InvalidInput, which names the field."""
        if request.method == "PUT":
            dynamic_registration.require_own_change(client.client_id, request.payload.data)
        return True

    def generate_client_registration_info(self, client: RegisteredClient, request: Any) -> dict[str, Any]:
        """Return nothing more: the document has the URI and the access token."""
        return {}

    def get_server_metadata(self) -> dict[str, Any]:
        """Return nothing, as for registration."""
        return {}

    def update_client(
        self, client: RegisteredClient, client_metadata: Mapping[str, Any], request: RegistrationRequest
    ) -> RegisteredClient:
        """Replace the client's metadata."""
        client.registration = dynamic_registration.replace_registration(
            client.registrar, client.client_id, client.access_token, client_metadata
        )
        return client

    def delete_client(self, client: RegisteredClient, request: RegistrationRequest) -> None:
        """Delete the client."""
        delete_client(client.registrar, client.client_id)


server.register_endpoint(RegistrationEndpoint(claims_classes=[MetadataClaims]))
server.register_endpoint(ConfigurationEndpoint(claims_classes=[MetadataClaims]))


def register() -> Response:
    """Register a client."""

    def work(request: ProtocolRequest) -> ProtocolResponse:
        parsed = RegistrationRequest(request)
        parsed.permit = dynamic_registration.permit_registration(
            parsed.actor, parsed.payload.data, parsed.access_token
        )
        return _change("client_registration", parsed)

    return _answered(work)


def show(client_id: str) -> Response:
    """Return what a client is registered as."""
    return _answered(lambda request: _read(RegistrationRequest(request, client_id)), client_id)


def replace(client_id: str) -> Response:
    """Replace a client's metadata by what it sends."""

    def work(request: ProtocolRequest) -> ProtocolResponse:
        parsed = RegistrationRequest(request, client_id)
        dynamic_registration.authenticate_registrar(parsed.actor, client_id, parsed.access_token)
        dynamic_registration.fetch_sector_document(parsed.actor, parsed.payload.data)
        return _change("client_configuration", parsed)

    return _answered(work, client_id)


def remove(client_id: str) -> Response:
    """Delete a client."""
    return _answered(
        lambda request: _change("client_configuration", RegistrationRequest(request, client_id)), client_id
    )


@transaction
def _change(endpoint: str, request: RegistrationRequest) -> ProtocolResponse:
    return _create_response(endpoint, request)


@read
def _read(request: RegistrationRequest) -> ProtocolResponse:
    return _create_response("client_configuration", request)


def _create_response(endpoint: str, request: RegistrationRequest) -> ProtocolResponse:
    response: ProtocolResponse = checked_response(server.create_endpoint_response(endpoint, request))
    return response


def _answered(work: Callable[[ProtocolRequest], ProtocolResponse], client_id: str | None = None) -> Response:
    request = ProtocolRequest.from_flask()
    if client_id is not None:
        request.parameters = {"client_id": client_id}
    try:
        require_https(request)
        response = handle(work, request)
    except InvalidInput as error:
        refused = OAuthError(refusal_words(error), code=refusal_code(error))
        response = error_response(
            refused.with_cause("registration_refused", received=error.description), request
        )
    except Forbidden as error:
        response = error_response(Forbidden(error.description, code="access_denied"), request)
    except Unauthenticated as error:
        response = error_response(error.with_cause("registration_token_invalid"), request)
        why = f', error="{error.code}"' if request.authorization else ""
        response.headers.append(("WWW-Authenticate", f'Bearer realm="{REALM}"{why}'))
    except DomainError as error:
        response = error_response(error, request)
    return response.to_flask()


def _metadata(request: ProtocolRequest) -> dict[str, Any]:
    if request.content_type != "application/json":
        raise InvalidInput("Send the metadata as application/json.")
    body = request.read_body()
    if len(body) > MAX_BYTES:
        raise InvalidInput("The metadata is longer than 16 KiB.")
    metadata = load_object(body)
    if not metadata:
        raise InvalidInput("The metadata is empty. Send redirect_uris.", field="redirect_uris")
    return metadata


def _document(registration: Registration) -> dict[str, Any]:
    client, organization = registration.client, registration.organization
    document: dict[str, Any] = {
        "client_id": client.client_id,
        "client_id_issued_at": int(client.created_at.timestamp()),
    }
    if registration.secret is not None:
        document["client_secret"] = registration.secret
    if registration.has_secret:
        expires_at = registration.secret_expires_at
        document["client_secret_expires_at"] = 0 if expires_at is None else int(expires_at.timestamp())
    document["registration_access_token"] = registration.access_token
    document["registration_client_uri"] = f"{organization.issuer}/oauth/register/{client.client_id}"
    return document | as_document(client, organization.settings)
