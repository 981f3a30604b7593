"""Figures of the overview page: correct, bounded, and of one organization."""

from __future__ import annotations

from typing import Any

import pytest

from app.operations.organizations.administrators import add_administrator
from app.operations.organizations.overview import get_overview
from app.operations.users.invitations import accept_invitation, create_invitation
from app.rules.errors import Forbidden


def test_overview_counts_only_this_organization(context: Any, make: Any) -> None:
    acme, globex = make.organization(), make.organization()
    make.client(acme)
    for _ in range(2):
        make.client(globex)
    make.user(globex, role="admin")

    found = get_overview(make.actor(acme))

    assert (found.clients, found.has_tokens, found.has_colleague) == (1, False, False)
    assert found.recent_events is not None
    assert {happening.action for happening in found.recent_events} >= {
        "client.registered",
        "organization.created",
    }


def test_overview_of_a_developer_counts_only_own_clients_and_tokens(context: Any, make: Any) -> None:
    acme = make.organization()
    make.bearer(acme)
    permissions = ("organization:read", "clients:read:own", "clients:write:own")
    developer = make.actor(acme, *permissions, user=make.user(acme))

    def state(actor: Any) -> tuple[int, bool]:
        found = get_overview(actor)
        return found.clients, found.has_tokens

    assert (state(developer), state(make.actor(acme))) == ((0, False), (1, True))
    make.client(acme, by=developer)
    assert (state(developer), state(make.actor(acme))) == ((1, False), (2, True))


def test_a_second_administrator_or_an_open_invitation_is_a_colleague(context: Any, make: Any) -> None:
    alone, pair, inviting, joined = (make.organization() for _ in range(4))
    for organization, administrators in ((alone, 1), (pair, 2), (inviting, 1)):
        for _ in range(administrators):
            make.user(organization, role="admin")
    user = make.user(several_roles := make.organization(), role="admin")
    add_administrator(
        make.system(several_roles), several_roles.slug, role="developer", user_id=user.public_id
    )
    create_invitation(make.actor(inviting), inviting.slug, email="new@acme.example", role="auditor")
    invited = create_invitation(make.actor(joined), joined.slug, email="first@acme.example", role="admin")
    accept_invitation(invited.link.rpartition("/")[2], name="First", password_hash="$scrypt$")

    organizations = (alone, pair, inviting, joined, several_roles)
    found = [get_overview(make.actor(one)).has_colleague for one in organizations]

    assert found == [False, True, True, False, False]


def test_overview_without_audit_permission_has_no_events(context: Any, make: Any) -> None:
    found = get_overview(make.actor(make.organization(), "organization:read"))

    assert found.recent_events is None


def test_overview_requires_organization_read(context: Any, make: Any) -> None:
    with pytest.raises(Forbidden):
        get_overview(make.actor(make.organization(), "clients:read"))
