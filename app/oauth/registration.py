"""Dynamic client registration (RFC 7591) and the management of what was registered (RFC 7592).

Browser apps register themselves too and no cookie has authority here, so any page may read the answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Response, request

from app.oauth import cors
from app.oauth.answer import REALM, Answer, answer, refusal_of
from app.oauth.call import Call
from app.oauth.wire import require_secure
from app.operations.clients import dynamic_registration
from app.operations.clients.dynamic_registration import Registration
from app.operations.directory import lookups
from app.rules.actor import Actor
from app.rules.clients.dynamic_metadata import LARGEST, as_document, refusal_code, refusal_words
from app.rules.errors import DomainError, Forbidden, InvalidInput, Unauthenticated
from app.rules.oauth_errors import OAuthError
from app.rules.strict_json import load_object

_METHODS = "GET, POST, PUT, DELETE"
_BODY = ("Content-Type", "Content-Length")


def register() -> Response:
    """A client registers itself."""
    return _answered(
        lambda call: _document(
            dynamic_registration.register_dynamic_client(_actor(call), _metadata(call), _bearer(call)), 201
        )
    )


def show(client_id: str) -> Response:
    """A client reads what it is registered as."""
    return _answered(
        lambda call: _document(dynamic_registration.get_registration(_actor(call), client_id, _bearer(call)))
    )


def replace(client_id: str) -> Response:
    """A client is from now on what it sends."""
    return _answered(
        lambda call: _document(
            dynamic_registration.replace_registration(_actor(call), client_id, _bearer(call), _metadata(call))
        )
    )


def remove(client_id: str) -> Response:
    """A client takes itself away."""

    def work(call: Call) -> Answer:
        dynamic_registration.delete_registration(_actor(call), client_id, _bearer(call))
        gone = answer({}, 204)
        return Answer(204, b"", [header for header in gone.headers if header[0] not in _BODY])

    return _answered(work)


def preflight(client_id: str = "") -> Response:
    """What a browser asks before it lets a page register a client; alike for every origin and client."""
    response = cors.preflight()
    if "Access-Control-Allow-Methods" in response.headers:
        response.headers["Access-Control-Allow-Methods"] = _METHODS
    return response


def _answered(work: Callable[[Call], Answer]) -> Response:
    call = Call.current()
    if "client_id" in (request.view_args or {}):
        call.sent = {"client_id": str((request.view_args or {})["client_id"])}
    try:
        require_secure(call)
        given = work(call)
    except InvalidInput as error:
        refused = OAuthError(refusal_words(error), code=refusal_code(error))
        given = refusal_of(refused.with_cause("registration_refused", received=error.description), call)
    except Forbidden as error:
        given = refusal_of(Forbidden(error.description, code="access_denied"), call)
    except Unauthenticated as error:
        given = refusal_of(error.with_cause("registration_token_invalid"), call)
        why = f', error="{error.code}"' if call.authorization else ""
        given.headers.append(("WWW-Authenticate", f'Bearer realm="{REALM}"{why}'))
    except DomainError as error:
        given = refusal_of(error, call)
    given.headers.append(("Access-Control-Allow-Origin", "*"))
    return given.as_response()


def _actor(call: Call) -> Actor:
    here = call.organization_id or lookups.get_root_organization().id
    return Actor.anonymous(here, call.address, call.request_id)


def _metadata(call: Call) -> dict[str, Any]:
    if call.content_type != "application/json":
        raise InvalidInput("Send the metadata as application/json.")
    body = call.read_body()
    if len(body) > LARGEST:
        raise InvalidInput("The metadata is longer than 16 KiB.")
    return load_object(body)


def _bearer(call: Call) -> str | None:
    scheme, _, token = (call.authorization or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _document(registration: Registration, status: int = 200) -> Answer:
    client, organization = registration.client, registration.organization
    document: dict[str, Any] = {
        "client_id": client.client_id,
        "client_id_issued_at": int(client.created_at.timestamp()),
    }
    if registration.secret is not None:
        document["client_secret"] = registration.secret
    if registration.has_secret:
        ends = registration.secret_expires_at
        document["client_secret_expires_at"] = 0 if ends is None else int(ends.timestamp())
    document["registration_access_token"] = registration.access_token
    document["registration_client_uri"] = f"{organization.issuer}/oauth/register/{client.client_id}"
    return answer(document | as_document(client, organization.settings), status)
