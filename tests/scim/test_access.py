"""Who may provision users: identity providers with one of their tokens, and nobody else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import update

from app.extensions import db
from app.fast_path import cache_invalidation
from app.models.audit import AuditEvent
from app.models.identity_provider import ProvisioningToken
from app.models.organization import Organization
from app.operations.organizations.organizations import update_organization
from app.operations.organizations.settings import update_settings
from app.operations.sign_in.identity_providers import delete_identity_provider, update_identity_provider
from app.operations.sign_in.provisioning_tokens import (
    create_provisioning_token,
    delete_provisioning_token,
    list_provisioning_tokens,
)
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.rules.errors import Conflict
from tests.factories import Factory
from tests.scim.conftest import Directory, new_directory
from tests.support.cases import each


def revoke(directory: Directory) -> None:
    (token,) = list_provisioning_tokens(directory.admin, directory.record.public_id)
    delete_provisioning_token(directory.admin, directory.record.public_id, token.public_id)


def disable(directory: Directory) -> None:
    update_identity_provider(directory.admin, directory.record.public_id, {"status": "disabled"})


def delete(directory: Directory) -> None:
    delete_identity_provider(directory.admin, directory.record.public_id)


def suspend(directory: Directory) -> None:
    system = directory.make.system(directory.organization)
    update_organization(system, directory.organization.slug, {"status": "suspended"})


def restore(directory: Directory) -> None:
    """The backup may have been older than the deletion of the token."""

    @transaction
    def act() -> None:
        own = Organization.id == directory.organization.id
        db.session.execute(
            update(Organization).where(own).values(restored_at=clock.now() + timedelta(seconds=1))
        )
        cache_invalidation.invalidate(directory.organization.id)

    act()


@pytest.mark.parametrize("end", [revoke, disable, delete, suspend, restore])
def test_token_ends_at_once(directory: Directory, end: Any) -> None:
    directory.send("GET", "/Users")
    with directory.app.app_context():
        end(directory)
    refused = directory.send("GET", "/Users", status=401)
    assert refused["status"] == "401" and "provisioning token" in refused["detail"]


def test_other_credentials_are_refused(directory: Directory, make: Factory) -> None:
    globex = new_directory(directory.app, make, make.organization())
    access_token = make.bearer(directory.organization, "users:read", "users:write")
    client = directory.app.test_client()
    bearers = (globex.token, access_token, "é", "")
    for header in ("", f"Basic {directory.token}", *(f"Bearer {token}" for token in bearers)):
        answer = client.get(f"{directory.path}/Users", headers={"Authorization": header} if header else {})
        assert answer.status_code == 401, header
        assert answer.headers["WWW-Authenticate"].startswith("Bearer realm=")
    own = {"Authorization": f"Bearer {directory.token}"}
    assert client.get("/users", headers=own).status_code == 401
    assert client.get("/organizations/nowhere/scim/v2/Users", headers=own).status_code == 404


@each(
    ("method", "path", "status"),
    [
        ("GET", "/Nothing", 404),
        ("GET", "/Schemas/urn:nothing", 404),
        ("GET", "/ResourceTypes/Device", 404),
        ("GET", "/Users/usr_01m8h9wytwfrxb556c6c6esm77", 404),
        ("GET", "/Groups/nothing", 404),
        ("POST", "/Bulk", 501),
        ("POST", "/.search", 501),
        ("GET", "/Me", 501),
        ("PATCH", "/Me", 501),
        ("GET", "/Schemas?filter=id eq 1", 403),
        ("GET", "/ServiceProviderConfig?filter=x", 403),
        ("DELETE", "/Users", 405),
        ("POST", "/Groups/nothing", 405),
        ("PATCH", "/Nothing", 404),
    ],
)
def test_what_does_not_exist_is_a_scim_error(
    directory: Directory, method: str, path: str, status: int
) -> None:
    refused = directory.send(method, path, status=status)
    assert refused["schemas"] == ["urn:ietf:params:scim:api:messages:2.0:Error"]
    assert refused["status"] == str(status) and refused["detail"]


def test_allowed_methods_are_listed(app: Flask, directory: Directory) -> None:
    url, http = f"{directory.path}/Users", app.test_client()
    for method, status in (("DELETE", 405), ("OPTIONS", 200)):
        answer = http.open(url, method=method)
        assert (answer.status_code, set(answer.allow) - {"OPTIONS"}) == (status, {"GET", "HEAD", "POST"})


@each(
    ("content", "media", "status", "kind"),
    [
        (b"{}", "text/plain", 415, None),
        (b"{", "application/scim+json", 400, "invalidSyntax"),
        (b"[]", "application/json", 400, "invalidSyntax"),
        (
            b'{"userName": "a@acme.example", "userName": "b@acme.example"}',
            "application/json",
            400,
            "invalidSyntax",
        ),
        (b'{"userName": 5}', "application/json", 400, "invalidValue"),
        (
            b'{"schemas": ["urn:nothing"], "userName": "a@acme.example"}',
            "application/json",
            400,
            "invalidSyntax",
        ),
        (b'{"x": "' + b"a" * (300 * 1024) + b'"}', "application/json", 413, None),
    ],
)
def test_bad_body_is_refused(
    directory: Directory, content: bytes, media: str, status: int, kind: str | None
) -> None:
    refused = directory.send("POST", "/Users", None, status, data=content, headers={"Content-Type": media})
    assert refused.get("scimType") == kind and refused["detail"]


def test_events_name_the_provider_and_use_is_recorded_once_a_minute(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = directory.create("grace@acme.example")
    (event,) = [row for row in directory.rows(AuditEvent) if row.action == "user.created"]
    assert (event.actor_kind, event.actor_id, event.actor_label, event.target_id) == (
        "provider",
        directory.record.public_id,
        "Okta",
        created["id"],
    )
    (token,) = directory.rows(ProvisioningToken)
    directory.send("GET", "/Users")
    assert [row.last_used_at for row in directory.rows(ProvisioningToken)] == [token.last_used_at]
    later = clock.now() + timedelta(minutes=1)
    monkeypatch.setattr(clock, "now", lambda: later)
    directory.send("GET", "/Users")
    assert [row.last_used_at for row in directory.rows(ProvisioningToken)] == [later]


def test_provider_has_two_tokens_at_most(directory: Directory) -> None:
    with directory.app.app_context():
        second = create_provisioning_token(directory.admin, directory.record.public_id)
        with pytest.raises(Conflict, match="at most 2"):
            create_provisioning_token(directory.admin, directory.record.public_id)
    directory.send("GET", "/Users")
    directory.token = second.token
    directory.send("GET", "/Users")


def test_limits_of_clients_apply(directory: Directory) -> None:
    with directory.app.app_context():
        update_settings(
            directory.make.system(directory.organization),
            directory.organization.slug,
            {"limits": {"client_requests_per_minute": 10}},
        )
    for _ in range(10):
        directory.send("GET", "/Users")
    assert directory.send("GET", "/Users", status=429)["status"] == "429"
