"""Authlib runs the flows: what we override, and which of its methods execute."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import authlib
import pytest
from flask.testing import FlaskClient

import app.oauth
import app.web
from app.operations.directory.lookups import OrganizationSnapshot
from tests.factories import Factory
from tests.oauth.conftest import FAST_KEYS, SCOPES, Flow
from tests.oauth.device import Device
from tests.support.registering import GOOD, own, register

pytestmark = pytest.mark.either

AUTHLIB = str(Path(authlib.__file__).parent)
# A method whose docstring invites developers to write their own is an extension point, and so is an empty one.
INVITATIONS = ("developer", "re-implement", "re-write", "rewrite", "framework", "must implement", "override")
# Overridden although Authlib does not document it. The docstring of each override says more.
REASONS = {
    "AuthorizationServer.handle_error_response": "stock texts may quote input, and the log needs a cause",
    "AuthorizationCodeGrant.validate_authorization_redirect_uri": "stock quotes the URI: a 500 for some of them",
    "AuthorizationCodeGrant.create_authorization_response": "stock rewrites the URI's query; no form_post, no iss",
    "CodeChallengeS256.validate_code_verifier": "stock answers invalid_request for a missing verifier",
    "RefreshTokenGrant.save_token": "an access token stored before the compare-and-set would deadlock with it",
    "OpenIDCodeFlow.encode_id_token": "stock lets user claims overwrite protocol claims, and invents auth_time",
    "OpenIDDevice.encode_id_token": "as above",
    "IntrospectionEndpoint.create_endpoint_response": "Authlib has no signed responses (RFC 9701)",
    "BearerTokenValidator.validate_token": "adds the DPoP proof to the stock checks (RFC 9449)",
    "DPoPTokenValidator.validate_token": "as above, by inheritance",
    "UserInfoEndpoint.__call__": "stock signs without kid",
    "UserInfoProtector.acquire_token": "stock needs Flask's request, and userinfo is answered without Flask",
    "UserInfoProtector.parse_request_authorization": "stock takes no token from a form (RFC 6750 section 2.2)",
    "MetadataClaims.validate": "stock rejects URIs of native apps, and fails with a 500 for wrong types",
    "RegistrationEndpoint.create_registration_response": "stock repeats what was sent, not what was registered",
    "RegistrationEndpoint.generate_client_info": "stock gives a secret to public clients",
}


def derived_classes() -> dict[str, type]:
    """Return every class of the application that derives from an Authlib class."""
    modules = [
        importlib.import_module(module.name)
        for package in (app.oauth, app.web)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__.startswith("app.") and authlib_bases(value)
    }


def authlib_bases(kind: type) -> list[type]:
    return [base for base in kind.__mro__ if base.__module__.startswith("authlib.")]


def overrides(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the overridden names with what Authlib would run without them."""
    bases = authlib_bases(kind)
    ours = [base for base in kind.__mro__ if base.__module__.startswith("app.")]
    for name in {name for base in ours for name in vars(base)}:
        if name in {"__init__", "__module__", "__doc__", "__dict__", "__weakref__", "__slots__", "__repr__"}:
            continue
        stock = next((vars(base)[name] for base in bases if name in vars(base)), None)
        if stock is not None:
            yield name, stock


def is_extension_point(name: str, stock: Any) -> bool:
    """Return whether Authlib documents it as overridable: a constant, an empty or an invited method."""
    if name.isupper():
        return True
    function = getattr(stock, "__func__", getattr(stock, "fget", stock))
    if "raise NotImplementedError" in inspect.getsource(function):
        return True
    words = (inspect.getdoc(function) or "").lower()
    return any(invitation in words for invitation in INVITATIONS)


def test_overrides_are_extension_points_or_have_a_reason() -> None:
    unexplained = {
        f"{kind.__name__}.{name}"
        for kind in derived_classes().values()
        for name, stock in overrides(kind)
        if not is_extension_point(name, stock)
    }
    assert unexplained == REASONS.keys()


def test_overrides_with_a_reason_document_it() -> None:
    classes = derived_classes()
    for name in REASONS:
        kind, _, method = name.partition(".")
        assert inspect.getdoc(getattr(classes[kind], method)), name


