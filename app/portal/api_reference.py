"""The API reference: one page per operation of the OpenAPI document, with curl for the organization."""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from flask import abort, current_app, request
from msgspec import Struct

from app.config import current
from app.operations.directory.snapshots import OrganizationSnapshot
from app.portal.context import PageResponse, PortalContext, portal_page, search_query
from app.portal.docs import SEARCHES, Found, matches, require_reader
from app.portal.markdown import heading_id, highlight, to_html

_METHODS = ("get", "post", "put", "patch", "delete")
_MAX_DEPTH = 4
# Of one part of a page. Beyond that, only fields closer to the top are shown.
_MAX_ROWS = 110
# Values of required fields that their schemas do not give.
_EXAMPLES: Mapping[str, Any] = {
    "name": "Orders",
    "email": "ada@example.com",
    "identifier": "https://api.example.com",
    "url": "https://app.example.com/events",
    "grant_type": "client_credentials",
    "id": "support",
    "slug": "okta",
    "redirect_uris": ["https://app.example.com/callback"],
    "issuer": "https://example.okta.com",
}
# How each security scheme of the document is sent.
_CREDENTIALS: Mapping[str, str] = {
    "bearer": '-H "Authorization: Bearer $TOKEN"',
    "client": '-u "$CLIENT_ID:$CLIENT_SECRET"',
    "registration": '-H "Authorization: Bearer $REGISTRATION_ACCESS_TOKEN"',
}
_VARIABLE = re.compile(r"([\w.-]+)/\{(\w+)\}")
_OF_ROOT = re.compile(r"/oauth/|/\.well-known/o")


class Operation(Struct, frozen=True):
    """An operation: ``node`` is its object in the document, ``shared`` the parameters of its path."""

    id: str
    method: str
    path: str
    tag: str
    summary: str
    node: Mapping[str, Any]
    shared: tuple[Mapping[str, Any], ...]


class FieldRow(Struct, frozen=True):
    """A parameter or field: ``limits`` describes its constraints."""

    name: str
    type: str
    is_required: bool
    description: str
    limits: str


@portal_page("/docs/api", "GET")
def docs_api(context: PortalContext) -> PageResponse:
    """List the groups of operations, the operations of one ``tag``, or those that match ``q``."""
    require_reader(context)
    query, tag = search_query(), request.args.get("tag", "")
    groups: dict[str, list[Operation]] = {}
    for operation in _reference().operations.values():
        groups.setdefault(operation.tag, []).append(operation)
    slugs = {heading_id(name): name for name in groups}
    if tag and tag not in slugs:
        abort(404)
    return context.render(
        "portal/docs/api.html",
        groups=sorted((name, slug, len(groups[name])) for slug, name in slugs.items()),
        tag=slugs.get(tag),
        operations=_search(query) if query else groups.get(slugs.get(tag, "")),
        query=query,
        base_url=context.organization.base_url,
        introduction=to_html(_reference().document["info"]["description"]),
    )


@portal_page("/docs/api/<operation_id>", "GET")
def docs_operation(context: PortalContext, operation_id: str) -> PageResponse:
    """Show an operation with its parameters, request, responses, and the curl command for the organization."""
    require_reader(context)
    reference = _reference()
    operation = reference.operations.get(operation_id)
    if operation is None:
        abort(404)
    media, body = reference.body(operation)
    return context.render(
        "portal/docs/operation.html",
        operation=operation,
        tag=heading_id(operation.tag),
        path=_path_of(operation, context.organization),
        description=to_html(operation.node.get("description", "")),
        parameters=list(reference.parameters(operation)),
        media=media,
        body=[("", row) for row in reference.fields(body)] if body else [],
        responses=[
            (status, words, [("", row) for row in rows])
            for status, words, rows in reference.responses(operation)
        ],
        curl=highlight(reference.curl(operation, context.organization), "sh"),
    )


