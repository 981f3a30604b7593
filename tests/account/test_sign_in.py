"""The sign-in page: where it leads, what it says, and who cannot be made to use it."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from flask import Flask

from tests.account.conftest import Visitor
from tests.factories import PASSWORD
from tests.web.test_local_paths import FOREIGN


def said(response: Any) -> str:
    found = re.search(r'id="refusal">(.*?)</p>', response.text, re.DOTALL)
    return " ".join(unescape(found[1]).split()) if found else ""


def test_a_member_lands_at_the_account_and_an_administrator_in_the_portal(
    make: Any, acme: Any, ada: Any, app: Flask
) -> None:
    boss = make.user(acme, role="admin")
    answer = Visitor(app).sign_in(ada)
    assert (answer.status_code, answer.location) == (303, f"/organizations/{acme.slug}/account")
    assert Visitor(app).sign_in(boss).location == f"/portal/{acme.slug}"


def test_the_cookie_is_out_of_reach_for_scripts_and_other_sites(
    make: Any, visitor: Visitor, ada: Any
) -> None:
    answer = visitor.sign_in(ada)
    cookie = next(
        line for line in answer.headers.getlist("Set-Cookie") if make.cookie_name(ada.organization) in line
    )
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert "Domain" not in cookie


def test_whoever_is_signed_in_already_goes_on_at_once(visitor: Visitor, acme: Any, ada: Any) -> None:
    visitor.sign_in(ada)
    path = f"/organizations/{acme.slug}/login"
    assert visitor.get(f"{path}?next=/portal").location == "/portal"
    again = visitor.get(f"{path}?next=/portal&reauthenticate=1")
    assert again.status_code == 200
    assert 'value="ada@acme.example"' in again.text


def test_the_way_on_is_kept_through_a_failure(visitor: Visitor, acme: Any, ada: Any) -> None:
    path = f"/organizations/{acme.slug}/login"
    visitor.get(f"{path}?next=/portal/{acme.slug}/clients%3Fq%3Da")
    wrong = visitor.post(path, email=ada.email, password="wrong", next=f"/portal/{acme.slug}/clients?q=a")
    assert f'name="next" value="/portal/{acme.slug}/clients?q=a"' in wrong.text
    assert visitor.post(
        path, email=ada.email, password=PASSWORD, next=f"/portal/{acme.slug}/clients?q=a"
    ).location == (f"/portal/{acme.slug}/clients?q=a")


@pytest.mark.parametrize("following", [text for text in FOREIGN if text])
def test_no_foreign_address_is_followed(visitor: Visitor, acme: Any, ada: Any, following: str) -> None:
    """OR-3, after signing in and for somebody signed in."""
    home = f"/organizations/{acme.slug}/account"
    assert visitor.sign_in(ada, next=following).location == home
    answer = visitor.get(f"/organizations/{acme.slug}/login", query_string={"next": following})
    assert answer.location == home


def test_known_and_unknown_accounts_get_the_same_answer(app: Flask, acme: Any, ada: Any) -> None:
    """EN-1: status, headers and page, but for the address that was typed and the tokens of the page."""

    def answers(email: str) -> tuple[int, list[str], str]:
        visitor = Visitor(app)
        path = f"/organizations/{acme.slug}/login"
        visitor.get(path)
        answer = visitor.post(path, email=email, password="wrong")
        page = re.sub(r"""csrf_token" value="[^"]+"|data-passkey='[^']*'""", "", answer.text)
        page = page.replace(email, "EMAIL")
        return answer.status_code, sorted(name for name, _ in answer.headers), page

    known, unknown = answers("ada@acme.example"), answers("eve@acme.example")
    assert known == unknown
    assert known[0] == 400


def test_tries_are_counted_down_and_then_one_waits(visitor: Visitor, acme: Any, ada: Any) -> None:
    path = f"/organizations/{acme.slug}/login"
    visitor.get(path)
    words = [said(visitor.post(path, email=ada.email, password="wrong")) for _ in range(2)]
    assert words == [
        "That e-mail and password don’t match. 2 tries left.",
        "That e-mail and password don’t match. 1 try left.",
    ]
    last = visitor.post(path, email=ada.email, password="wrong")
    assert last.headers["Retry-After"] == "60"
    waiting = visitor.post(path, email=ada.email, password=PASSWORD)
    assert waiting.status_code == 429
    assert int(waiting.headers["Retry-After"]) > 50
    assert said(waiting).startswith("Too many tries. Try again in")


@pytest.mark.parametrize(
    "fields", [{}, {"email": "ada@acme.example"}, {"password": "x"}, {"email": "", "password": ""}]
)
def test_a_form_without_both_fields_asks_for_them(
    visitor: Visitor, acme: Any, fields: dict[str, str]
) -> None:
    path = f"/organizations/{acme.slug}/login"
    visitor.get(path)
    answer = visitor.post(path, **fields)
    assert (answer.status_code, said(answer)) == (400, "Type both your e-mail and your password.")


def test_the_form_holds_what_programs_look_for(visitor: Visitor, acme: Any) -> None:
    page = visitor.get(f"/organizations/{acme.slug}/login").text
    for stable_id in ("username", "password", "login-submit"):
        assert f'id="{stable_id}"' in page
    assert 'autocomplete="username webauthn"' in page
    assert 'autocomplete="current-password"' in page


def test_the_page_wears_the_organization_s_words(make: Any, visitor: Visitor) -> None:
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


def test_a_suspended_organization_says_so(make: Any, visitor: Visitor, acme: Any, ada: Any) -> None:
    from app.operations.organizations.organizations import update_organization

    root = make.root()
    with visitor.http.application.app_context():
        update_organization(make.actor(root), acme.slug, {"status": "suspended"})
    path = f"/organizations/{acme.slug}/login"
    assert "is suspended" in said(visitor.get(path))
    answer = visitor.post(path, email=ada.email, password=PASSWORD)
    assert (answer.status_code, "is suspended" in said(answer)) == (403, True)
    assert visitor.cookie(make.cookie_name(acme)) is None


def test_the_front_door_leads_to_set_up_once_and_then_to_the_portal(make: Any, visitor: Visitor) -> None:
    assert visitor.get("/").location == "/setup"
    make.root()
    assert visitor.get("/").location == "/portal"
    assert visitor.get("/portal").location == "/login"


def test_an_unknown_organization_is_a_page_that_helps(visitor: Visitor) -> None:
    answer = visitor.get("/organizations/nobody/login")
    assert answer.status_code == 404
    assert 'id="error-title"' in answer.text
    assert 'href="/login"' in answer.text


def test_a_request_under_way_that_has_ended_is_400(visitor: Visitor, acme: Any) -> None:
    answer = visitor.get(f"/organizations/{acme.slug}/login?request=gth_ar_nothing")
    assert answer.status_code == 400
    assert "request_ended" in answer.text


def test_the_chooser_leads_to_the_organization_and_lists_sign_ins(
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
