"""Sessions of several organizations in one browser, CSRF tokens and planted cookies."""

from __future__ import annotations

import re
from io import BytesIO
from typing import Any

import pytest
from flask import Flask
from wtforms import PasswordField

from app.web.error_pages import CONFIDENTIAL
from app.web.forms import PageForm
from tests.account.conftest import SAME_ORIGIN, Visitor
from tests.factories import PASSWORD
from tests.support.cases import each

pytestmark = pytest.mark.either


@pytest.fixture
def globex(make: Any) -> Any:
    return make.organization(name="Globex")


def test_sessions_of_two_organizations_are_independent(
    make: Any, visitor: Visitor, acme: Any, globex: Any, ada: Any
) -> None:
    """TN-16."""
    bob = make.user(globex, email="bob@globex.example", name="Bob")
    visitor.sign_in(ada)
    visitor.sign_in(bob)
    at_acme, at_globex = (f"/organizations/{slug}/account/profile" for slug in (acme.slug, globex.slug))
    assert "ada@acme.example" in visitor.get(at_acme).text
    assert "bob@globex.example" not in visitor.get(at_acme).text
    assert "bob@globex.example" in visitor.get(at_globex).text
    visitor.post(f"/organizations/{globex.slug}/logout")
    assert visitor.get(at_globex).location.startswith(f"/organizations/{globex.slug}/login?next=")
    assert visitor.get(at_acme).status_code == 200


def test_session_is_not_valid_at_another_organization(
    make: Any, visitor: Visitor, acme: Any, globex: Any, ada: Any
) -> None:
    visitor.sign_in(ada)
    token = visitor.cookie(make.cookie_name(acme))
    assert token is not None
    assert visitor.get(f"/organizations/{globex.slug}/account/profile").status_code == 303
    visitor.http.set_cookie(make.cookie_name(globex), token, domain="localhost")
    assert visitor.get(f"/organizations/{globex.slug}/account/profile").status_code == 303


def test_root_administrator_has_no_account_pages_elsewhere(make: Any, visitor: Visitor, acme: Any) -> None:
    boss = make.user(make.root(), role="admin")
    visitor.sign_in(boss)
    assert visitor.get(f"/organizations/{acme.slug}/account/profile").status_code == 303


def test_planted_session_is_revoked_by_a_new_sign_in(make: Any, app: Flask, acme: Any, ada: Any) -> None:
    """SS-2: the attacker's own valid cookie, planted in the victim's browser, is replaced and revoked."""
    eve, victim = make.user(acme, email="eve@acme.example"), Visitor(app)
    planted = make.sign_in(eve, victim.http).token
    path = f"/organizations/{acme.slug}/login?reauthenticate=1"
    victim.get(path)
    victim.post(path, email=ada.email, password=PASSWORD)
    assert victim.cookie(make.cookie_name(acme)) not in (None, planted)
    attacker = Visitor(app)
    attacker.http.set_cookie(make.cookie_name(acme), planted, domain="localhost")
    assert attacker.get(f"/organizations/{acme.slug}/account/profile").status_code == 303


def test_csrf_token_changes_at_sign_in_and_sign_out(visitor: Visitor, acme: Any, ada: Any) -> None:
    visitor.get(f"/organizations/{acme.slug}/login")
    before = visitor.cookie("gatehouse")
    visitor.sign_in(ada)
    visitor.get(f"/organizations/{acme.slug}/account/profile")
    during = visitor.cookie("gatehouse")
    old = visitor.token()
    visitor.post(f"/organizations/{acme.slug}/logout")
    assert before != during
    answer = visitor.http.post(
        f"/organizations/{acme.slug}/login",
        data={"csrf_token": old, "email": ada.email, "password": PASSWORD},
        headers={"Sec-Fetch-Site": "same-origin"},
    )
    assert answer.status_code == 400
    assert "form_expired" in answer.text
    assert "Try again</a>" not in answer.text, "without a page to return to"


@pytest.mark.parametrize(
    ("referrer", "has_button"),
    [("http://localhost", True), ("https://evil.example", False), ("http://localhost.evil.example", False)],
)
def test_expired_form_leads_back_to_its_page(
    app: Flask, acme: Any, ada: Any, referrer: str, has_button: bool
) -> None:
    """Two tabs showed the sign-in page, and the user signed in at the other one."""
    visitor = Visitor(app)
    path = f"/organizations/{acme.slug}/login"
    visitor.get(path)
    old = visitor.token()
    visitor.sign_in(ada)
    page = f"{path}?redirect_uri=https%3A%2F%2Fapp.example%2Fcallback"
    answer = visitor.http.post(
        path,
        data={"csrf_token": old, "email": ada.email, "password": PASSWORD},
        headers={**SAME_ORIGIN, "Referer": referrer + page},
    )
    assert answer.status_code == 400 and "form_expired" in answer.text
    assert (f'href="{page}">Try again</a>' in answer.text) is has_button
    assert ("Try again</a>" in answer.text) is has_button


