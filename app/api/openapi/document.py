"""The OpenAPI 3.1 document: the endpoints of the API with their callbacks, and the OAuth endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema
from pydantic_core import core_schema

from app.api.endpoints import (
    ENDPOINTS,
    Endpoint,
    JsonSchema,
    camel_case,
    component,
    documented_name,
    documented_path,
    nullable,
    object_schema,
    pascal_case,
    reference,
)
from app.api.openapi import components, oauth, service, webhook_events
from app.api.organizations.settings import SettingsRole
from app.config import VERSION
from app.operations.store.rows import MAX_LIMIT
from app.rules.directory.attributes import UserAttribute

_DESCRIPTION = """\
Authentication and authorization for many isolated organizations.

The management API is available at the paths below and also under `/api/v1`; `POST /api/v1/revoke` is available only
there. The OAuth endpoints are available at the root, where the client determines the organization, and under each
issuer, `/organizations/{id}`, where the path determines it.

Every response of the management API is `{"success": true, "data": …}` or `{"success": false, "error_code": …, …}`.
Request bodies are JSON objects in UTF-8 of at most 64 KiB. Unknown fields, duplicate keys and values of another type
are rejected with 400, and all invalid fields are reported at once. So are fields in the body of a DELETE or POST that
has none. In a PUT, omitted fields keep their values, and
`null` restores the default.
"""
# The names of what many responses have in `meta`.
_SHARED_META = {"PageMeta": {"next_cursor"}, "ChangeMeta": {"changed"}, "CreationMeta": {"repeated"}}
_EVERY_ERROR = (400, 401, 403, 405, 429, 500, 503)


class _JsonSchemas(GenerateJsonSchema):
    """JSON Schema without titles, and without the default null of fields that may be left out."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return that no field has a title."""
        return False

    def nullable_schema(self, schema: core_schema.NullableSchema) -> dict[str, Any]:
        """Return the schema, or null."""
        return nullable(self.generate_inner(schema["schema"]))

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        """Return the schema without a default of None or an empty text, which means that the field is left out."""
        return (
            super().default_schema(schema) if schema.get("default") else self.generate_inner(schema["schema"])
        )


def build_document(base_url: str) -> JsonSchema:
    """Return the document; ``base_url`` is the URL of this service."""
    paths: dict[str, JsonSchema] = {}
    for endpoint in ENDPOINTS:
        path = documented_path(f"/api/v1{endpoint.path}" if endpoint.only_v1 else endpoint.path)
        item = paths.setdefault(path, _path_item(endpoint))
        item[endpoint.method.lower()] = _operation(endpoint)
    paths |= oauth.paths() | service.paths()
    for path in paths:
        if not is_versioned(path):
            paths[path] |= {"servers": [{"url": base_url}]}
    tags = [
        operation["tags"][0]
        for item in paths.values()
        for operation in item.values()
        if isinstance(operation, dict) and "tags" in operation
    ]
    schemas = _schemas()
    document: JsonSchema = {
        "openapi": "3.1.0",
        "info": {"title": "Gatehouse", "version": VERSION, "description": _DESCRIPTION},
        "servers": [
            {"url": base_url, "description": "The paths of the specification."},
            {"url": f"{base_url}/api/v1", "description": "The same management API."},
        ],
        "tags": [{"name": name} for name in dict.fromkeys(tags)],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "parameters": components.PARAMETERS | _path_parameters(),
            "headers": components.HEADERS,
            "responses": components.error_responses(),
            "securitySchemes": components.SECURITY,
        },
    }
    defined: JsonSchema = {}
    resolved: JsonSchema = _with_references(document, defined)
    resolved["components"]["schemas"] |= defined
    return resolved


def is_versioned(path: str) -> bool:
    """Return whether the path is also available under ``/api/v1``: the management API is, and nothing else."""
    managed = {_shape(documented_path(endpoint.path)) for endpoint in ENDPOINTS if not endpoint.only_v1}
    return _shape(path) in managed or path == "/openapi.json"


