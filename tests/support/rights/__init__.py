"""The documented permissions (PO-1): which role may call which operation and open which page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_HERE = Path(__file__).parent

# A custom role besides the four built-in ones.
SUPPORT = "support"
SUPPORT_PERMISSIONS = (
    *("users:read", "users:write", "logs:read", "tokens:read", "tokens:revoke:own"),
    *("consents:read", "consents:write:own"),
)
ROOT = "root"
ROLES = ("admin", "developer", "auditor", "member", SUPPORT, ROOT)

ALL, OWN, NONE = "all", "own", "-"

Table = Mapping[str, Mapping[str, str]]


def written(name: str) -> Table:
    """Return what each role may do, by operation or page. Raises ValueError for an invalid line."""
    lines = [line.split() for line in (_HERE / f"{name}.txt").read_text().splitlines()]
    head, *rows = [line for line in lines if line and not line[0].startswith("#")]
    roles = tuple(head[1:])
    table: dict[str, dict[str, str]] = {}
    for key, *cells in rows:
        if key in table or len(cells) != len(roles) or not set(cells) <= {ALL, OWN, NONE}:
            raise ValueError(f"{name}: {key} has two lines, or one that cannot be read")
        table[key] = dict(zip(roles, cells, strict=True))
    return table
