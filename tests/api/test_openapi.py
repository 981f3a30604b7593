"""The OpenAPI document: valid, complete, and the same as the routes in both directions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.api.openapi.document import is_versioned
from app.rules.authorization.authorization_request import parse_authorization_request
from app.rules.directory.permissions import ALL_PERMISSIONS
from tests.support.cases import each
from tests.support.openapi import operations, resolve

# Pages are not part of the document.
_PAGES = {"portal", "account", "static", "setup", "device", "logos", "security_txt"}
# SCIM describes itself: ServiceProviderConfig, ResourceTypes and Schemas (RFC 7643).
_SELF_DESCRIBED = {"scim"}


@pytest.fixture
def document(http: FlaskClient) -> dict[str, Any]:
    answer = http.get("/openapi.json")
    assert answer.status_code == 200 and answer.mimetype == "application/json"
    found: dict[str, Any] = answer.get_json()
    return found


def _shape(path: str) -> str:
    """Return the path without the names of its parameters."""
    return re.sub(r"\{[^}]*\}", "{}", re.sub(r"<[^>]*>", "{}", path))


def _routes(app: Flask) -> set[tuple[str, str]]:
    found = set()
    for rule in app.url_map.iter_rules():
        if rule.endpoint.split(".")[0] in _PAGES | _SELF_DESCRIBED or rule.endpoint == "static":
            continue
        methods = set(rule.methods or ()) - {"HEAD", "OPTIONS"}
        found |= {(method, _shape(rule.rule)) for method in methods}
    return found


def test_routes_and_document_are_the_same(app: Flask, document: dict[str, Any]) -> None:
    described = {(operation.method.upper(), _shape(operation.path)) for operation in operations(document)}
    described |= {(method, f"/api/v1{path}") for method, path in described if is_versioned(path)}
    assert _routes(app) - described == set(), "routes that the document leaves out"
    assert described - _routes(app) == set(), "operations that no route answers"


def test_longest_values_of_an_authorization_request_are_accepted(document: dict[str, Any]) -> None:
    listed = document["paths"]["/oauth/authorize"]["get"]["parameters"]
    longest = {each["name"]: "x" * each["schema"].get("maxLength", 0) for each in listed}
    sent = {"response_type": "code", "code_challenge": "c" * 43, "code_challenge_method": "S256"}
    for name in ("state", "nonce", "id_token_hint", "login_hint", "ui_locales"):
        # Raises an error for a value that is too long.
        parse_authorization_request(
            sent | {"scope": "openid", name: longest[name]},
            (),
            redirect_uri="",
            client={"scopes": ["openid"]},
        )


@each(
    "name",
    [
        "token",
        "introspect",
        "revoke",
        "userinfo",
        "par",
        "device_authorization",
        "register",
        "authorize",
        "logout",
    ],
)
def test_oauth_endpoints_describe_limits_and_encoded_bodies(
    http: FlaskClient, document: dict[str, Any], name: str
) -> None:
    mimetype = "application/json" if name == "register" else "application/x-www-form-urlencoded"
    encoded = {"Content-Encoding": "gzip", "Content-Type": mimetype}
    answer = http.post(f"/oauth/{name}", data=b"x", headers=encoded)
    described = document["paths"][f"/oauth/{name}"]["post"]["responses"]
    assert answer.status_code == 415 and {"415", "429"} <= set(described)


def test_document_is_the_same_under_both_prefixes(http: FlaskClient, document: dict[str, Any]) -> None:
    assert http.get("/api/v1/openapi.json").get_json() == document
    assert [server["url"] for server in document["servers"]] == [
        "http://localhost",
        "http://localhost/api/v1",
    ]


def test_references_resolve_and_components_are_used(document: dict[str, Any]) -> None:
    used = set(_references(document))
    for reference in used:
        resolve(document, {"$ref": reference})
    for kind in ("schemas", "parameters", "responses", "headers"):
        for name in document["components"][kind]:
            assert f"#/components/{kind}/{name}" in used, f"{kind}/{name} is used nowhere"


@pytest.mark.slow
def test_schemas_are_valid_json_schema(document: dict[str, Any]) -> None:
    for name in document["components"]["schemas"]:
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        jsonschema_rs.Draft202012Validator(schema)


def test_schemas_have_descriptions_and_responses_have_names(document: dict[str, Any]) -> None:
    """Generators name classes after components, and inline schemas after paths and statuses."""
    schemas = document["components"]["schemas"]
    assert [name for name, schema in schemas.items() if not schema.get("description")] == []
    for operation in operations(document):
        if operation.is_management:
            assert operation.document["summary"], operation.id
            for response in operation.document["responses"].values():
                json_content = resolve(document, response).get("content", {}).get("application/json")
                assert json_content is None or "$ref" in json_content["schema"], operation.id


def test_objects_have_names_and_what_may_be_null_says_so_as_generators_read_it(
    document: dict[str, Any],
) -> None:
    """openapi-generator names inline objects after the first place, and ignores null beside inline alternatives."""
    components = document["components"]["schemas"]
    inline = dict(_schemas(document, ""))
    for name in components:
        inline.pop(f".components.schemas.{name}")
    assert [path for path, schema in inline.items() if "properties" in schema] == []
    for path, schema in inline.items():
        alternatives = schema.get("anyOf", [])
        assert alternatives == [] or (alternatives[1:] == [{"type": "null"}] and "$ref" in alternatives[0]), (
            path
        )
        if "enum" in schema:
            assert (None in schema["enum"]) is ("null" in schema["type"]), path
        # openapi-generator makes an enumeration of the text "true" from a constant that has a type.
        assert not (isinstance(schema.get("const"), bool) and "type" in schema), path
    assert "webhooks" not in document, "openapi-generator makes methods of a client from them"


def test_properties_and_parameters_have_descriptions(document: dict[str, Any]) -> None:
    """A reference has the description of its component."""
    fields = [*_properties(document, ""), *_parameters(document, "")]
    assert [
        name
        for name, field in fields
        if not (field.get("description") or resolve(document, field).get("description"))
    ] == []


def test_operation_ids_are_unique_and_path_parameters_are_declared(document: dict[str, Any]) -> None:
    every = operations(document)
    assert len({operation.id for operation in every}) == len(every)
    for operation in every:
        declared = {parameter["name"] for parameter in operation.parameters if parameter["in"] == "path"}
        assert declared == set(re.findall(r"\{([^}]*)\}", operation.path)), operation.id


def test_scopes_are_permissions_and_responses_are_envelopes(document: dict[str, Any]) -> None:
    for operation in operations(document):
        if not operation.is_management:
            continue
        assert operation.scope is None or operation.scope in ALL_PERMISSIONS, operation.id
        responses = operation.document["responses"]
        assert {"400", "401", "403", "405", "429", "500", "503"} <= set(responses), operation.id
        # Every body is read within its deadline and limit, also one that is not expected.
        read = {"408", "413", "415"} if operation.method != "get" else set()
        assert read <= set(responses), operation.id
        for status, response in responses.items():
            if status == "304":
                continue  # It has no body.
            content = resolve(document, response)["content"]
            if status == "200" and set(content) == {"application/x-ndjson"}:
                continue  # An export is lines; its refusals are envelopes.
            schema = content["application/json"]["schema"]
            success = resolve(document, schema)["properties"]["success"]
            assert success["const"] is (status < "300"), (operation.id, status)


def _properties(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield each property of each schema with its path."""
    if isinstance(node, dict) and isinstance(node.get("properties"), dict):
        for name, field in node["properties"].items():
            yield f"{path}.{name}", field
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(value, (dict, list)):
            yield from _properties(value, f"{path}.{key}")


def _schemas(node: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each schema with its path."""
    if (
        isinstance(node, dict)
        and node.keys() & {"type", "properties", "anyOf", "enum", "const"}
        and "in" not in node
    ):
        yield path, node
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(value, (dict, list)):
            yield from _schemas(value, f"{path}.{key}")


def _parameters(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict) and {"in", "name", "schema"} <= set(node):
        yield f"{path}.{node['name']}", node
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(value, (dict, list)):
            yield from _parameters(value, f"{path}.{key}")


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value
            else:
                yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)
