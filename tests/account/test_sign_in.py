"""The sign-in page: destinations, messages and the stable ids of its form."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from flask import Flask

from tests.account.conftest import Visitor
from tests.account.test_second_step import request_of
from tests.factories import PASSWORD
from tests.oauth.conftest import REDIRECT_URI
from tests.web.test_local_paths import FOREIGN


def refusal_of(response: Any) -> str:
    found = re.search(r'id="refusal">(.*?)</p>', response.text, re.DOTALL)
    return " ".join(unescape(found[1]).split()) if found else ""


def test_sign_in_leads_members_to_the_account_and_administrators_to_the_portal(
    make: Any, acme: Any, ada: Any, app: Flask
) -> None:
    boss = make.user(acme, role="admin")
    answer = Visitor(app).sign_in(ada)
    assert (answer.status_code, answer.location) == (303, f"/organizations/{acme.slug}/account")
    assert Visitor(app).sign_in(boss).location == f"/portal/{acme.slug}"


def test_session_cookie_is_http_only_and_same_site(make: Any, visitor: Visitor, ada: Any) -> None:
    answer = visitor.sign_in(ada)
    cookie = next(
        line for line in answer.headers.getlist("Set-Cookie") if make.cookie_name(ada.organization) in line
    )
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert "Domain" not in cookie


def test_sign_in_page_with_session_redirects(visitor: Visitor, acme: Any, ada: Any) -> None:
    visitor.sign_in(ada)
    path = f"/organizations/{acme.slug}/login"
    assert visitor.get(f"{path}?next=/portal").location == "/portal"
    again = visitor.get(f"{path}?next=/portal&reauthenticate=1")
    assert again.status_code == 200
    assert 'value="ada@acme.example"' in again.text


def test_failed_sign_in_keeps_the_destination(visitor: Visitor, acme: Any, ada: Any) -> None:
    path = f"/organizations/{acme.slug}/login"
    visitor.get(f"{path}?next=/portal/{acme.slug}/clients%3Fq%3Da")
    wrong = visitor.post(path, email=ada.email, password="wrong", next=f"/portal/{acme.slug}/clients?q=a")
    assert f'name="next" value="/portal/{acme.slug}/clients?q=a"' in wrong.text
    assert visitor.post(
        path, email=ada.email, password=PASSWORD, next=f"/portal/{acme.slug}/clients?q=a"
    ).location == (f"/portal/{acme.slug}/clients?q=a")


@pytest.mark.parametrize("following", [text for text in FOREIGN if text])
def test_foreign_destination_is_ignored(visitor: Visitor, acme: Any, ada: Any, following: str) -> None:
    """OR-3: after signing in, and with an existing session."""
    home = f"/organizations/{acme.slug}/account"
    assert visitor.sign_in(ada, next=following).location == home
    answer = visitor.get(f"/organizations/{acme.slug}/login", query_string={"next": following})
    assert answer.location == home


def test_sign_in_failure_for_known_and_unknown_email_looks_the_same(
    app: Flask, make: Any, acme: Any, ada: Any
) -> None:
    """EN-1: compares status, headers and page, except the entered email and the tokens of the page.

    Someone with an account of another organization learns that it doesn't work here, as everyone does.
    """

    def answers(email: str, password: str) -> tuple[int, list[str], str]:
        visitor = Visitor(app)
        path = f"/organizations/{acme.slug}/login"
        visitor.get(path)
        answer = visitor.post(path, email=email, password=password)
        page = re.sub(r"""csrf_token" value="[^"]+"|data-passkey='[^']*'""", "", answer.text)
        page = page.replace(email, "EMAIL")
        return answer.status_code, sorted(name for name, _ in answer.headers), page

    known, unknown = answers("ada@acme.example", "wrong"), answers("eve@acme.example", "wrong")
    foreign = make.user(make.organization("globex"), email="lin@globex.example")
    assert known == unknown == answers(foreign.email, foreign.password)
    assert known[0] == 400
    assert "Accounts of other organizations don't work here." in known[2]


def test_failed_sign_ins_count_down_and_then_wait(visitor: Visitor, acme: Any, ada: Any) -> None:
    path = f"/organizations/{acme.slug}/login"
    visitor.get(path)
    words = [refusal_of(visitor.post(path, email=ada.email, password="wrong")) for _ in range(2)]
    assert words == [
        "Incorrect email or password. 2 attempts left.",
        "Incorrect email or password. 1 attempt left.",
    ]
    last = visitor.post(path, email=ada.email, password="wrong")
    assert last.headers["Retry-After"] == "60"
    waiting = visitor.post(path, email=ada.email, password=PASSWORD)
    assert waiting.status_code == 429
    assert int(waiting.headers["Retry-After"]) > 50
    assert refusal_of(waiting).startswith("Too many attempts. Try again in")


