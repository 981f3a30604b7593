"""Groups that take their members from an identity provider."""

from __future__ import annotations

from typing import Any

import pytest

from app.models.audit import AuditEvent
from app.models.user import GroupMember
from app.operations.users import groups
from tests.account.conftest import Visitor
from tests.account.providers import Provider


class Groups:
    """Two groups of Acme that follow the provider, and one that does not."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.ids = {
            self.create(name, values): name
            for name, values in {"Engineers": ["eng", "dev"], "Sales": ["sales"], "Friends": []}.items()
        }

    def create(self, name: str, values: list[str]) -> Any:
        """Create a group whose members are those of the values at the provider."""
        acme, record = self.provider.acme, self.provider.record
        named = [{"provider_id": record.public_id, "value": value} for value in values]
        with self.provider.app.app_context():
            fields = {"name": name, "provider_groups": named}
            return groups.create_group(self.provider.admin, acme.slug, fields).id

    def members(self) -> list[str]:
        """Return the names of the groups that have a member."""
        return sorted(self.ids[row.group_id] for row in self.provider.rows(GroupMember))


@pytest.fixture
def followed(provider: Provider) -> Groups:
    """The groups of an organization whose users get accounts when they first sign in."""
    provider.change(create_users=True)
    return Groups(provider)


def test_every_sign_in_decides_about_members(provider: Provider, followed: Groups) -> None:
    for sent, expected in (
        (["eng", "everyone"], ["Engineers"]),
        (["dev", "eng"], ["Engineers"]),
        (["sales", 5, None, "dev"], ["Engineers", "Sales"]),
        ("sales", ["Sales"]),
        (["Sales"], []),
        (["eng"], ["Engineers"]),
        (None, []),
    ):
        provider.fake.claims["groups"] = sent
        assert provider.sign_in(Visitor(provider.app)).status_code == 303
        assert followed.members() == expected, sent
    told = [row for row in provider.rows(AuditEvent) if row.action.startswith("group.member")]
    # With the IP address, as all that a sign-in changes: an investigation filters by it.
    assert {(row.actor_kind, row.actor_label, row.address) for row in told} == {
        ("system", "Example", "127.0.0.1")
    }


def test_other_groups_keep_their_members(provider: Provider, followed: Groups, visitor: Visitor) -> None:
    provider.sign_in(visitor)
    friends = next(group_id for group_id, name in followed.ids.items() if name == "Friends")
    with provider.app.app_context():
        email = {"email": provider.fake.claims["email"]}
        groups.add_member(provider.admin, provider.acme.slug, groups.public_id("grp", friends), email)
    provider.fake.claims["groups"] = ["sales"]
    provider.sign_in(Visitor(provider.app))
    assert followed.members() == ["Friends", "Sales"]


def test_groups_that_the_token_leaves_out_stay(provider: Provider, followed: Groups) -> None:
    """OpenID Connect Core section 5.6.2: too many groups are elsewhere."""
    provider.fake.claims["groups"] = ["eng"]
    provider.sign_in(Visitor(provider.app))
    del provider.fake.claims["groups"]
    elsewhere = {"_claim_names": {"groups": "src1"}}
    for claims, userinfo in ((elsewhere, {}), ({}, elsewhere)):
        provider.fake.changes, provider.fake.userinfo = claims, userinfo
        assert provider.sign_in(Visitor(provider.app)).status_code == 303
        assert followed.members() == ["Engineers"]


def test_claim_is_read_from_userinfo_if_a_group_follows(provider: Provider, visitor: Visitor) -> None:
    provider.change(create_users=True, groups_claim="https://acme.example/roles")
    provider.fake.userinfo = {"https://acme.example/roles": ["sales"]}
    provider.sign_in(visitor)
    assert "/userinfo" not in provider.fake.asked
    followed = Groups(provider)
    provider.sign_in(Visitor(provider.app))
    assert followed.members() == ["Sales"]


def test_full_user_stays_out_of_further_groups(
    provider: Provider, followed: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.operations.users.provider_groups.MAX_GROUPS_PER_USER", 1)
    for sent in (["eng", "sales"], ["sales"]):
        provider.fake.claims["groups"] = sent
        assert provider.sign_in(Visitor(provider.app)).status_code == 303
        assert len(followed.members()) == 1
    assert followed.members() == ["Sales"]
