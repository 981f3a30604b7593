"""What administrators decided about a client, and whether a member may allow it without asking them."""

from __future__ import annotations

from collections.abc import Collection

REVIEW, ALLOWED, PRE_APPROVED, BLOCKED = "review", "allowed", "pre_approved", "blocked"
APPROVALS = (REVIEW, ALLOWED, PRE_APPROVED, BLOCKED)
ALL, VERIFIED, NONE = "all", "verified", "none"
MEMBERS_MAY_ALLOW = (ALL, VERIFIED, NONE)
_FIRST_PARTY, _UNVERIFIED = "first_party", "unverified"


def may_allow(*, approval: str | None, trust: str, setting: str, decides: bool) -> bool:
    """Whether the person may let the client use the own account; otherwise an administrator is asked.

    ``approval`` is what was decided about this client, None where nothing was and the organization's ``setting``
    counts; ``decides`` says that the person is one of those who decide. An organization's own apps need no leave.
    """
    if approval == BLOCKED:
        return False
    if decides or trust == _FIRST_PARTY or approval in (ALLOWED, PRE_APPROVED):
        return True
    if approval == REVIEW or setting == NONE:
        return False
    return setting == ALL or trust != _UNVERIFIED


def is_pre_approved(
    asked: Collection[str], *, approval: str | None, approved_scopes: Collection[str], trust: str
) -> bool:
    """Whether administrators allowed all that is asked for, for everybody; asked after what no leave covers (CO-2)."""
    return approval == PRE_APPROVED and trust != _UNVERIFIED and set(asked) <= set(approved_scopes)
