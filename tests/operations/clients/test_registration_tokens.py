"""Initial access tokens (RFC 7591 section 3): permissions, terms, and what is stored."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select

from app.extensions import db
from app.models.audit import AuditEvent
from app.models.client import RegistrationToken
from app.operations.clients import initial_access_tokens
from app.operations.clients.initial_access_tokens import (
    create_registration_token,
    get_registration_token,
    list_registration_tokens,
    revoke_registration_token,
    spend_token,
)
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.store import clock
from app.operations.store.rows import PageRequest
from app.operations.store.transactions import transaction
from app.rules.errors import Conflict, Forbidden, InvalidInput, NotFound, PreconditionFailed
from tests.factories import Factory
from tests.support.cases import each


@pytest.fixture
def organization(context: Flask, make: Factory) -> OrganizationSnapshot:
    return make.organization()


def audit_actions() -> list[str]:
    return [
        row for row in db.session.scalars(select(AuditEvent.action)) if row.startswith("registration_token")
    ]


def test_token_is_created_with_its_terms_and_audited(
    organization: OrganizationSnapshot, make: Factory
) -> None:
    made = create_registration_token(make.actor(organization), {"name": "CI", "max_uses": 3})
    assert made.token.startswith(f"gth_ia_{organization.id}")
    assert (made.record.status, made.record.uses, made.record.max_uses) == ("live", 0, 3)
    assert made.record.expires_at - clock.now() > timedelta(days=29)
    assert audit_actions() == ["registration_token.created"]


@each(
    ("terms", "field"),
    [
        ({}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": "CI", "max_uses": 0}, "max_uses"),
        ({"name": "CI", "max_uses": True}, "max_uses"),
        ({"name": "CI", "max_uses": "3"}, "max_uses"),
        ({"name": "CI", "expires_in_days": 366}, "expires_in_days"),
        ({"name": "CI", "expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
        ({"name": "CI", "expires_at": "2999-01-01T00:00:00Z"}, "expires_at"),
        ({"name": "CI", "expires_at": "soon"}, "expires_at"),
        ({"name": "CI", "expires_at": "2026-12-01T00:00:00Z", "expires_in_days": 3}, "expires_at"),
        ({"name": "CI", "uses": 3}, "uses"),
        ({"name": "CI", "max_use": 3}, "max_use"),
    ],
)
def test_invalid_terms_are_rejected_by_field(
    organization: OrganizationSnapshot, make: Factory, terms: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        create_registration_token(make.actor(organization), terms)
    assert refused.value.field == field
    assert db.session.scalars(select(RegistrationToken)).all() == [] and audit_actions() == []


def test_tokens_require_client_permissions(organization: OrganizationSnapshot, make: Factory) -> None:
    made = create_registration_token(make.actor(organization, "clients:write"), {"name": "CI"})
    reader = make.actor(organization, "clients:read")
    assert [token.name for token in list_registration_tokens(reader).items] == ["CI"]
    for permission in ("clients:read", "clients:write:own"):
        with pytest.raises(Forbidden):
            create_registration_token(make.actor(organization, permission), {"name": "CI"})
        with pytest.raises(Forbidden):
            revoke_registration_token(make.actor(organization, permission), made.record.public_id)


def test_revoked_token_is_not_found(organization: OrganizationSnapshot, make: Factory) -> None:
    actor = make.actor(organization)
    made = create_registration_token(actor, {"name": "CI"}).record
    with pytest.raises(PreconditionFailed):
        revoke_registration_token(actor, made.public_id, expected_version=made.version + 1)
    assert revoke_registration_token(actor, made.public_id, expected_version=made.version).status == "revoked"
    for again in (get_registration_token, revoke_registration_token):
        with pytest.raises(NotFound):
            again(actor, made.public_id)
    assert list_registration_tokens(actor).items == ()
    assert audit_actions() == ["registration_token.created", "registration_token.revoked"]


def test_token_of_another_organization_is_not_found(
    organization: OrganizationSnapshot, make: Factory
) -> None:
    """TN-2."""
    made = create_registration_token(make.actor(organization), {"name": "CI"}).record
    other = make.actor(make.organization())
    for act in (get_registration_token, revoke_registration_token):
        with pytest.raises(NotFound):
            act(other, made.public_id)


def test_number_of_active_tokens_is_limited(
    organization: OrganizationSnapshot, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(initial_access_tokens, "MAX_ACTIVE_TOKENS", 2)
    actor = make.actor(organization)
    first = create_registration_token(actor, {"name": "1"}).record
    create_registration_token(actor, {"name": "2"})
    with pytest.raises(Conflict):
        create_registration_token(actor, {"name": "3"})
    revoke_registration_token(actor, first.public_id)
    create_registration_token(actor, {"name": "3"})


@transaction
def spend(organization: OrganizationSnapshot, token: str) -> None:
    spend_token(organization.id, token)


def test_used_up_token_is_not_active(
    organization: OrganizationSnapshot, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipeline that creates a token for each client would otherwise stop after a hundred of them."""
    monkeypatch.setattr(initial_access_tokens, "MAX_ACTIVE_TOKENS", 1)
    actor = make.actor(organization)
    made = create_registration_token(actor, {"name": "1", "max_uses": 1})
    spend(organization, made.token)
    create_registration_token(actor, {"name": "2"})


def test_tokens_are_paged(organization: OrganizationSnapshot, make: Factory) -> None:
    actor = make.actor(organization)
    for number in range(3):
        create_registration_token(actor, {"name": str(number)})
    page = list_registration_tokens(actor, PageRequest(2))
    assert page.next_cursor_key is not None
    rest = list_registration_tokens(actor, PageRequest(2, page.next_cursor_key))
    assert {token.name for token in (*page.items, *rest.items)} == {"0", "1", "2"}
    assert rest.next_cursor_key is None
