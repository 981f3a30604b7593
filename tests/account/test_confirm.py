"""Pages that confirm registrations and emails, and the cookie of recognized browsers."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from flask import Flask

from app.models.session import Session
from app.operations.sign_in import sign_in_limits
from app.operations.store import clock
from app.rules.sign_in.passwords import Lockout
from tests.account.conftest import Visitor
from tests.account.test_second_step import request_of
from tests.factories import PASSWORD
from tests.oauth.conftest import REDIRECT_URI
from tests.support.authenticator import set_rows
from tests.support.mail_server import Mailbox

Deliver = Callable[[], int]
NEW = "new@example.com"


@pytest.fixture
def open_to_all(make: Any) -> Any:
    return make.organization(name="Acme", settings={"authentication": {"registration": {"mode": "open"}}})


def register(visitor: Visitor, organization: Any, email: str = NEW) -> Any:
    path = f"/organizations/{organization.slug}/register"
    visitor.get(path)
    return visitor.post(path, name="New Person", email=email, password=PASSWORD)


def sign_in(visitor: Visitor, organization: Any, email: str = NEW) -> Any:
    path = f"/organizations/{organization.slug}/login"
    visitor.get(path)
    return visitor.post(path, email=email, password=PASSWORD)


def test_registration_with_confirmation_creates_an_account(
    visitor: Visitor, open_to_all: Any, box: Mailbox, deliver: Deliver
) -> None:
    """OI-5: opening the link does not use it, and confirming does not sign in."""
    answer = register(visitor, open_to_all)
    assert answer.status_code == 303
    page = visitor.get(answer.location).text
    assert f"Check your email at {NEW}. Open the link" in page and f'value="{NEW}"' in page
    assert f'id="register-again" href="/organizations/{open_to_all.slug}/register"' in page
    assert "Check your email. Open the link" in visitor.get(answer.location).text, "opened again later"
    assert sign_in(visitor, open_to_all).status_code == 400
    deliver()
    path = box.links()[0].removeprefix("http://localhost")
    for _ in range(2):
        assert NEW in visitor.get(path).text
    wrong = visitor.post(path, password="another password entirely")
    assert wrong.status_code == 400 and "Incorrect password" in wrong.text
    right = visitor.post(path, password=PASSWORD)
    assert right.location == f"/organizations/{open_to_all.slug}/login?confirmed=1"
    page = visitor.get(right.location).text
    assert 'id="confirmed"' in page and f'value="{NEW}"' in page
    assert visitor.get(path).status_code == 409
    assert sign_in(visitor, open_to_all).status_code == 303


def test_browser_of_another_user_shows_what_was_done_for_the_new_one(
    make: Any, visitor: Visitor, open_to_all: Any, box: Mailbox, deliver: Deliver
) -> None:
    ada = make.user(open_to_all)
    assert visitor.sign_in(ada).status_code == 303
    page = visitor.get(register(visitor, open_to_all).location).text
    assert 'id="registered"' in page and f'value="{NEW}"' in page and ada.email not in page
    deliver()
    path = box.links()[0].removeprefix("http://localhost")
    visitor.get(path)
    page = visitor.get(visitor.post(path, password=PASSWORD).location).text
    assert 'id="confirmed"' in page and ada.email not in page


@pytest.mark.parametrize("elsewhere", [False, True], ids=["same browser", "another browser"])
@pytest.mark.parametrize("way", ["register", "forgot", "register again"])
def test_emailed_link_leads_back_to_the_app(
    app: Flask,
    make: Any,
    visitor: Visitor,
    open_to_all: Any,
    box: Mailbox,
    deliver: Deliver,
    way: str,
    elsewhere: bool,
) -> None:
    home = f"/organizations/{open_to_all.slug}"
    client = make.client(open_to_all, redirect_uris=[REDIRECT_URI])
    if way != "register":
        make.user(open_to_all, email=NEW)
    asked = visitor.http.get("/oauth/authorize", query_string=request_of(client)).location
    links = re.findall(r'href="([^"]+)"', visitor.get(asked).text)
    [path] = [unescape(link) for link in links if f"{home}/{way.split()[0]}" in link]
    visitor.get(path)
    sent = visitor.post(path, name="New Person", email=NEW, password=PASSWORD).location
    assert urlsplit(asked).query in sent
    deliver()
    link = box.links()[0].removeprefix("http://localhost")
    browser = Visitor(app) if elsewhere else visitor
    page = browser.get(link)
    if way == "register again":
        login = page.location if elsewhere else link
    else:
        login = browser.post(link, password=PASSWORD).location
    assert login.startswith(f"{home}/login") and (urlsplit(asked).query in login) is not elsewhere
    browser.get(login)
    done = browser.post(login, email=NEW, password=PASSWORD).location
    assert done.startswith(f"{home}/account" if elsewhere else f"{home}/oauth/authorize/resume?request=")


def test_en1_registration_of_known_and_unknown_email_looks_the_same(
    app: Flask, make: Any, open_to_all: Any, box: Mailbox
) -> None:
    """Compares status, headers and page, at the registration and at the sign-in after it."""
    make.user(open_to_all, email="ada@example.com")

    def answers(email: str) -> list[tuple[int, list[str], str]]:
        visitor = Visitor(app)
        found = [register(visitor, open_to_all, email)]
        found.append(visitor.get(found[0].location))
        path = f"/organizations/{open_to_all.slug}/login"
        found.append(visitor.post(path, email=email, password="wrong"))
        return [
            (
                answer.status_code,
                sorted(name for name, _ in answer.headers),
                re.sub(r"""(value|data-[a-z]+)=("[^"]*"|'[^']*')|req_\w+""", "", answer.text).replace(
                    email, ""
                ),
            )
            for answer in found
        ]

    assert answers("ada@example.com") == answers("eve@example.com")


