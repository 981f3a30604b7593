"""The installation itself: the ceilings that root sets to every organization's settings."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from flask import Response

from app.api import representations
from app.api.blueprint import api
from app.operations.organizations import instance_limits
from app.operations.organizations.instance_limits import InstanceLimitsRecord, UpdatedInstanceLimits
from app.web.bearer import Call, management
from app.web.etag import etag_of, expected_version
from app.web.json_api import envelope, read_object
from app.web.parameters import flag


@api.get("/instance/settings-ceilings")
@management(names_organization=False)
def get_ceilings(call: Call) -> Response:
    """The bounds by path of a setting."""
    return _answer(instance_limits.get_instance_limits(call.actor))


@api.put("/instance/settings-ceilings")
@management("dry_run", names_organization=False)
def update_ceilings(call: Call) -> Response:
    """The bounds sent hold from now on; with ``dry_run=true`` the answer says whom they would touch."""
    updated = instance_limits.update_instance_limits(
        call.actor,
        read_object(),
        expected_version=expected_version(),
        dry_run=flag(call.parameters, "dry_run"),
    )
    return _answer(updated.limits, updated)


def _answer(view: InstanceLimitsRecord, updated: UpdatedInstanceLimits | None = None) -> Response:
    meta: dict[str, Any] = {
        "version": view.version,
        "updated_at": representations.time(view.updated_at),
        "updated_by": view.updated_by,
    }
    if updated is not None:
        meta["changed"] = list(updated.changed)
    if updated is not None and updated.impact is not None:
        meta["impact"] = asdict(updated.impact)
    return envelope(dict(view.bounds), meta=meta, headers={"ETag": etag_of(view.version)})
