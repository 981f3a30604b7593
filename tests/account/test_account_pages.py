"""Account pages, signing out and invitations."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from flask import Flask

from app.operations.directory.users import get_user
from app.operations.sign_in.sessions import find_session
from app.operations.users.invitations import create_invitation
from app.operations.users.user_changes import update_user
from tests.account.conftest import SAME_ORIGIN, Visitor
from tests.factories import PASSWORD

NEW = "nine small otters in a kiln"
PAGES = ("profile", "apps", "sessions", "password", "activity")


@pytest.fixture
def at_home(visitor: Visitor, ada: Any) -> Visitor:
    visitor.sign_in(ada)
    return visitor


def url(organization: Any, page: str = "") -> str:
    return f"/organizations/{organization.slug}/account{'/' + page if page else ''}"


@pytest.mark.parametrize("page", PAGES)
def test_account_pages_without_session_redirect_to_sign_in(
    at_home: Visitor, app: Flask, acme: Any, page: str
) -> None:
    assert at_home.get(url(acme, page)).status_code == 200
    stranger = Visitor(app).get(url(acme, page))
    assert (
        stranger.location
        == f"/organizations/{acme.slug}/login?next=%2Forganizations%2F{acme.slug}%2Faccount%2F{page}"
    )


def test_profile_name_is_saved_and_invalid_name_is_explained(at_home: Visitor, acme: Any, ada: Any) -> None:
    assert 'id="email-change"' not in at_home.get(url(acme, "profile")).text, "no mail server to verify it"
    wrong = at_home.post(url(acme, "profile"), name="x" * 101)
    assert wrong.status_code == 400
    assert 'id="name-error"' in wrong.text
    assert 'aria-describedby="name-hint name-error"' in wrong.text
    done = at_home.post(url(acme, "profile"), name="Ada King")
    assert done.status_code == 303
    assert f"Ada King<small>{ada.email}</small>" in at_home.get(done.location).text


def test_profile_without_permission_has_no_form(make: Any, app: Flask) -> None:
    acme = make.organization(settings={"user_permissions": {"members_can_edit_profile": False}})
    visitor = Visitor(app)
    visitor.sign_in(make.user(acme, email="ada@acme.example"))
    assert 'name="name"' not in visitor.get(url(acme, "profile")).text
    assert visitor.post(url(acme, "profile"), name="Eve").status_code == 403


def test_user_edits_only_attributes_that_users_may_edit(make: Any, app: Flask) -> None:
    tool = {"key": "tool", "name": "Favorite tool", "type": "string", "editable_by": "user", "required": True}
    grade = {"key": "grade", "name": "Grade", "type": "integer", "required": True}
    acme = make.organization(settings={"user_profile": {"attributes": [tool, grade]}})
    user, visitor = make.user(acme), Visitor(app)
    with app.app_context():
        update_user(make.actor(acme), user.public_id, {"attributes": {"tool": "saw", "grade": 3}})
    visitor.sign_in(user)
    page = visitor.get(url(acme, "profile")).text
    assert 'name="attributes.tool"' in page and "<dt>Grade</dt><dd>3</dd>" in page
    assert 'name="attributes.grade"' not in page
    sent = {"name": "Ada", "attributes.tool": "axe", "attributes.grade": "9"}
    assert visitor.post(url(acme, "profile"), **sent).status_code == 303
    empty = visitor.post(url(acme, "profile"), name="Ada", **{"attributes.tool": ""})
    assert empty.status_code == 400 and "Favorite tool is required." in empty.text
    with app.app_context():
        assert get_user(acme.id, user.id).attributes == {"tool": "axe", "grade": 3}


def test_password_change_ends_other_sessions(
    make: Any, at_home: Visitor, app: Flask, acme: Any, ada: Any
) -> None:
    elsewhere = make.sign_in(ada).token
    at_home.get(url(acme, "password"))
    wrong = at_home.post(url(acme, "password"), current_password="wrong", new_password=NEW)
    assert (wrong.status_code, 'id="current_password-error"' in wrong.text) == (400, True)
    done = at_home.post(url(acme, "password"), current_password=PASSWORD, new_password=NEW)
    assert done.status_code == 303
    assert "Password changed. You were signed out" in at_home.get(done.location).text
    with app.app_context():
        assert find_session(elsewhere) is None
    assert Visitor(app).sign_in(ada, NEW).status_code == 303


def test_password_managers_find_the_password_page(make: Any, visitor: Visitor, acme: Any, ada: Any) -> None:
    """Without a single organization to which it belongs, the user chooses one."""
    path = "/.well-known/change-password"
    chooser = "/login?to=password"
    password_page = f"/organizations/{acme.slug}/account/password"
    assert visitor.get(path).location == chooser
    assert 'name="to" value="password"' in visitor.get(chooser).text
    chosen = visitor.get(f"{chooser}&organization={acme.slug}").location
    assert parse_qs(urlsplit(chosen).query) == {"next": [password_page]}
    visitor.sign_in(ada)
    assert visitor.get(visitor.get(path).location).status_code == 200
    assert visitor.get(path).location == password_page
    make.sign_in(make.user(make.organization()), visitor.http)
    assert visitor.get(path).location == chooser
    assert f'href="{password_page}"' in visitor.get(chooser).text


def test_password_never_appears_in_a_page(at_home: Visitor, acme: Any) -> None:
    at_home.get(url(acme, "password"))
    wrong = at_home.post(
        url(acme, "password"), current_password=PASSWORD, new_password="short-" + PASSWORD[:3]
    )
    assert PASSWORD not in wrong.text
    assert "short-" not in wrong.text


def test_sessions_are_listed_and_ended(make: Any, at_home: Visitor, app: Flask, acme: Any, ada: Any) -> None:
    token = make.sign_in(ada).token
    with app.app_context():
        public_id = find_session(token).public_id
    page = at_home.get(url(acme, "sessions")).text
    assert page.partition('id="known-browsers"')[0].count("This browser") == 1
    assert public_id in page
    assert at_home.post(url(acme, f"sessions/{public_id}/end")).status_code == 303
    with app.app_context():
        assert find_session(token) is None
    assert at_home.post(url(acme, f"sessions/{public_id}/end")).status_code == 404
    assert at_home.post(url(acme, "sessions/ses_nonsense/end")).status_code == 404


def test_ending_the_current_session_signs_out(make: Any, at_home: Visitor, app: Flask, acme: Any) -> None:
    with app.app_context():
        own = find_session(at_home.cookie(make.cookie_name(acme))).public_id
    at_home.get(url(acme, "sessions"))
    answer = at_home.post(url(acme, f"sessions/{own}/end"))
    assert 'id="logged-out"' in at_home.get(answer.location).text
    assert at_home.cookie(make.cookie_name(acme)) is None


def test_other_sessions_are_ended_at_once(
    make: Any, at_home: Visitor, app: Flask, acme: Any, ada: Any
) -> None:
    token = make.sign_in(ada).token
    at_home.get(url(acme, "sessions"))
    at_home.post(url(acme, "sessions/end-others"))
    with app.app_context():
        assert find_session(token) is None
    assert at_home.get(url(acme, "sessions")).status_code == 200


def test_sign_out_needs_a_post(make: Any, at_home: Visitor, app: Flask, acme: Any) -> None:
    """CF-4, SS-5."""
    token = at_home.cookie(make.cookie_name(acme))
    path = f"/organizations/{acme.slug}/logout"
    assert 'id="logout-confirm"' in at_home.get(path).text
    with app.app_context():
        assert find_session(token) is not None
    assert at_home.post(path).location == path
    assert 'id="logged-out"' in at_home.get(path).text
    with app.app_context():
        assert find_session(token) is None


def test_sign_out_without_session_succeeds(visitor: Visitor, acme: Any) -> None:
    visitor.get(f"/organizations/{acme.slug}/login")
    assert visitor.post(f"/organizations/{acme.slug}/logout").status_code == 303


def test_invitation_is_accepted_once_and_signs_in(make: Any, app: Flask, acme: Any) -> None:
    with app.app_context():
        link = create_invitation(
            make.actor(acme), acme.slug, email="grace@acme.example", name="Grace", role="developer"
        ).link
    path = link.removeprefix(app.config["TEST_BASE_URL"])
    grace = Visitor(app)
    assert "grace@acme.example" in grace.get(path).text
    weak = grace.post(path, name="Grace", password="password1234")
    assert (weak.status_code, 'id="password-error"' in weak.text) == (400, True)
    assert 'id="signed-in"' not in weak.text
    done = grace.post(path, name="Grace Hopper", password=NEW)
    assert (done.status_code, done.location) == (303, f"/portal/{acme.slug}")
    assert "Grace Hopper" in grace.get(url(acme, "profile")).text
    ended = Visitor(app).get(path)
    assert (ended.status_code, "invitation_ended" in ended.text) == (409, True)


def test_invitation_tells_whom_joining_signs_out(
    make: Any, at_home: Visitor, app: Flask, acme: Any, ada: Any
) -> None:
    with app.app_context():
        link = create_invitation(make.actor(acme), acme.slug, email="grace@acme.example").link
    path = link.removeprefix(app.config["TEST_BASE_URL"])
    assert f"signed in as <strong>{ada.email}</strong>" in at_home.get(path).text
    assert at_home.post(path, name="Grace", password=NEW).status_code == 303
    assert "grace@acme.example" in at_home.get(url(acme, "profile")).text


def test_invitation_at_another_organization_is_not_found(make: Any, app: Flask, acme: Any) -> None:
    globex = make.organization()
    with app.app_context():
        link = create_invitation(make.actor(acme), acme.slug, email="grace@acme.example").link
    path = link.removeprefix(app.config["TEST_BASE_URL"]).replace(acme.slug, globex.slug)
    assert Visitor(app).get(path).status_code == 409


@pytest.mark.parametrize("token", ["x", "gth_iv_" + "0" * 59, "%00", "a" * 300])
def test_invalid_invitation_token_shows_a_page(visitor: Visitor, acme: Any, token: str) -> None:
    assert visitor.get(f"/organizations/{acme.slug}/invite/{token}").status_code in (404, 409)


def test_form_of_an_ended_session_says_that_nothing_was_changed(
    make: Any, at_home: Visitor, acme: Any
) -> None:
    """The sign-in leads back to the page with the form."""
    at_home.get(url(acme, "profile"))
    at_home.http.delete_cookie(make.cookie_name(acme), domain="localhost")
    sent = at_home.post(url(acme, "profile"), name="Ada King")
    assert parse_qs(urlsplit(sent.location).query) == {"next": [url(acme, "profile")], "unsaved": ["1"]}
    page = at_home.get(sent.location)
    assert 'id="unsaved"' in page.text and f'name="next" value="{url(acme, "profile")}"' in page.text


@pytest.mark.parametrize(
    ("path", "referrer", "following"),
    [
        ("account/sessions/end-others", "account/sessions", "account/sessions"),
        ("account/security/passkeys/x/remove", "account/security/passkeys/x", "account/security/passkeys/x"),
        ("account/sessions/end-others", "", "account"),
        ("account/sessions/end-others", "login", "account"),
    ],
)
def test_sign_in_after_a_button_leads_to_its_page(
    make: Any, at_home: Visitor, acme: Any, path: str, referrer: str, following: str
) -> None:
    """A path that only accepts POST would be "Page not found" after the sign-in."""
    home = f"/organizations/{acme.slug}"
    at_home.get(url(acme, "sessions"))
    at_home.http.delete_cookie(make.cookie_name(acme), domain="localhost")
    headers = {**SAME_ORIGIN, "Referer": f"http://localhost{home}/{referrer}"}
    sent = at_home.post(f"{home}/{path}", headers=headers)
    assert parse_qs(urlsplit(sent.location).query)["next"] == [f"{home}/{following}"]


def test_profile_of_another_tab_is_not_overwritten_unseen(at_home: Visitor, acme: Any) -> None:
    """The form says what happened, keeps what was typed, and can then be saved."""
    path = url(acme, "profile")
    version = _version_of(at_home.get(path))
    assert at_home.post(path, name="Ada", nickname="first", version=version).status_code == 303
    late = {"name": "Ada", "preferred_username": "second"}
    page = at_home.post(path, **late, version=version)
    assert page.status_code == 412 and "Someone changed your profile" in page.text
    assert 'value="second"' in page.text
    assert 'value="first"' in at_home.get(path).text
    assert at_home.post(path, **late, version=_version_of(page)).status_code == 303


def _version_of(page: Any) -> str:
    found = re.search(r'name="version" value="(\d+)"', page.text)
    assert found is not None
    return found[1]
