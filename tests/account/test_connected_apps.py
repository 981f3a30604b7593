"""Connected apps: their permissions, and removing access (CO-3)."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from flask import Flask
from sqlalchemy import func, select

from app.extensions import db
from app.models.grant import Consent
from app.operations.authorization.connected_apps import list_consents
from app.operations.authorization.consents import store_consent
from app.operations.directory.lookups import find_client
from app.operations.sign_in.sessions import find_session
from app.operations.store.transactions import transaction
from tests.account.conftest import Visitor


@pytest.fixture
def orchard(make: Any, acme: Any) -> Any:
    """Create a client of the organization."""
    return make.client(acme, name="Orchard & Sons")


def allow(make: Any, app: Flask, client: Any, user: Any) -> str:
    """Allow the client for the user; return the consent's public ID."""
    with app.app_context():
        actor = find_session(make.sign_in(user).token).actor()
        view = find_client(client.client_id)
        transaction(store_consent)(actor, view, user.id, ("openid", "profile", "offline_access"))
        return list_consents(actor)[0].public_id


def test_connected_app_shows_its_permissions(
    make: Any, app: Flask, visitor: Visitor, acme: Any, ada: Any, orchard: Any
) -> None:
    allow(make, app, orchard, ada)
    visitor.sign_in(ada)
    page = visitor.get(f"/organizations/{acme.slug}/account/apps").text
    assert "Orchard &amp; Sons" in page
    assert "Sign you in" in page
    assert "Keep access while you are away" in page


def test_connected_apps_with_one_name_can_be_told_apart(
    make: Any, app: Flask, visitor: Visitor, acme: Any, ada: Any
) -> None:
    for host, trust in (("app.acme.example", "verified"), ("evil.example", "unverified")):
        client = make.client(acme, name="Acme Web", trust=trust, redirect_uris=[f"https://{host}/callback"])
        consent = allow(make, app, client, ada)
    visitor.sign_in(ada)
    page = visitor.get(f"/organizations/{acme.slug}/account/apps").text
    assert page.count("Not reviewed") == 1
    newest, older = page.index("evil.example"), page.index("app.acme.example")
    assert newest < page.index(consent) < older, "each host stands beside the button that removes its app"
    assert "evil.example" in visitor.get(f"/organizations/{acme.slug}/account/apps/{consent}/remove").text


def test_connected_app_with_login_uri_can_be_opened(
    make: Any, app: Flask, visitor: Visitor, acme: Any, ada: Any, orchard: Any
) -> None:
    """OIDC Core section 4: with ``iss``, so that the app knows the issuer; apps without the URI have no link."""
    there = make.client(acme, name="There", initiate_login_uri="https://there.example/start?a=1")
    for client in (orchard, there):
        allow(make, app, client, ada)
    visitor.sign_in(ada)
    page = visitor.get(f"/organizations/{acme.slug}/account/apps").text
    issuer = quote(acme.issuer, safe="")
    assert f'href="https://there.example/start?a=1&amp;iss={issuer}"' in page
    assert page.count(">Open<") == 1


def test_app_removal_asks_for_confirmation(
    make: Any, app: Flask, visitor: Visitor, acme: Any, ada: Any, orchard: Any
) -> None:
    consent = allow(make, app, orchard, ada)
    visitor.sign_in(ada)
    path = f"/organizations/{acme.slug}/account/apps/{consent}/remove"
    assert "Remove Orchard &amp; Sons?" in visitor.get(path).text
    assert _consents(app) == 1
    done = visitor.post(path)
    assert "Access removed." in visitor.get(done.location).text
    assert _consents(app) == 0
    assert visitor.get(path).status_code == 404


def test_app_of_another_user_cannot_be_removed(
    make: Any, app: Flask, visitor: Visitor, acme: Any, ada: Any, orchard: Any
) -> None:
    consent = allow(make, app, orchard, ada)
    visitor.sign_in(make.user(acme, email="eve@acme.example"))
    path = f"/organizations/{acme.slug}/account/apps/{consent}/remove"
    visitor.get(f"/organizations/{acme.slug}/account/profile")
    assert visitor.post(path).status_code == 404
    assert _consents(app) == 1


def _consents(app: Flask) -> int:
    with app.app_context():
        return db.session.scalar(select(func.count()).select_from(Consent)) or 0