def _shape(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", path)


def _path_item(endpoint: Endpoint) -> JsonSchema:
    names = _arguments(endpoint)
    references = [f"#/components/parameters/{_component_name(name)}" for name in names]
    return {"parameters": [{"$ref": reference} for reference in references]} if names else {}


def _arguments(endpoint: Endpoint) -> list[str]:
    """Return the names of the parameters in the path."""
    return re.findall(r"<(?:\w+:)?(\w+)>", endpoint.path)


def _component_name(argument: str) -> str:
    return pascal_case("organization_id" if argument == "slug" else argument)


def _path_parameters() -> JsonSchema:
    arguments = {name for endpoint in ENDPOINTS for name in _arguments(endpoint)}
    return {
        _component_name(name): {
            "name": documented_name(name),
            "in": "path",
            "required": True,
            **components.PATH_ARGUMENTS[name],
        }
        for name in sorted(arguments)
    }


def _operation(endpoint: Endpoint) -> JsonSchema:
    summary, _, description = (endpoint.view.__doc__ or "").partition("\n\n")
    paragraphs = " ".join(description.split())
    required = f"Requires the scope `{endpoint.scope}`." if endpoint.scope else ""
    operation: JsonSchema = {
        "operationId": camel_case(endpoint.view.__name__),
        "summary": " ".join(summary.split()).removesuffix("."),
        "tags": [endpoint.tag],
        "description": " ".join(part for part in (paragraphs, required) if part),
        "parameters": list(_parameters(endpoint)),
        "responses": _responses(endpoint),
        "security": endpoint.security or [{"bearer": [endpoint.scope] if endpoint.scope else []}],
    }
    if endpoint.body is not None:
        content = {"application/json": {"schema": _schema_of(endpoint.body)}}
        operation["requestBody"] = {"required": not endpoint.is_body_optional, "content": content}
    elif endpoint.media:
        media = {media_type: {"schema": schema} for media_type, schema in endpoint.media.items()}
        operation["requestBody"] = {"required": True, "content": media}
    if endpoint.callbacks:
        operation["callbacks"] = endpoint.callbacks
    return operation


def _parameters(endpoint: Endpoint) -> Iterator[JsonSchema]:
    shared = {"limit": "Limit", "cursor": "Cursor"}
    for query in endpoint.query:
        name = shared.get(query.name)
        yield {"$ref": f"#/components/parameters/{name}"} if name else components.parameter(query)
    headers = {
        "IfNoneMatch": endpoint.method == "GET" and endpoint.etag,
        "Acting": endpoint.names_organization,
        "IfMatch": endpoint.if_match,
        "IdempotencyKey": _takes_key(endpoint),
    }
    yield from ({"$ref": f"#/components/parameters/{name}"} for name, has in headers.items() if has)


def _takes_key(endpoint: Endpoint) -> bool:
    return endpoint.method == "POST" and endpoint.is_idempotent


def _responses(endpoint: Endpoint) -> JsonSchema:
    statuses = {*_EVERY_ERROR, *endpoint.errors}
    if endpoint.names_organization or "<" in endpoint.path:
        statuses.add(404)
    if endpoint.method != "GET":
        statuses |= {408, 413, 415}
    if endpoint.if_match:
        statuses.add(412)
    if _takes_key(endpoint):
        statuses.add(409)
    names = [
        "X-Request-Id",
        *(["Location"] if endpoint.status == 201 else []),
        *(["ETag"] if endpoint.etag else []),
    ]
    response = components.response("The request succeeded.", _envelope_reference(endpoint), names)
    if endpoint.response_media != "application/json":
        response["content"] = {endpoint.response_media: {"schema": _schema_of(endpoint.returns)}}
    responses: JsonSchema = {str(endpoint.status): response}
    if endpoint.view.__name__ == "revoke_tokens":
        responses["200"] = components.response(
            "The counts of a dry run.", _envelope_reference(endpoint), ["X-Request-Id"]
        )
    if endpoint.method == "GET" and endpoint.etag:
        responses["304"] = {"$ref": "#/components/responses/NotModified"}
    return responses | components.errors(*statuses)


def _envelope_reference(endpoint: Endpoint) -> JsonSchema:
    """Return the reference to the envelope, a component: generators name their classes after it."""
    return reference(_envelope_name(endpoint))


def _envelope_name(endpoint: Endpoint) -> str:
    return pascal_case(endpoint.view.__name__, "response")


def _envelope(endpoint: Endpoint) -> JsonSchema:
    data = _schema_of(endpoint.returns)
    if endpoint.is_page:
        data = {"type": "array", "items": data, "maxItems": MAX_LIMIT}
    if "$ref" not in data:
        data = {"description": "The page of results." if endpoint.is_page else "The result."} | data
    properties: JsonSchema = {"success": components.SUCCESS, "data": data}
    meta, required_meta = _meta(endpoint)
    if meta:
        properties["meta"] = meta
    required = [name for name in properties if name != "meta" or required_meta]
    about = {"description": f"The response of `{camel_case(endpoint.view.__name__)}`."}
    return object_schema(required, closed=True, **properties) | about


def _meta(endpoint: Endpoint) -> tuple[JsonSchema | None, bool]:
    """Return the schema of ``meta``, and whether it is always present."""
    if endpoint.meta is not None:
        return _schema_of(endpoint.meta), True
    properties: JsonSchema = {}
    required: list[str] = []
    texts = {"type": "array", "items": {"type": "string"}}
    if endpoint.is_page:
        cursor = "Send it as `cursor` to get the next page. Null on the last page."
        properties["next_cursor"] = {"type": ["string", "null"], "description": cursor}
        required.append("next_cursor")
    if endpoint.reports_changes:
        properties["changed"] = {**texts, "description": "The fields that changed."}
        required.append("changed")
    if endpoint.warnings:
        properties["warnings"] = {**texts, "description": endpoint.warnings}
    if _takes_key(endpoint):
        repeated = "The Idempotency-Key was used before. Secrets are left out."
        properties["repeated"] = {"type": "boolean", "description": repeated}
    if not properties:
        return None, False
    shared = next((name for name, fields in _SHARED_META.items() if fields == set(properties)), None)
    schema = object_schema(required, closed=True, **properties) | {"description": "About the result."}
    return component(shared or pascal_case(endpoint.view.__name__, "meta"), schema), bool(required)


def _schema_of(declared: Any) -> JsonSchema:
    """Return the schema of what an endpoint takes or returns; models are references."""
    if get_origin(declared) is list:
        return {"type": "array", "items": _schema_of(get_args(declared)[0])}
    if declared is str:
        return {"type": "string"}
    return declared if isinstance(declared, dict) else reference(declared.__name__)


def _schemas() -> JsonSchema:
    # Parts of other schemas.
    parts: tuple[type[BaseModel], ...] = (components.ErrorResponse, SettingsRole, UserAttribute)
    models = {model.__name__: model for model in parts}
    for endpoint in ENDPOINTS:
        for declared in (endpoint.body, endpoint.returns, endpoint.meta):
            inner = get_args(declared)[0] if get_origin(declared) is list else declared
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                models[inner.__name__] = inner
    _, generated = models_json_schema(
        [(model, "validation") for model in models.values()],
        ref_template="#/components/schemas/{model}",
        schema_generator=_JsonSchemas,
    )
    definitions: JsonSchema = generated["$defs"]
    for schema in definitions.values():
        schema.pop("title", None)
    envelopes = {
        _envelope_name(endpoint): _envelope(endpoint)
        for endpoint in ENDPOINTS
        if endpoint.response_media == "application/json"
    }
    schemas = definitions | envelopes | oauth.SCHEMAS | service.SCHEMAS | webhook_events.SCHEMAS
    for name, description in components.DESCRIPTIONS.items():
        schemas[name] = schemas[name] | {"description": description}
    return schemas


def _with_references(node: Any, defined: JsonSchema) -> Any:
    """Return the node with each ``component`` as a reference; ``defined`` collects those that bring their schema."""
    if isinstance(node, list):
        return [_with_references(item, defined) for item in node]
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("component"), str):
        name = node["component"]
        if "schema" in node:
            schema = _with_references(node["schema"], defined)
            if defined.setdefault(name, schema) != schema:
                raise ValueError(f"Two different schemas have the name {name}")
        return reference(name)
    if isinstance(node.get("const"), bool) and "type" in node:
        # openapi-generator makes an enumeration of the text "true" from it.
        others = {name: value for name, value in node.items() if name != "const"}
        node = others | {"not": {"const": not node["const"]}}
    return {name: _with_references(value, defined) for name, value in node.items()}
