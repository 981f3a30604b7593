"""The OpenAPI document as tests read it: operations, body paths, and invalid values for each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

METHODS = ("get", "post", "put", "delete", "options")
_SAMPLES: dict[str, Any] = {
    "string": "zz",
    "integer": 5,
    "number": 1.5,
    "boolean": True,
    "array": ["zz"],
    "object": {"zz": 1},
    "null": None,
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the document."""

    method: str
    path: str
    document: dict[str, Any]
    parameters: tuple[dict[str, Any], ...]

    @property
    def id(self) -> str:
        """Return its operationId."""
        return str(self.document["operationId"])

    @property
    def scope(self) -> str | None:
        """Return the scope that it requires."""
        for requirement in self.document["security"]:
            if requirement.get("bearer"):
                return str(requirement["bearer"][0])
        return None

    @property
    def body(self) -> dict[str, Any] | None:
        """Return the schema of its JSON body, or None for an upload, which may be of several types."""
        content = self.document.get("requestBody", {}).get("content", {})
        if len(content) > 1:
            return None
        schema = content.get("application/json", {}).get("schema")
        return dict(schema) if schema is not None else None

    @property
    def is_management(self) -> bool:
        """Return whether it requires a management token."""
        return (
            any("bearer" in requirement for requirement in self.document["security"])
            and "/oauth/" not in self.path
        )


def resolve(document: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """Return the node, following its ``$ref``."""
    while "$ref" in node:
        target: Any = document
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target
    return node


def operations(document: dict[str, Any]) -> list[Operation]:
    """Return every operation with its path's parameters and its own."""
    found = []
    for path, item in document["paths"].items():
        shared = [resolve(document, parameter) for parameter in item.get("parameters", ())]
        for method in METHODS:
            if method in item:
                own = [resolve(document, parameter) for parameter in item[method].get("parameters", ())]
                found.append(Operation(method, path, item[method], (*shared, *own)))
    return found


def places(
    document: dict[str, Any], schema: dict[str, Any], path: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return every path in a body: ``oauth.access_token``, ``redirect_uris``, ``redirect_uris[0]``."""
    schema = _object_or_array(document, schema)
    for name, child in schema.get("properties", {}).items():
        inner = f"{path}.{name}" if path else name
        yield inner, child
        yield from places(document, child, inner)
    if "items" in schema:
        yield f"{path}[0]", schema["items"]
        yield from places(document, schema["items"], f"{path}[0]")


def refused_values(document: dict[str, Any], schema: dict[str, Any]) -> Iterator[Any]:
    """Return values that the schema rejects: other JSON types, exceeded limits, an unknown word."""
    branches = [resolve(document, branch) for branch in resolve(document, schema).get("anyOf", [schema])]
    branches = [resolve(document, branch) for branch in branches]
    allowed = {kind for branch in branches for kind in _types(branch)}
    if "number" in allowed:
        allowed.add("integer")
    for kind, sample in _SAMPLES.items():
        if kind not in allowed:
            yield sample
    for branch in branches:
        yield from _overstepped(branch)


def with_value(body: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return the body with the value at the path, creating parents as needed."""
    parts = re.findall(r"[^.\[\]]+", path)
    result = dict(body)
    node: Any = result
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        new = value if following is None else ([None] if following.isdigit() else {})
        if isinstance(node, list):
            node[0] = new
        elif following is None or not isinstance(node.get(part), type(new)) or isinstance(new, list):
            node[part] = new
        else:
            node[part] = new = dict(node[part])
        node = new
    return result


def _types(schema: dict[str, Any]) -> set[str]:
    kind = schema.get("type")
    if kind is None:
        values = schema.get("enum", [schema["const"]] if "const" in schema else [])
        return {"string"} if values and isinstance(values[0], str) else set()
    return {kind} if isinstance(kind, str) else set(kind)


def _overstepped(schema: dict[str, Any]) -> Iterator[Any]:
    if "enum" in schema:
        yield "no-such-word"
    if "minimum" in schema:
        yield schema["minimum"] - 1
    if "maximum" in schema:
        yield schema["maximum"] + 1
    if schema.get("minLength"):
        yield ""
    if "maxLength" in schema:
        yield "x" * (schema["maxLength"] + 1)
    if "pattern" in schema:
        yield "!?"
    if schema.get("minItems"):
        yield []
    if "items" in schema and "maxItems" in schema:
        yield ["zz"] * (schema["maxItems"] + 1)


def _object_or_array(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    schema = resolve(document, schema)
    for branch in schema.get("anyOf", ()):
        branch = resolve(document, branch)
        if _types(branch) & {"object", "array"}:
            return branch
    return schema