class Reference:
    """The OpenAPI document, indexed by operation."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        paths: Mapping[str, Any] = document["paths"]
        self.operations = {
            node["operationId"]: Operation(
                node["operationId"],
                method.upper(),
                path,
                node["tags"][0],
                node.get("summary", node["operationId"]),
                node,
                tuple(item.get("parameters", ())),
            )
            for path, item in paths.items()
            # The endpoints of the organization are shown, not those of all, where the client says which one is meant.
            if not (_OF_ROOT.match(path) and f"/organizations/{{id}}{path}" in paths)
            for method, node in item.items()
            if method in _METHODS and "tags" in node
        }

    def resolve(self, node: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the object that a reference names, or the object itself."""
        while "$ref" in node:
            found: Any = self.document
            for part in node["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            # A description beside a reference is more specific.
            node = {**found, **{name: value for name, value in node.items() if name != "$ref"}}
        return node

    def parameters(self, operation: Operation) -> Iterator[tuple[str, FieldRow]]:
        """Return where each parameter is sent, and its row."""
        for node in (*operation.shared, *operation.node.get("parameters", ())):
            found = self.resolve(node)
            schema = self.resolve(found.get("schema", {}))
            row = _row(
                found["name"], schema, found.get("required", False), found.get("description", ""), self
            )
            yield found["in"], row

    def body(self, operation: Operation) -> tuple[str, Mapping[str, Any]]:
        """Return the media type and the schema of the request body; empty if there is none."""
        for media, content in operation.node.get("requestBody", {}).get("content", {}).items():
            return media, self.resolve(content.get("schema", {}))
        return "", {}

    def responses(self, operation: Operation) -> Iterator[tuple[str, str, list[FieldRow]]]:
        """Return the status, the description and the fields of each response; errors share their fields."""
        for status, node in operation.node["responses"].items():
            found = self.resolve(node)
            rows: list[FieldRow] = []
            if status < "300":
                for content in found.get("content", {}).values():
                    rows = self.fields(self.resolve(content.get("schema", {})))
            yield status, found.get("description", ""), rows

    def fields(self, schema: Mapping[str, Any]) -> list[FieldRow]:
        """Return the fields of an object, as deep as the page has room for."""
        rows: list[FieldRow] = []
        for depth in range(_MAX_DEPTH + 1):
            deeper = list(self.rows(schema, levels=depth))
            if rows and len(deeper) > _MAX_ROWS:
                break
            rows = deeper
        return rows

    def rows(self, schema: Mapping[str, Any], prefix: str = "", *, levels: int) -> Iterator[FieldRow]:
        """Return the fields of an object, and those of nested ones, with dotted names, down to this many levels."""
        schema = _without_null(schema)
        if schema.get("type") == "array":
            yield from self.rows(self.resolve(schema.get("items", {})), f"{prefix}[]", levels=levels)
            return
        required = schema.get("required", ())
        for name, node in schema.get("properties", {}).items():
            found = self.resolve(node)
            path = f"{prefix}.{name}" if prefix else name
            # The envelope is the same everywhere.
            if path not in {"success", "data"}:
                yield _row(path, found, name in required, found.get("description", ""), self)
            if levels or path == "data":
                yield from self.rows(found, path, levels=levels - (path != "data"))
        for option in schema.get("oneOf", schema.get("anyOf", ())):
            yield from self.rows(self.resolve(option), prefix, levels=levels)

    def curl(self, operation: Operation, organization: OrganizationSnapshot) -> str:
        """Return the command for the operation in the organization; variables stand for what it does not know."""
        lines = ["curl" if operation.method == "GET" else f"curl -X {operation.method}"]
        # The others are alternatives.
        schemes: Mapping[str, Any] = next(iter(operation.node.get("security", ())), {})
        lines += [_CREDENTIALS[scheme] for scheme in schemes]
        media, schema = self.body(operation)
        is_required = operation.node.get("requestBody", {}).get("required", True)
        # The first field of a change may be one that can't be changed.
        first = "name" if operation.method in {"PUT", "PATCH"} else ""
        fields = self.example(schema, first=first) if schema else None
        if isinstance(fields, dict) and "organization_id" in fields:
            fields["organization_id"] = organization.slug
        if not is_required:
            media = ""
        if media == "application/json" and fields is not None:
            lines += [
                "-H 'Content-Type: application/json'",
                f"-d {shlex.quote(json.dumps(fields, ensure_ascii=False))}",
            ]
        elif media == "application/x-www-form-urlencoded" and isinstance(fields, dict):
            lines += [f"--data-urlencode {shlex.quote(f'{name}={value}')}" for name, value in fields.items()]
        elif media:
            lines += [f"-H {shlex.quote(f'Content-Type: {media}')}", "--data-binary @file"]
        url = _VARIABLE.sub(_shell_variable, organization.base_url + _path_of(operation, organization))
        query = "&".join(
            f"{row.name}=${row.name.upper()}"
            for place, row in self.parameters(operation)
            if place == "query" and row.is_required
        )
        lines.append(f'"{url}{"?" + query if query else ""}"')
        return " \\\n  ".join(lines)

    def example(self, schema: Mapping[str, Any], depth: int = 0, *, first: str = "") -> Any:
        """Return a value that the schema describes, with the required fields of objects only.

        Of an object without required fields it has one: ``first`` if there is such a field.
        """
        schema = _without_null(self.resolve(schema))
        for key in ("example", "default", "const"):
            if schema.get(key) is not None:
                return schema[key]
        for key in ("examples", "enum"):
            if values := [value for value in schema.get(key, ()) if value is not None]:
                return values[0]
        if options := schema.get("oneOf", schema.get("anyOf")):
            return self.example(options[0], depth, first=first)
        kind = schema.get("type")
        if kind == "object" or "properties" in schema:
            properties = schema.get("properties", {})
            some = sorted(properties, key=lambda name: name != first)
            names = schema.get("required", ()) or some[: 1 if depth < _MAX_DEPTH else 0]
            return {
                name: _EXAMPLES.get(name) or self.example(properties[name], depth + 1)
                for name in names
                if name in properties
            }
        if kind == "array":
            return [self.example(schema["items"], depth + 1)] if schema.get("minItems") else []
        if kind in {"integer", "number"}:
            return schema.get("minimum", 1)
        return True if kind == "boolean" else "…"


def _search(query: str) -> list[Operation]:
    words = query.casefold().split()
    return [
        operation
        for operation in _reference().operations.values()
        if matches(
            words, f"{operation.summary} {operation.method} {operation.path} {operation.tag} {operation.id}"
        )
    ]


def _find(query: str) -> list[Found]:
    return [
        Found(one.summary, f"/docs/api/{one.id}", f"{one.method} {one.path}") for one in _search(query)[:20]
    ]


SEARCHES.append(_find)


def _reference() -> Reference:
    return _read(current().base_url)


@functools.cache
def _read(base_url: str) -> Reference:
    # Interfaces do not import each other: the API registers what describes it.
    return Reference(current_app.extensions["openapi_document"](base_url))


def _path_of(operation: Operation, organization: OrganizationSnapshot) -> str:
    """Return the path in the organization; other variables stay."""
    if not operation.path.startswith("/organizations/{id}"):
        return operation.path
    return operation.path.replace("{id}", organization.slug, 1)


def _shell_variable(match: re.Match[str]) -> str:
    """Return the variable of a path's parameter; a bare id is named after the collection before it."""
    collection, name = match[1], match[2]
    if name == "id":
        name = f"{collection.removesuffix('s')}_id"
    return f"{collection}/$" + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).replace("-", "_").upper()