@each(
    ("fields", "headers", "is_kept"),
    [
        ({"name": "Ada <b>", "tag": ["one", "two"], "address_postal_code": "1"}, SAME_ORIGIN, True),
        ({"name": "Ada <b>"}, {"Origin": "http://localhost"}, False),
        ({"name": "Ada <b>"}, {}, False),
        ({"name": "Ada <b>", "current_password": PASSWORD}, SAME_ORIGIN, False),
        ({"token": "gth_at_acme"}, SAME_ORIGIN, False),
        ({"name": "Ada <b>", "photo": (BytesIO(b"PNG"), "ada.png")}, SAME_ORIGIN, False),
    ],
)
def test_expired_form_keeps_what_the_user_entered(
    app: Flask, acme: Any, ada: Any, fields: dict[str, Any], headers: dict[str, str], is_kept: bool
) -> None:
    """The user signed in at another organization meanwhile. Passwords, tokens and files aren't repeated."""
    visitor = Visitor(app)
    visitor.sign_in(ada)
    path = f"/organizations/{acme.slug}/account/profile"
    data = {"csrf_token": "old", **fields}
    visitor.page = answer = visitor.http.post(path, data=data, headers=headers)
    assert answer.status_code == 400 and "form_expired" in answer.text
    assert ('id="resend"' in answer.text) is is_kept and PASSWORD not in answer.text
    assert answer.text.count('name="csrf_token"') == is_kept
    if is_kept:
        assert f"signed in as {ada.email} now" in answer.text, "perhaps another user filled in the form"
        assert '<form method="post">' in answer.text, (
            "goes to the URL of the page, with its encoded characters"
        )
        assert re.findall(r'type="hidden" name="(?!csrf_token)(.*?)" value="(.*?)"', answer.text) == [
            ("name", "Ada &lt;b&gt;"),
            ("tag", "one"),
            ("tag", "two"),
            ("address_postal_code", "1"),
        ]
        assert visitor.post(path, name="Ada <b>").status_code == 303, "with the token of the error page"
    stranger = Visitor(app).http
    for unknown in (path, path.replace(acme.slug, "nobody")):
        page = stranger.post(unknown, data={"csrf_token": "old", "name": "Ada"}, headers=SAME_ORIGIN)
        assert page.status_code == 400 and "resend" not in page.text


def test_no_password_of_a_form_is_repeated(app: Flask) -> None:
    """A page that repeats what was entered in an expired form knows each field by its name."""
    found, forms = set(), [PageForm]
    while forms:
        form = forms.pop()
        forms += form.__subclasses__()
        fields = {name: getattr(made, "field_class", object) for name, made in vars(form).items()}
        found |= {name for name, kind in fields.items() if issubclass(kind, PasswordField)}
    assert {"client_secret", "new_password"} <= found <= CONFIDENTIAL


FORMS = (
    *("login", "logout", "account/profile", "account/password", "account/sessions/end-others"),
    "oauth/authorize/decision",
)


@each("form", FORMS)
@each(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "nonsense"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
    ],
)
def test_form_from_another_site_is_rejected(
    app: Flask, acme: Any, ada: Any, form: str, headers: dict[str, str]
) -> None:
    """CF-1."""
    visitor = Visitor(app)
    visitor.sign_in(ada)
    visitor.get(f"/organizations/{acme.slug}/account/password")
    answer = visitor.post(
        f"/organizations/{acme.slug}/{form}", headers=headers, email=ada.email, password=PASSWORD
    )
    assert answer.status_code == 400
    assert "form_expired" in answer.text
    assert visitor.get(f"/organizations/{acme.slug}/account/profile").status_code == 200


@each("form", FORMS)
@each("token", [None, "", "x", "gth_ss_x"])
def test_form_without_csrf_token_is_rejected(
    app: Flask, acme: Any, ada: Any, form: str, token: str | None
) -> None:
    visitor = Visitor(app)
    visitor.sign_in(ada)
    data = {} if token is None else {"csrf_token": token}
    answer = visitor.http.post(
        f"/organizations/{acme.slug}/{form}", data=data, headers={"Sec-Fetch-Site": "same-origin"}
    )
    assert answer.status_code == 400
    assert visitor.get(f"/organizations/{acme.slug}/account/profile").status_code == 200


def test_csrf_token_of_another_browser_is_rejected(app: Flask, visitor: Visitor, acme: Any, ada: Any) -> None:
    """Login CSRF: a form prepared in the attacker's browser does not work in the victim's."""
    attacker = Visitor(app)
    attacker.get(f"/organizations/{acme.slug}/login")
    visitor.get(f"/organizations/{acme.slug}/login")
    answer = visitor.post(
        f"/organizations/{acme.slug}/login", csrf_token=attacker.token(), email=ada.email, password=PASSWORD
    )
    assert answer.status_code == 400


@pytest.mark.parametrize("headers", [{}, {"Sec-Fetch-Site": "none"}, {"Origin": "http://localhost"}])
def test_form_without_sec_fetch_site_is_accepted(
    visitor: Visitor, acme: Any, ada: Any, headers: dict[str, str]
) -> None:
    path = f"/organizations/{acme.slug}/login"
    visitor.get(path)
    assert visitor.post(path, headers=headers, email=ada.email, password=PASSWORD).status_code == 303


@pytest.mark.parametrize("value", ["", "x", "e30", "e30.x", "a.b.c", "gth_ss_" + "0" * 59])
def test_forged_anonymous_cookie_is_ignored(visitor: Visitor, acme: Any, value: str) -> None:
    visitor.http.set_cookie("gatehouse", value, domain="localhost")
    assert visitor.get(f"/organizations/{acme.slug}/login").status_code == 200


def test_api_responses_neither_read_nor_set_cookies(visitor: Visitor, acme: Any, ada: Any) -> None:
    """CF-3: the API and the token endpoint do not use cookies."""
    visitor.sign_in(ada)
    for path in ("/clients", f"/organizations/{acme.slug}/settings"):
        answer = visitor.http.get(path)
        assert answer.status_code == 401
        assert "Set-Cookie" not in answer.headers
    answer = visitor.http.post("/oauth/token", data={"grant_type": "client_credentials"})
    assert "Set-Cookie" not in answer.headers