def test_registration_without_mail_server_names_the_administrator(visitor: Visitor, open_to_all: Any) -> None:
    answer = register(visitor, open_to_all)
    assert "an administrator of Acme will review your request" in visitor.get(answer.location).text


@pytest.mark.parametrize("page", ["confirm", "confirm-address"])
@pytest.mark.parametrize("token", ["x", "gth_ev_00000000" + "A" * 43 + "00000000", "%00", "a" * 3000])
def test_invalid_confirmation_link_changes_nothing(
    visitor: Visitor, acme: Any, ada: Any, page: str, token: str
) -> None:
    visitor.sign_in(ada)
    answer = visitor.get(f"/organizations/{acme.slug}/{page}/{token}")
    assert answer.status_code == 409
    assert "has expired" in answer.text


def test_email_is_changed_by_the_link(
    visitor: Visitor, acme: Any, ada: Any, box: Mailbox, deliver: Deliver
) -> None:
    visitor.sign_in(ada)
    page = f"/organizations/{acme.slug}/account/email"
    assert 'id="email-change"' in visitor.get(f"/organizations/{acme.slug}/account/profile").text
    visitor.get(page)
    assert visitor.post(page, email="nonsense").status_code == 400
    assert visitor.post(page, email=NEW).location == page
    assert f"We sent a link to <strong>{NEW}</strong>" in visitor.get(page).text, "a typo shows"
    deliver()
    link = box.links()[0].removeprefix("http://localhost")
    assert NEW in visitor.get(link).text and ada.email in visitor.get(page).text
    visitor.get(link)
    profile = f"/organizations/{acme.slug}/account/profile"
    assert visitor.post(link).location == profile
    assert NEW in visitor.get(profile).text, "still signed in here"


def test_email_page_requires_a_recent_sign_in_before_anything_is_typed(
    app: Flask, visitor: Visitor, acme: Any, ada: Any, box: Mailbox, deliver: Deliver
) -> None:
    """The link in the email needs none."""
    visitor.sign_in(ada)
    page = f"/organizations/{acme.slug}/account/email"
    visitor.get(page)
    visitor.post(page, email=NEW)
    deliver()
    with app.app_context():
        set_rows(Session, authenticated_at=clock.now().replace(year=2020))
    assert "reauthenticate=1" in visitor.get(page).location
    link = box.links()[0].removeprefix("http://localhost")
    visitor.get(link)
    done = visitor.post(link).location
    assert NEW in visitor.get(done).text