def _without_null(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema without the alternative null."""
    for key in ("oneOf", "anyOf"):
        options = [option for option in schema.get(key, ()) if option.get("type") != "null"]
        if len(options) == 1:
            rest = {name: value for name, value in schema.items() if name != key}
            return {**_read(current().base_url).resolve(options[0]), **rest}
    kind = schema.get("type")
    if isinstance(kind, list):
        return {**schema, "type": next((one for one in kind if one != "null"), "null")}
    return schema


def _row(
    name: str, schema: Mapping[str, Any], required: bool, description: str, reference: Reference
) -> FieldRow:
    plain = _without_null(schema)
    kind = str(plain.get("type") or ("object" if "properties" in plain else "value"))
    if kind == "array":
        kind = f"array of {_without_null(reference.resolve(plain.get('items', {}))).get('type', 'value')}"
    if plain is not schema and "null" in json.dumps(
        schema.get("type", schema.get("anyOf", schema.get("oneOf", "")))
    ):
        kind += " or null"
    return FieldRow(name, kind, required, description, _limits(plain))


def _limits(schema: Mapping[str, Any]) -> str:
    """Return a description of the constraints."""
    parts = []
    values = schema.get("enum") or schema.get("items", {}).get("enum")
    if values:
        parts.append("one of " + ", ".join(f"{value}" for value in values if value is not None))
    if "const" in schema:
        parts.append(f"always {json.dumps(schema['const'])}")
    for name, words in (
        ("minLength", "at least {} characters"),
        ("maxLength", "at most {} characters"),
        ("minimum", "at least {}"),
        ("maximum", "at most {}"),
        ("maxItems", "at most {} items"),
        ("format", "{}"),
    ):
        if name in schema and not (name == "minLength" and schema[name] <= 1):
            parts.append(words.format(schema[name]))
    if schema.get("default") is not None and not isinstance(schema["default"], (dict, list)):
        parts.append(f"default {json.dumps(schema['default'])}")
    text = ", ".join(parts)
    return text[:1].upper() + text[1:]
