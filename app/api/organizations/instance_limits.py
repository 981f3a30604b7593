"""Instance limits: what root lets organizations choose in their settings."""

from __future__ import annotations

from typing import Annotated, Any

from flask import Response

from app.api.endpoints import Body, Endpoints, JsonSchema, component, nullable, pascal_case
from app.api.organizations.settings import DRY_RUN, VersionMeta
from app.api.representations import Count, Representation, Source, optional
from app.operations.organizations import instance_limits
from app.operations.organizations.instance_limits import InstanceLimitsRecord, UpdatedInstanceLimits
from app.rules.organizations.instance_limits import BOUNDABLE, allowed_values
from app.rules.organizations.settings_table import SETTINGS, Number
from app.rules.shapes import described
from app.web.bearer import ApiContext
from app.web.json_api import boolean_parameter, envelope, expected_version

endpoints = Endpoints("Instance", "instance")


class InstanceLimitsImpact(Representation):
    """The consequences of a change of the instance limits."""

    organizations_affected: Annotated[
        Count, Source("organizations_limited"), described("Organizations whose settings would change.")
    ]
    organizations_checked: Annotated[
        Count, Source("organizations_counted"), described("Organizations that were checked.")
    ]


class InstanceLimitsMeta(VersionMeta):
    """Metadata of the instance limits."""

    changed: Annotated[list[str], described("The paths that changed. Only in responses to changes.")] = (
        optional()
    )
    impact: Annotated[InstanceLimitsImpact, described("Only for a dry run.")] = optional()


def _limit_object(path: str) -> JsonSchema:
    kind = SETTINGS[path].kind
    shown = {"description": f"The limit of this setting: {SETTINGS[path].description}"}
    if isinstance(kind, Number):
        bounds = {
            "min": kind.schema() | {"description": "The smallest value that organizations can choose."},
            "max": kind.schema() | {"description": "The largest value that organizations can choose."},
        }
        return shown | {
            "type": "object",
            "properties": bounds,
            "additionalProperties": False,
            "minProperties": 1,
        }
    values: list[Any] = list(allowed_values(path))
    allowed = {
        "type": "array",
        "description": "The values that organizations can choose.",
        # Generators cannot make an enumeration of true and false.
        "items": {"type": "boolean"} if True in values else {"type": "string", "enum": values},
        "minItems": 1,
        "maxItems": len(values),
        "uniqueItems": True,
    }
    return shown | {
        "type": "object",
        "properties": {"allowed": allowed},
        "required": ["allowed"],
        "additionalProperties": False,
    }


# A limit is the same component for reading and changing it.
_BY_PATH = {path: component(pascal_case(path, "limit"), _limit_object(path)) for path in BOUNDABLE}
_LIMITS = component(
    "InstanceLimits",
    {
        "type": "object",
        "description": "Limits by path of a setting. A number has a `min` and a `max`. An organization whose own value "
        "is not among the `allowed` values has the first of them.",
        "properties": _BY_PATH,
        "additionalProperties": False,
    },
)
_LIMITS_CHANGE = component(
    "InstanceLimitsChange",
    {
        "type": "object",
        "description": "The limits to change. Omitted limits stay, and null removes one.",
        "properties": {path: nullable(limit) for path, limit in _BY_PATH.items()},
        "additionalProperties": False,
    },
)


@endpoints.get(
    "/instance/settings-limits", returns=_LIMITS, meta=InstanceLimitsMeta, names_organization=False
)
def get_instance_limits(context: ApiContext) -> object:
    """Get the limits of settings.

    The values that organizations of this instance may choose.
    """
    return _response(instance_limits.get_instance_limits(context.actor))


@endpoints.put(
    "/instance/settings-limits",
    query=(DRY_RUN,),
    body=_LIMITS_CHANGE,
    returns=_LIMITS,
    meta=InstanceLimitsMeta,
    names_organization=False,
)
def update_instance_limits(context: ApiContext, body: Body) -> object:
    """Update the limits of settings.

    Limits apply immediately to every organization, including root. Omitted limits don't change, and null removes one.
    An organization whose value is beyond a limit keeps its stored value, and the limit applies: `meta.limited` of its
    settings names the paths. A limit that would lock root's own administrators out is rejected: 409 `would_lock_out`.
    """
    updated = instance_limits.update_instance_limits(
        context.actor,
        body,
        expected_version=expected_version(),
        dry_run=boolean_parameter(context.parameters, "dry_run"),
    )
    return _response(updated.limits, updated)


def _response(view: InstanceLimitsRecord, updated: UpdatedInstanceLimits | None = None) -> Response:
    meta = InstanceLimitsMeta.to_json(view)
    if updated is not None:
        meta["changed"] = list(updated.changed)
        if updated.impact is not None:
            meta["impact"] = InstanceLimitsImpact.to_json(updated.impact)
    return envelope(dict(view.bounds), meta=meta, version=view.version)
