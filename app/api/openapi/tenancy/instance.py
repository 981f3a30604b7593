"""OpenAPI: the installation itself."""

from __future__ import annotations

from typing import Any

from app.api.openapi.parts import (
    Schema,
    answer,
    array,
    closed,
    moment,
    nullable,
    operation,
    path_item,
    ref,
    request_object,
    success,
    text,
)
from app.api.openapi.tenancy.settings import DRY_RUN
from app.rules.organizations.instance_limits import BOUNDABLE, allowed_values
from app.rules.organizations.settings_table import SETTINGS, Number

_TAG = "Instance"


def _bound(path: str) -> Schema:
    kind = SETTINGS[path].kind
    if isinstance(kind, Number):
        return request_object({"min": kind.schema(), "max": kind.schema()}, minProperties=1)
    words: list[Any] = list(allowed_values(path))
    return request_object(
        {
            "allowed": {
                "type": "array",
                "items": {"enum": words},
                "minItems": 1,
                "maxItems": len(words),
                "uniqueItems": True,
            }
        },
        required=("allowed",),
    )


_BOUNDS = {path: _bound(path) for path in BOUNDABLE}

SCHEMAS: Schema = {
    "SettingsCeilings": request_object(
        _BOUNDS,
        description="By path of a setting. A number has a `min` and a `max`; of `allowed` values the first is what "
        "an organization has whose own is not among them.",
    ),
    "SettingsCeilingsChange": request_object(
        {path: nullable(schema) for path, schema in _BOUNDS.items()},
    ),
    "SettingsCeilingsMeta": closed(
        {
            "version": {"type": "integer"},
            "updated_at": nullable(moment()),
            "updated_by": nullable(text()),
            "changed": array(text()),
            "impact": closed(
                {
                    "organizations_limited": {
                        "type": "integer",
                        "description": "That would have another value than now.",
                    },
                    "organizations_counted": {"type": "integer", "description": "Of so many looked at."},
                }
            ),
        },
        optional=("changed", "impact"),
    ),
}
_ANSWER = answer(
    "The ceilings.", success(ref("SettingsCeilings"), ref("SettingsCeilingsMeta")), headers=("ETag",)
)

PATHS: Schema = {
    "/instance/settings-ceilings": path_item(
        (),
        get=operation(
            "getSettingsCeilings",
            "Read the ceilings of settings",
            tag=_TAG,
            scope="instance:read",
            description="What the instance lets organizations choose.",
            answers={"200": _ANSWER},
            is_always_there=True,
        ),
        put=operation(
            "updateSettingsCeilings",
            "Update the ceilings of settings",
            tag=_TAG,
            scope="instance:write",
            description="Bounds sent hold for every organization at once, root included; those left out stay, and "
            "null takes one away. An organization that chose more keeps its choice stored and has what the ceiling "
            "makes of it: `meta.limited` of its settings names the paths. What root's own people could not come back "
            "from is refused: 409 `would_lock_out`.",
            parameters=("IfMatch",),
            query=(DRY_RUN,),
            body=ref("SettingsCeilingsChange"),
            answers={"200": _ANSWER},
            extra=("409",),
            is_always_there=True,
        ),
    ),
}
