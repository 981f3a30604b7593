"""Error pages of the account lead to a page where the user can continue."""

from __future__ import annotations

from typing import Any

import pytest

from app.rules.errors import Unavailable


@pytest.mark.parametrize(
    ("path", "way", "label", "title"),
    [
        ("/reset/unknown", "/forgot", "Request a new link", "This link no longer works"),
        ("/confirm/unknown", "/login", "Back to sign in", "This link no longer works"),
        ("/invite/unknown", "/login", "Back to sign in", "This link no longer works"),
        ("/register", "/login", "Back to sign in", "Something went wrong"),
    ],
)
def test_error_page_leads_to_a_useful_page(
    visitor: Any, acme: Any, path: str, way: str, label: str, title: str
) -> None:
    home = f"/organizations/{acme.slug}"
    answer = visitor.get(home + path)

    assert answer.status_code in {403, 409}
    assert f'id="error-title">{title}</h1>' in answer.text
    assert f'href="{home}{way}">{label}</a>' in answer.text


def test_expired_email_link_leads_to_a_new_one(visitor: Any, acme: Any, ada: Any) -> None:
    visitor.sign_in(ada)
    home = f"/organizations/{acme.slug}"
    answer = visitor.get(f"{home}/confirm-address/unknown")
    assert answer.status_code == 409 and "This link no longer works" in answer.text
    assert f'href="{home}/account/email">Request a new link</a>' in answer.text


def test_unknown_account_path_is_a_page(visitor: Any, acme: Any) -> None:
    for path in ("/forgot", "/reset/x", "/confirm/x", "/confirm-address/x", "/login/verify"):
        answer = visitor.http.delete(f"/organizations/{acme.slug}{path}", headers={"Accept": "text/html"})
        assert (answer.status_code, answer.mimetype) == (405, "text/html"), path


def test_subpage_error_leads_back_to_the_account(visitor: Any, acme: Any, ada: Any) -> None:
    visitor.sign_in(ada)
    base = f"/organizations/{acme.slug}/account"
    below = {
        "/profile": ("/email",),
        "/security": ("/password", "/security/app", "/security/recovery-codes", "/security/passkeys"),
    }
    for way, paths in below.items():
        for path in paths:
            page = visitor.get(base + path).text
            crumbs = page[page.index('class="crumbs"') : page.index("</ol>")]
            assert f'href="{base}{way}"' in crumbs, path
            # The entry of the navigation that it belongs to is marked.
            assert f'<a href="{base}{way}" aria-current="page">' in page, path


def test_unknown_organization_leads_to_the_chooser(visitor: Any, acme: Any) -> None:
    assert 'href="/login">Choose an organization</a>' in visitor.get("/organizations/none/login").text


def test_refused_sign_in_can_be_tried_again_with_its_destination(
    visitor: Any, acme: Any, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: Any, **_options: Any) -> None:
        raise Unavailable

    monkeypatch.setattr("app.account.sign_in.sign_in", refuse)
    path = f"/organizations/{acme.slug}/login"
    visitor.get(path)
    answer = visitor.post(f"{path}?next=/portal/{acme.slug}/clients", email=ada.email, password="x")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    assert f'href="{path}?next=%2Fportal%2F{acme.slug}%2Fclients">Try again</a>' in answer.text
