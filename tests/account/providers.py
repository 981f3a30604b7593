"""An organization with an identity provider, and a browser's way through both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import UUID

from flask import Flask
from sqlalchemy import select, update

from app.extensions import db
from app.fast_path import cache_invalidation
from app.models.organization import Organization
from app.models.user import User
from app.operations.organizations.settings import update_settings
from app.operations.sign_in.identity_providers import update_identity_provider
from app.operations.store.transactions import transaction
from tests.support.identity_provider import FakeProvider

if TYPE_CHECKING:
    from tests.account.conftest import Visitor


@dataclass
class Provider:
    """The provider of Acme, and Acme's record of it."""

    app: Flask
    make: Any
    acme: Any
    fake: FakeProvider
    record: Any
    admin: Any

    def change(self, **fields: Any) -> None:
        """Change fields of the record."""
        with self.app.app_context():
            update_identity_provider(self.admin, self.record.public_id, fields)

    def set_policy(self, **authentication: Any) -> None:
        """Change settings of the organization below ``authentication``."""
        with self.app.app_context():
            update_settings(self.make.system(self.acme), self.acme.slug, {"authentication": authentication})

    def begin(self, visitor: Visitor, **parameters: str) -> str:
        """Press the button of the sign-in page, and return the URL of the provider."""
        home = f"/organizations/{self.acme.slug}"
        page = visitor.get(f"{home}/login", query_string=parameters)
        assert "Continue with Example" in page.text, page.text
        begun = visitor.post(f"{home}/login/with/example", **parameters)
        assert begun.status_code == 303, begun.text
        return begun.location

    def sign_in(self, visitor: Visitor, **parameters: str) -> Any:
        """Sign in with the provider, and return the answer to the browser."""
        return self.come_back(visitor, self.fake.authorize(self.begin(visitor, **parameters)))

    def come_back(self, visitor: Visitor, url: str) -> Any:
        """Follow the provider's redirect."""
        parts = urlsplit(url)
        visitor.page = visitor.http.get(
            f"{parts.path}?{parts.query}", headers={"Sec-Fetch-Site": "cross-site"}
        )
        return visitor.page

    def rows(self, model: Any) -> list[Any]:
        """Return all rows of the organization."""
        with self.app.app_context():
            return list(db.session.scalars(select(model).where(model.organization_id == self.acme.id)))

    def set_organization(self, **values: Any) -> None:
        """Set the values in the row of the organization."""

        @transaction
        def act() -> None:
            db.session.execute(update(Organization).where(Organization.id == self.acme.id).values(**values))
            cache_invalidation.invalidate(self.acme.id)

        with self.app.app_context():
            act()

    def set_user(self, user_id: UUID, **values: Any) -> None:
        """Set the values in the row of the user."""

        @transaction
        def act() -> None:
            key = (User.organization_id == self.acme.id) & (User.id == user_id)
            db.session.execute(update(User).where(key).values(**values))

        with self.app.app_context():
            act()

    def set(self, model: Any, **values: Any) -> None:
        """Set the values in every row of the organization."""

        @transaction
        def act() -> None:
            db.session.execute(update(model).where(model.organization_id == self.acme.id).values(**values))

        with self.app.app_context():
            act()


def refusal(page: Any) -> str:
    """Return the reason that the sign-in page shows."""
    return page.text.partition('id="refusal">')[2].partition("</p>")[0]