@pytest.mark.parametrize(
    "fields", [{}, {"email": "ada@acme.example"}, {"password": "x"}, {"email": "", "password": ""}]
)
def test_sign_in_with_an_empty_field_is_rejected(visitor: Visitor, acme: Any, fields: dict[str, str]) -> None:
    path = f"/organizations/{acme.slug}/login"
    visitor.get(path)
    answer = visitor.post(path, **fields)
    assert (answer.status_code, refusal_of(answer)) == (400, "Enter your email and password.")


def test_sign_in_form_has_its_stable_ids(visitor: Visitor, acme: Any) -> None:
    page = visitor.get(f"/organizations/{acme.slug}/login").text
    for stable_id in ("username", "password", "login-submit"):
        assert f'id="{stable_id}"' in page
    assert 'autocomplete="username webauthn"' in page
    assert 'autocomplete="current-password"' in page
    assert 'inputmode="email"' in page and 'type="email"' not in page, "Chromium rejects jürgen@acme.example"


def test_sign_in_page_shows_the_organization_texts(make: Any, visitor: Visitor) -> None:
    branding = {
        "display_name": "Acme & Sons",
        "login_message": "Staff <only>",
        "theme": "dark",
        "support_email": "help@acme.example",
    }
    acme = make.organization(settings={"branding": branding})
    page = visitor.get(f"/organizations/{acme.slug}/login").text
    assert "Sign in to Acme &amp; Sons" in page
    assert "Staff &lt;only&gt;" in page
    assert 'data-theme="dark"' in page
    assert "mailto:help@acme.example" in page


def test_users_see_one_name_of_the_organization(make: Any, visitor: Visitor) -> None:
    """On every page from the sign-in to the sign-out, not the name that administrators see."""
    acme = make.organization(name="Holding 7", settings={"branding": {"display_name": "Orchard"}})
    client, ada = make.client(acme, redirect_uris=[REDIRECT_URI]), make.user(acme)
    home = f"/organizations/{acme.slug}"
    asked = visitor.http.get("/oauth/authorize", query_string=request_of(client)).location
    pages = {"sign in": visitor.get(asked)}
    resumed = visitor.post(asked, email=ada.email, password=PASSWORD).location
    pages["consent"] = visitor.get(resumed)
    for path in ("account/apps", "account/sessions", "account/profile", "device", "logout"):
        pages[path] = visitor.get(f"{home}/{path}")
    for path, page in pages.items():
        assert page.status_code == 200 and "Orchard" in page.text and "Holding 7" not in page.text, path


def test_sign_in_at_a_suspended_organization_is_refused(
    make: Any, visitor: Visitor, acme: Any, ada: Any
) -> None:
    from app.operations.organizations.organizations import update_organization
    from app.operations.organizations.settings import update_settings

    root = make.root()
    with visitor.http.application.app_context():
        open_now = {"authentication": {"registration": {"mode": "open"}}}
        update_settings(make.actor(acme), acme.slug, open_now)
        update_organization(make.actor(root), acme.slug, {"status": "suspended"})
    path = f"/organizations/{acme.slug}/login"
    page = visitor.get(path)
    assert "is suspended" in refusal_of(page) and 'id="register-link"' not in page.text
    answer = visitor.post(path, email=ada.email, password=PASSWORD)
    assert (answer.status_code, "is suspended" in refusal_of(answer)) == (403, True)
    assert visitor.cookie(make.cookie_name(acme)) is None
    page = visitor.get(f"/organizations/{acme.slug}/register")
    assert page.status_code == 403 and "is suspended" in page.text


def test_start_page_redirects_to_setup_or_portal(make: Any, visitor: Visitor) -> None:
    assert visitor.get("/").location == "/setup"
    make.root()
    assert visitor.get("/").location == "/portal"
    assert visitor.get("/portal").location == "/login"


def test_unknown_organization_shows_a_page(visitor: Visitor) -> None:
    answer = visitor.get("/organizations/nobody/login")
    assert answer.status_code == 404
    assert 'id="error-title"' in answer.text
    assert 'href="/login"' in answer.text


def test_chooser_leads_to_the_instance_administration(make: Any, visitor: Visitor) -> None:
    assert "Administer this Gatehouse instance" not in visitor.get("/login").text, "not set up"
    make.setup()
    assert 'href="/organizations/root/login">Administer this Gatehouse instance' in visitor.get("/login").text


def test_expired_authorization_request_is_400(visitor: Visitor, acme: Any) -> None:
    answer = visitor.get(f"/organizations/{acme.slug}/login?request=gth_ar_nothing")
    assert answer.status_code == 400
    assert "request_ended" in answer.text


def test_chooser_finds_an_organization_and_lists_sessions(
    make: Any, visitor: Visitor, acme: Any, ada: Any
) -> None:
    assert (
        visitor.get(f"/login?organization={acme.slug.upper()}&next=/portal").location
        == f"/organizations/{acme.slug}/login?next=%2Fportal"
    )
    assert visitor.get("/login?organization=nobody").status_code == 404
    assert "ada@acme.example" not in visitor.get("/login").text
    visitor.sign_in(ada)
    assert "ada@acme.example" in visitor.get("/login").text
