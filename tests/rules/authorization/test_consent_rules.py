"""Consent rules: expiry, what a consent covers, and who may give it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from app.rules.authorization.consents import (
    changed_parts,
    consent_snapshot,
    offered_expiries,
)
from app.rules.clients.client_types import can_user_allow, is_pre_approved
from tests.support.cases import each

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
ASKED = NOW - timedelta(minutes=10)
DAY = 86_400


@each(
    ("ttl", "names"),
    [
        (None, ["today", "30_days", "until_removed"]),
        (365 * DAY, ["today", "30_days", "until_removed"]),
        (30 * DAY - 900, ["today", "until_removed"]),
        (DAY - 900, ["until_removed"]),
        (3600, ["until_removed"]),
    ],
)
def test_offered_lifetimes_respect_the_organization_limit(ttl: int | None, names: list[str]) -> None:
    offered = offered_expiries(ASKED, NOW, ttl)
    assert [end.name for end in offered] == names
    assert offered[-1].at == (None if ttl is None else NOW + timedelta(seconds=ttl))
    assert all(end.at <= offered[-1].at for end in offered if end.at and offered[-1].at)


def test_lifetime_chosen_by_user_starts_at_the_request() -> None:
    """The page may be open for half an hour and still shows the exact expiry."""
    today, month, _ = offered_expiries(ASKED, NOW, None)
    assert (today.at, month.at) == (ASKED + timedelta(hours=24), ASKED + timedelta(days=30))


def shown(trust: str = "unverified", name: str = "Orchard", **document: Any) -> dict[str, Any]:
    good = {"logo_uri": None, "redirect_uris": ["https://a.example/1", "https://a.example/2"]}
    return consent_snapshot(name, trust, good | document)


@each(
    ("now", "parts"),
    [
        (shown(), ()),
        (shown(redirect_uris=["https://a.example/2", "https://a.example/1"]), ()),
        (shown(redirect_uris=("https://a.example/1", "https://a.example/2")), ()),
        (shown(policy_uri=""), ()),
        (shown(trust="verified"), ()),
        (shown(name="Bank"), ("name",)),
        (shown(redirect_uris=["https://a.example/1"]), ("redirect_uris",)),
        (shown(logo_uri="https://a.example/x", tos_uri="https://a.example/t"), ("logo_uri", "tos_uri")),
        (shown(policy_uri="https://a.example/p"), ("policy_uri",)),
    ],
)
def test_changes_since_the_page_was_shown_are_found(now: dict[str, Any], parts: tuple[str, ...]) -> None:
    assert changed_parts(shown(), now) == parts
    assert changed_parts(None, now) == ()


def test_removed_review_is_a_change() -> None:
    assert changed_parts(shown(trust="verified"), shown()) == ("reviewed",)
    assert changed_parts(shown(trust="first_party"), shown(trust="verified")) == ()


ALLOWED = [
    # approval, trust, setting, decides, whether
    (None, "unverified", "all", False, True),
    (None, "unverified", "verified", False, False),
    (None, "verified", "verified", False, True),
    (None, "verified", "none", False, False),
    (None, "first_party", "none", False, True),
    (None, "unverified", "none", True, True),
    ("review", "verified", "all", False, False),
    ("review", "first_party", "all", False, True),
    ("review", "unverified", "all", True, True),
    ("allowed", "unverified", "none", False, True),
    ("pre_approved", "verified", "none", False, True),
    ("blocked", "first_party", "all", True, False),
]


@each(("approval", "trust", "setting", "decides", "allowed"), ALLOWED)
def test_who_may_consent(
    approval: str | None, trust: str, setting: str, decides: bool, allowed: bool
) -> None:
    assert can_user_allow(approval=approval, trust=trust, setting=setting, decides=decides) is allowed


def test_approved_scopes_apply_to_reviewed_clients_only() -> None:
    """CO-2."""
    good = {"approval": "pre_approved", "approved_scopes": ("openid", "email"), "trust": "verified"}
    assert is_pre_approved(["openid"], **good)
    assert not is_pre_approved(["openid", "phone"], **good)
    for change in ({"approval": "allowed"}, {"trust": "unverified"}, {"approved_scopes": ()}):
        assert not is_pre_approved(["openid"], **(good | change))
