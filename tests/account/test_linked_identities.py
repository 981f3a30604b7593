"""Accounts at identity providers that users link and unlink."""

from __future__ import annotations

from typing import Any

import pytest

from app.models.identity_provider import IdentityProvider, LinkedIdentity
from app.models.session import Session
from app.models.user import User
from app.operations.maintenance.exported_events import EndedAgain, ExportedEvent, end_again
from app.operations.sign_in.identity_providers import (
    delete_identity_provider,
)
from app.operations.users.groups import create_group
from app.rules.identifiers import public_id
from tests.account.conftest import Visitor
from tests.account.providers import Provider


def test_user_links_and_unlinks_an_account(provider: Provider, visitor: Visitor, make: Any) -> None:
    home = f"/organizations/{provider.acme.slug}/account/security"
    user = make.user(provider.acme)
    visitor.sign_in(user)
    assert "Link an account" in visitor.get(home).text
    visitor.get(f"{home}/identities")
    begun = visitor.post(f"{home}/identities/link/example")
    answer = provider.fake.authorize(begun.location)
    # Another user's browser cannot link it, even with the same answer.
    other = Visitor(provider.app)
    other.sign_in(make.user(provider.acme))
    provider.come_back(other, answer)
    assert not provider.rows(LinkedIdentity)
    fields = {
        "name": "Staff",
        "provider_groups": [{"provider_id": provider.record.public_id, "value": "staff"}],
    }
    with provider.app.app_context():
        create_group(provider.admin, provider.acme.slug, fields)
    assert provider.come_back(visitor, answer).location == f"{home}/identities"
    assert "/userinfo" not in provider.fake.asked, "linking needs no groups"
    page = visitor.get(f"{home}/identities").text
    assert "Linked. You can sign in" in page and "grace@acme.example" in page
    (linked,) = provider.rows(LinkedIdentity)
    assert linked.user_id == user.id
    assert provider.sign_in(Visitor(provider.app)).status_code == 303
    # It cannot be linked to someone else.
    third = Visitor(provider.app)
    third.sign_in(make.user(provider.acme))
    third.get(f"{home}/identities")
    provider.come_back(third, provider.fake.authorize(third.post(f"{home}/identities/link/example").location))
    assert "linked to another user" in third.get(f"{home}/identities").text
    remove = page.partition(f"{home}/identities/idn_")[2].partition("/")[0]
    assert visitor.post(f"{home}/identities/idn_{remove}/remove").status_code == 303
    assert not provider.rows(LinkedIdentity)
    assert len(provider.rows(Session)) == 3  # The session of the provider has ended (SS-6).
    activity = visitor.get(f"/organizations/{provider.acme.slug}/account/activity").text
    assert "identity provider was linked" in activity and "identity provider was unlinked" in activity


@pytest.mark.parametrize("action", ["link/example", "remove"])
def test_linking_and_unlinking_require_a_recent_sign_in(
    provider: Provider, visitor: Visitor, make: Any, action: str
) -> None:
    provider.change(create_users=True)
    provider.sign_in(visitor)  # A silent one, so it is not recent.
    home = f"/organizations/{provider.acme.slug}/account/security/identities"
    page = visitor.get(home).text
    if action == "remove":
        action = f"idn_{page.partition(f'{home}/idn_')[2].partition('/')[0]}/remove"
    asked = visitor.post(f"{home}/{action}")
    assert asked.status_code == 303 and "reauthenticate=1" in asked.location
    assert provider.rows(LinkedIdentity)


@pytest.mark.parametrize(
    "policy",
    [
        {"password": {"enabled": False}, "passkeys": {"enabled": False}},
        {"recovery": {"password_reset": False}},
    ],
    ids=["no passwords", "no resets"],
)
def test_only_way_to_sign_in_cannot_be_unlinked(provider: Provider, visitor: Visitor, policy: Any) -> None:
    home = f"/organizations/{provider.acme.slug}/account/security"
    provider.change(create_users=True)
    provider.sign_in(visitor)
    provider.sign_in(visitor, reauthenticate="1")
    provider.set_policy(**policy)
    page = visitor.get(f"{home}/identities").text
    remove = page.partition(f"{home}/identities/idn_")[2].partition("/")[0]
    refused = visitor.post(f"{home}/identities/idn_{remove}/remove")
    assert refused.status_code == 409 and "only way to sign in" in refused.text
    assert provider.rows(LinkedIdentity)


def test_links_that_ended_after_a_backup_end_again(provider: Provider, visitor: Visitor) -> None:
    """BK-2: a restored backup has the links and the provider that were removed after it was made."""
    provider.change(create_users=True)
    provider.sign_in(visitor)
    (linked,) = provider.rows(LinkedIdentity)
    user, identity = public_id("usr", linked.user_id), public_id("idn", linked.id)

    def happened(number: int, action: str, target: str, **before: str) -> ExportedEvent:
        event_id = f"evt_01JDZ8W000000000000000000{number}"
        at = f"2026-01-01T00:00:0{number}Z"
        return ExportedEvent(event_id, provider.acme.slug, at, action, target, "", before, {})

    unlinked = happened(1, "identity.unlinked", user, identity=identity)
    deleted = happened(2, "identity_provider.deleted", provider.record.public_id)
    with provider.app.app_context():
        end_again([unlinked], result := EndedAgain())
        assert result == EndedAgain([unlinked.words])
    assert not provider.rows(LinkedIdentity) and not provider.rows(Session)
    with provider.app.app_context():
        end_again([deleted], result := EndedAgain())
        assert result == EndedAgain([deleted.words])
    assert not provider.rows(IdentityProvider)


def test_deleting_a_provider_removes_its_links_in_parts(
    provider: Provider, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.operations.sign_in.identity_providers._BATCH", 2)
    provider.change(create_users=True)
    for number in range(5):
        provider.fake.claims |= {"sub": str(number), "email": f"user{number}@acme.example"}
        provider.sign_in(Visitor(provider.app))
    with provider.app.app_context():
        delete_identity_provider(provider.admin, provider.record.public_id)
    assert not provider.rows(LinkedIdentity) and not provider.rows(IdentityProvider)
    assert len(provider.rows(User)) == 6
    assert "Continue with" not in visitor.get(f"/organizations/{provider.acme.slug}/login").text
