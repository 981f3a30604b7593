"""Changes of a group's members by PATCH (RFC 7644 section 3.5.2).

The present members are not read, because a group may have many.
"""

from __future__ import annotations

from typing import Any

from scim2_models import InvalidPathException, PatchOp, PatchOperation
from scim2_models.path import CompareOperator, Comparison

from app.operations.users.provisioned_groups import MemberChange
from app.scim.resources import Group, Member


def split_patch(patch: PatchOp[Group]) -> tuple[PatchOp[Group] | None, MemberChange]:
    """Return the operations on other attributes, None if there are none, and the change of the members."""
    change = _Members()
    others: list[Any] = []
    for operation in patch.operations or []:
        if operation.path is not None and is_members(operation.path.attr, operation.path.schema):
            change.apply(operation.op, operation.path.value_filter, operation.value)
        elif not operation.path and isinstance(operation.value, dict):
            rest = {}
            for name, value in operation.value.items():
                schema, _, attribute = name.rpartition(":")
                if is_members(attribute, schema or None):
                    change.apply(operation.op, None, value)
                else:
                    rest[name] = value
            if rest:
                others.append({"op": operation.op, "value": rest})
        else:
            others.append({"op": operation.op, "path": operation.path, "value": operation.value})
    return PatchOp[Group].model_validate({"Operations": others}) if others else None, change.result()


def is_members(attribute: str, schema: str | None) -> bool:
    """Return whether this is the attribute of groups. Those of other schemas are ignored, as every unknown one."""
    own = str(Group.__schema__).lower()
    return attribute.lower() == "members" and (schema is None or schema.lower() == own)


class _Members:
    """The operations so far, of which a later one prevails."""

    def __init__(self) -> None:
        self.added: set[str] = set()
        self.removed: set[str] = set()
        self.all_others = False

    def apply(self, op: Any, value_filter: Any, value: Any) -> None:
        """Add an operation. Raises InvalidPathException for a filter other than ``value eq "…"``."""
        ids = {_selected(value_filter)} if value_filter is not None else _ids(value)
        replaces_all = value_filter is None and (
            value is None if op == PatchOperation.Op.remove else op == PatchOperation.Op.replace_
        )
        if replaces_all:
            self.added, self.removed, self.all_others = set(), set(), True
        if op == PatchOperation.Op.remove:
            self.added -= ids
            self.removed |= ids
            return
        self.added |= ids
        self.removed -= ids

    def result(self) -> MemberChange:
        """Return the change that the operations amount to."""
        return MemberChange(self.added, self.removed, self.all_others)


def _ids(value: Any) -> set[str]:
    listed = value if isinstance(value, list) else [] if value is None else [value]
    return {Member.model_validate(each).value or "" for each in listed}


def _selected(value_filter: Any) -> str:
    if (
        isinstance(value_filter, Comparison)
        and value_filter.op == CompareOperator.eq
        and value_filter.attr_path.attr.lower() == "value"
        and isinstance(value_filter.value, str)
    ):
        return value_filter.value
    raise InvalidPathException(detail='Select a member by members[value eq "…"].')