def test_every_required_authlib_class_is_derived_from() -> None:
    modules = {base.__module__ for kind in derived_classes().values() for base in authlib_bases(kind)}
    for part in (
        *("integrations.flask_oauth2.authorization_server", "integrations.flask_oauth2.resource_protector"),
        *("oauth2.rfc6749.grants.authorization_code", "oauth2.rfc6749.grants.client_credentials"),
        *("oauth2.rfc6749.grants.refresh_token", "oauth2.rfc6750.validator", "oauth2.rfc7009.revocation"),
        *("oauth2.rfc7591.endpoint", "oauth2.rfc7592.endpoint", "oauth2.rfc7636.challenge"),
        *("oauth2.rfc7662.introspection", "oauth2.rfc8628.device_code", "oauth2.rfc8628.endpoint"),
        *("oidc.core.grants.code", "oidc.core.userinfo", "oidc.registration.claims"),
        "oidc.rpinitiated.end_session",
    ):
        assert f"authlib.{part}" in modules, part


@contextmanager
def authlib_calls() -> Iterator[set[str]]:
    """Collect the qualified names of Authlib's functions that are called."""
    called: set[str] = set()

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(AUTHLIB):
            called.add(frame.f_code.co_qualname)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield called
    finally:
        sys.setprofile(before)


TOKEN_ENDPOINT = {
    "AuthorizationServer.create_token_response",
    "AuthorizationServer.get_token_grant",
    "AuthorizationServer.authenticate_client",
    "ClientAuthentication.authenticate",
    "AuthorizationServer.generate_token",
}


def test_code_flow_runs_authlibs_validation_and_responses(flow: Flow) -> None:
    with authlib_calls() as called:
        assert flow.redeem(flow.code(scope="openid profile")).status_code == 200
    assert called >= TOKEN_ENDPOINT | {
        "AuthorizationServer.get_consent_grant",
        "AuthorizationServer.create_authorization_response",
        "AuthorizationServer.save_token",
        "AuthorizationEndpointMixin.validate_consent_request",
        "AuthorizationCodeGrant.validate_authorization_request",
        "validate_code_authorization_request",
        "AuthorizationCodeGrant.create_authorization_response",
        "AuthorizationCodeGrant.validate_token_request",
        "AuthorizationCodeGrant.create_token_response",
        "CodeChallenge.validate_code_challenge",
        "CodeChallenge.validate_code_verifier",
        "OpenIDCode.validate_openid_authorization_request",
        "validate_request_prompt",
        "validate_nonce",
        "OpenIDToken.process_token",
    }


def test_refresh_runs_authlibs_validation_and_responses(flow: Flow) -> None:
    refresh_token = flow.tokens()["refresh_token"]
    with authlib_calls() as called:
        assert flow.refresh(refresh_token, scope="openid").status_code == 200
    assert called >= TOKEN_ENDPOINT | {
        "RefreshTokenGrant.validate_token_request",
        "RefreshTokenGrant._validate_request_client",
        "RefreshTokenGrant._validate_request_token",
        "RefreshTokenGrant._validate_token_scope",
        "RefreshTokenGrant.create_token_response",
        "RefreshTokenGrant.issue_token",
    }


def test_client_credentials_run_authlibs_validation_and_responses(http: FlaskClient, make: Factory) -> None:
    machine = make.machine(make.organization(), "reports:read")
    with authlib_calls() as called:
        answer = http.post("/oauth/token", data={"grant_type": "client_credentials"}, headers=machine.basic)
    assert answer.status_code == 200
    assert called >= TOKEN_ENDPOINT | {
        "ClientCredentialsGrant.validate_token_request",
        "ClientCredentialsGrant.create_token_response",
        "AuthorizationServer.validate_requested_scope",
        "AuthorizationServer.save_token",
    }


def test_device_flow_runs_authlibs_validation_and_responses(http: FlaskClient, make: Factory) -> None:
    user = make.user(make.organization(settings=FAST_KEYS))
    device = Device(http, make, user, scopes=SCOPES)
    with authlib_calls() as called:
        codes = device.code()
    assert called >= {
        "AuthorizationServer.create_endpoint_response",
        "DeviceAuthorizationEndpoint.create_endpoint_response",
        "DeviceAuthorizationEndpoint.authenticate_client",
    }
    device.sign_in()
    device.allow(codes["user_code"])
    device.wait()
    with authlib_calls() as called:
        assert device.poll(codes["device_code"]).status_code == 200
    assert called >= TOKEN_ENDPOINT | {
        "DeviceCodeGrant.validate_token_request",
        "DeviceCodeGrant.validate_device_credential",
        "DeviceCodeGrant.create_token_response",
        "OpenIDToken.process_token",
    }