def test_oi5_email_link_requires_the_right_account(
    app: Flask, make: Any, visitor: Visitor, acme: Any, ada: Any, box: Mailbox, deliver: Deliver
) -> None:
    """Someone who reads the email cannot verify it for another account."""
    visitor.sign_in(ada)
    page = f"/organizations/{acme.slug}/account/email"
    visitor.get(page)
    visitor.post(page, email=NEW)
    deliver()
    link = box.links()[0].removeprefix("http://localhost")
    stranger = Visitor(app)
    assert stranger.get(link).location == f"/organizations/{acme.slug}/login?next={quote(link, safe='')}"
    note = 'id="verifies-email"'
    assert note in stranger.get(stranger.get(link).location).text
    assert note in stranger.post(f"/organizations/{acme.slug}/login", email=NEW, password="x", next=link).text
    assert note not in stranger.get(f"/organizations/{acme.slug}/login").text
    assert "/login" in stranger.post(link).location
    stranger.sign_in(make.user(acme))
    answer = stranger.get(link)
    assert answer.status_code == 403 and "another account" in answer.text
    way = unescape(re.findall(r'href="([^"]*)">Use another account', answer.text)[0])
    other = stranger.get(way)
    assert other.status_code == 200 and f'name="next" value="{link}"' in other.text
    stranger.get(page)
    assert stranger.post(link).status_code == 403
    assert ada.email in visitor.get(page).text
    elsewhere = Visitor(app)
    elsewhere.sign_in(ada)
    elsewhere.get(link)
    assert elsewhere.post(link).location == f"/organizations/{acme.slug}/account/profile"


def test_recognized_browser_cookie_lasts_a_year_and_signs_nobody_in(
    app: Flask, make: Any, visitor: Visitor, acme: Any, ada: Any
) -> None:
    """LK-1, SS-3."""
    answer = visitor.sign_in(ada)
    name = f"gatehouse-known-{acme.id}"
    (cookie,) = [value for value in answer.headers.getlist("Set-Cookie") if value.startswith(name)]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Max-Age=31536000" in cookie
    value = cookie.split(";")[0].partition("=")[2]
    stranger = Visitor(app)
    stranger.http.set_cookie(name, value, domain="localhost")
    stranger.http.set_cookie(make.cookie_name(acme), value, domain="localhost")
    assert stranger.get(f"/organizations/{acme.slug}/account/profile").status_code == 303
    assert ada.email not in stranger.get("/login").text


def test_recognized_browser_is_removed(visitor: Visitor, acme: Any, ada: Any) -> None:
    visitor.sign_in(ada)
    page = f"/organizations/{acme.slug}/account/sessions"
    found = re.search(r"known/(kbr_\w+)/forget", visitor.get(page).text)
    assert found is not None
    assert visitor.post(f"{page}/known/{found[1]}/forget").location == page
    assert 'id="known-browsers"' not in visitor.get(page).text
    assert visitor.post(f"{page}/known/{found[1]}/forget").status_code == 404


def test_capped_sign_in_explains_alternatives(
    visitor: Visitor, acme: Any, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LK-1: the page names the remaining ways to sign in."""
    monkeypatch.setattr(
        sign_in_limits,
        "_ACCOUNT_CAP",
        Lockout(1, sign_in_limits._MONTH, sign_in_limits._MONTH, sign_in_limits._MONTH),
    )
    path = f"/organizations/{acme.slug}/login"
    visitor.get(path)
    visitor.post(path, email=ada.email, password="wrong")
    answer = visitor.post(path, email=ada.email, password=PASSWORD)
    assert answer.status_code == 429 and int(answer.headers["Retry-After"]) > 86_400
    assert "reset your password with a link" in answer.text
