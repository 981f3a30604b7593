"""An organization whose identity provider provisions users."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select

from app.extensions import db
from app.operations.directory.lookups import get_organization_by_slug
from app.operations.organizations.settings import update_settings
from app.operations.sign_in.identity_providers import store_identity_provider
from app.operations.sign_in.provisioning_tokens import authenticate_provisioning, create_provisioning_token
from app.rules.actor import Actor
from app.rules.identifiers import public_id
from tests.factories import Factory

MEDIA_TYPE = "application/scim+json"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
FIELDS = {
    "slug": "okta",
    "name": "Okta",
    "issuer": "https://okta.example",
    "client_id": "gatehouse",
    "client_secret": "secret",
    "scopes": ["openid", "email"],
    "create_users": False,
    "link_users": False,
    "trust_emails": False,
    "groups_claim": "groups",
    "status": "enabled",
}


@dataclass
class Directory:
    """An identity provider of an organization that sends SCIM requests."""

    app: Flask
    make: Factory
    organization: Any
    admin: Any
    record: Any
    token: str
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def admin_id(self) -> str:
        """The id of the administrator, who is a user of the organization."""
        return public_id("usr", self.admin.user_id)

    @property
    def path(self) -> str:
        """The path below which the resources are."""
        return f"/organizations/{self.organization.slug}/scim/v2"

    def define_attributes(self, *attributes: dict[str, Any]) -> None:
        """Define custom attributes of users, by default texts."""
        defined = [{"name": each["key"], "type": "string", **each} for each in attributes]
        with self.app.app_context():
            system = self.make.system(self.organization)
            update_settings(system, self.organization.slug, {"user_profile": {"attributes": defined}})

    def actor(self) -> Actor:
        """Return the actor that the token stands for."""
        with self.app.app_context():
            found = get_organization_by_slug(self.organization.slug)
            return authenticate_provisioning(found, self.token, ip_address=None, request_id=None)

    def send(self, method: str, path: str, body: Any = None, status: int = 200, **more: Any) -> Any:
        """Send a request, require the status, and return what the response says."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": MEDIA_TYPE, **self.headers}
        options = {"json": body} if body is not None else {}
        answer = self.app.test_client().open(
            self.path + path, method=method, headers=headers | more.pop("headers", {}), **options, **more
        )
        assert answer.status_code == status, answer.text
        assert answer.headers["Cache-Control"] == "no-store"
        assert status == 204 or answer.mimetype == MEDIA_TYPE
        return answer.get_json() if status != 204 else None

    def patch(self, path: str, *operations: dict[str, Any], status: int = 200) -> Any:
        """Send operations."""
        return self.send("PATCH", path, {"schemas": [PATCH], "Operations": operations}, status)

    def create(self, user_name: str, status: int = 201, **attributes: Any) -> Any:
        """Create a user."""
        schemas = ["urn:ietf:params:scim:schemas:core:2.0:User"]
        return self.send("POST", "/Users", {"schemas": schemas, "userName": user_name, **attributes}, status)

    def group(self, name: str, *members: str, status: int = 201, **attributes: Any) -> Any:
        """Create a group with these users."""
        schemas = ["urn:ietf:params:scim:schemas:core:2.0:Group"]
        body = {"schemas": schemas, "displayName": name, "members": [{"value": each} for each in members]}
        return self.send("POST", "/Groups", body | attributes, status)

    def rows(self, model: Any) -> list[Any]:
        """Return all rows of the organization."""
        with self.app.app_context():
            own = model.organization_id == self.organization.id
            return list(db.session.scalars(select(model).where(own).order_by(model.id)))


def new_directory(app: Flask, make: Factory, organization: Any, **fields: Any) -> Directory:
    """Create an identity provider of the organization with a provisioning token."""
    admin = make.actor(organization, user=make.user(organization, role="admin"))
    with app.app_context():
        record = store_identity_provider(admin, FIELDS | fields)
        token = create_provisioning_token(admin, record.public_id).token
    return Directory(app, make, organization, admin, record, token)


@pytest.fixture
def acme(make: Factory) -> Any:
    """Create an organization."""
    return make.organization(name="Acme")


@pytest.fixture
def directory(app: Flask, make: Factory, acme: Any) -> Directory:
    """Return the identity provider of ``acme``."""
    return new_directory(app, make, acme)