def test_introspection_and_revocation_run_authlibs_validation_and_responses(flow: Flow) -> None:
    token = flow.tokens()["access_token"]
    with authlib_calls() as called:
        assert flow.is_alive(token)
    assert called >= {
        "AuthorizationServer.create_endpoint_response",
        "TokenEndpoint.authenticate_endpoint_client",
        "IntrospectionEndpoint.authenticate_token",
        "IntrospectionEndpoint.check_params",
        "IntrospectionEndpoint.create_endpoint_response",
        "IntrospectionEndpoint.create_introspection_payload",
    }
    with authlib_calls() as called:
        answer = flow.http.post("/oauth/revoke", data={"token": token}, headers=flow.client.basic)
    assert answer.status_code == 200 and not flow.is_alive(token)
    assert called >= {
        "AuthorizationServer.create_endpoint_response",
        "TokenEndpoint.authenticate_endpoint_client",
        "RevocationEndpoint.authenticate_token",
        "RevocationEndpoint.check_params",
        "RevocationEndpoint.create_endpoint_response",
    }


def test_registration_runs_authlibs_validation_and_responses(
    http: FlaskClient, open_to_all: OrganizationSnapshot
) -> None:
    with authlib_calls() as called:
        told = register(http, open_to_all).get_json()
    assert called >= {
        "AuthorizationServer.create_endpoint_response",
        "ClientRegistrationEndpoint.create_registration_response",
        "ClientRegistrationEndpoint.extract_client_metadata",
    }
    with authlib_calls() as called:
        assert own(http, told, "PUT", **(GOOD | {"client_id": told["client_id"]})).status_code == 200
        assert own(http, told, "GET").status_code == 200
        assert own(http, told, "DELETE").status_code == 204
    assert called >= {
        "ClientConfigurationEndpoint.create_configuration_response",
        "ClientConfigurationEndpoint.create_read_client_response",
        "ClientConfigurationEndpoint.create_update_client_response",
        "ClientConfigurationEndpoint.create_delete_client_response",
        "ClientConfigurationEndpoint.extract_client_metadata",
    }


def test_userinfo_and_logout_run_authlibs_validation_and_responses(flow: Flow) -> None:
    tokens = flow.tokens()
    with authlib_calls() as called:
        bearer = {"Authorization": f"Bearer {tokens['access_token']}"}
        assert flow.http.get("/oauth/userinfo", headers=bearer).status_code == 200
        answer = flow.http.get("/oauth/logout", query_string={"id_token_hint": tokens["id_token"]})
        assert answer.status_code == 303
    assert called >= {
        "UserInfoEndpoint.__call__",
        "ResourceProtector.validate_request",
        "BearerTokenValidator.validate_token",
        "AuthorizationServer.validate_endpoint_request",
        "EndSessionEndpoint.validate_request",
        "EndSessionEndpoint.create_response",
    }


def test_management_api_runs_authlibs_protector(http: FlaskClient, make: Factory) -> None:
    machine = make.machine(make.organization(), "clients:read")
    issued = http.post("/oauth/token", data={"grant_type": "client_credentials"}, headers=machine.basic)
    bearer = {"Authorization": f"Bearer {issued.get_json()['access_token']}"}
    with authlib_calls() as called:
        assert http.get("/clients", headers=bearer).status_code == 200
    assert called >= {
        "ResourceProtector.acquire_token",
        "ResourceProtector.parse_request_authorization",
        "ResourceProtector.validate_request",
        "BearerTokenValidator.validate_token",
    }


def test_issued_tokens_are_not_in_authlibs_debug_log(flow: Flow, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="authlib")
    tokens = flow.tokens()
    assert flow.refresh(tokens["refresh_token"]).status_code == 200
    assert "Issue token" in caplog.text
    for name in ("access_token", "refresh_token"):
        assert tokens[name] not in caplog.text
