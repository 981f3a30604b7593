"""Verdict on a client secret: its status, and in words whether it is still needed."""

from __future__ import annotations

from datetime import datetime, timedelta

ACTIVE, EXPIRING, EXPIRED, REVOKED = "active", "expiring", "expired", "revoked"
LIVE = frozenset({ACTIVE, EXPIRING})

SOON = timedelta(days=7)
"""An end nearer than this is worth a word."""
FRESH = timedelta(days=1)
STALE = timedelta(days=14)
MANY_TOKENS = 1000

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def status_of(
    now: datetime,
    *,
    expires_at: datetime | None,
    retiring_since: datetime | None,
    revoked_at: datetime | None,
) -> str:
    """Revoked wins over expired; one that a rotation retires, or that ends within a week, is expiring."""
    if revoked_at is not None:
        return REVOKED
    if expires_at is None:
        return ACTIVE
    if expires_at <= now:
        return EXPIRED
    return EXPIRING if retiring_since is not None or expires_at - now <= SOON else ACTIVE


def verdict(
    now: datetime,
    *,
    status: str,
    created_at: datetime,
    ended_at: datetime | None,
    last_used_at: datetime | None,
    addresses: int,
    live_tokens: int,
) -> str:
    """Whether the secret can go, in words: `used 3 minutes ago from 2 addresses: still needed`."""
    if status not in LIVE:
        words = f"{status} {ago(now, ended_at)}" if ended_at is not None else status
        return f"{words}: {tokens(live_tokens)} that it minted still work" if live_tokens else words
    if last_used_at is None:
        if now - created_at < FRESH:
            return "not used yet"
        age = ago(now, created_at)
        return f"never used since it was made {age}: " + (
            "safe to revoke" if now - created_at >= STALE else "wait"
        )
    unused = now - last_used_at
    origin = f" from {count(addresses, 'address', 'addresses')}" if addresses else ""
    if unused < FRESH:
        return f"used {ago(now, last_used_at)}{origin}: still needed"
    if unused < STALE:
        return f"last used {ago(now, last_used_at)}{origin}: probably still needed"
    if live_tokens:
        return f"unused for {span(unused)}, and {tokens(live_tokens)} that it minted still work"
    return f"unused for {span(unused)}: safe to revoke"


def tokens(number: int) -> str:
    """``12 tokens``, or from the count's ceiling on ``1,000 tokens or more``."""
    return count(number, "token", "tokens") + (" or more" if number >= MANY_TOKENS else "")


def count(number: int, one: str, many: str) -> str:
    """``1 address``, ``2 addresses``."""
    return f"{number:,} {one if number == 1 else many}"


def ago(now: datetime, then: datetime) -> str:
    """``3 minutes ago``."""
    return f"{span(now - then)} ago" if now - then >= timedelta(seconds=1) else "just now"


def span(length: timedelta) -> str:
    """``3 minutes``: the largest unit of which there is at least one."""
    seconds = max(1, int(length.total_seconds()))
    size, unit = next((size, unit) for size, unit in _UNITS if seconds >= size)
    return count(seconds // size, unit, f"{unit}s")
