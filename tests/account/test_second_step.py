"""Two-step verification at sign-in: no path to a session bypasses it (MF-6)."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from flask import Flask

from app.operations.organizations.settings import update_settings
from app.operations.sign_in.pending_sign_ins import SignInEnded
from app.operations.sign_in.second_factors import delete_authenticator_app
from app.operations.users.factor_resets import reset_user_factors
from app.operations.users.invitations import create_invitation
from app.operations.users.password_resets import issue_reset_link
from app.rules.authorization.authorization_request import challenge_of
from tests.account.conftest import Visitor
from tests.factories import PASSWORD
from tests.oauth.conftest import REDIRECT_URI, VERIFIER
from tests.support.applications import BASE_URL
from tests.support.authenticator import Authenticator, with_app
from tests.support.databases import Database

NEW = "a wholly different password"
HIDDEN = re.compile(r'type="hidden" name="([^"]+)" value="([^"]*)"')


def hidden(page: Any) -> dict[str, str]:
    """Return the hidden fields of the page's first form."""
    form = page.text[page.text.index("<form") :]
    return {name: unescape(value) for name, value in HIDDEN.findall(form[: form.index("</form>")])}


def verify(visitor: Visitor, page: Any, code: str) -> Any:
    """Submit the code form of the page."""
    fields = {name: value for name, value in hidden(page).items() if name != "csrf_token"}
    return visitor.post(urlsplit(page.request.path).path, **(fields | {"code": code}))


def request_of(client: Any, **more: str) -> dict[str, str]:
    return {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": REDIRECT_URI,
        "scope": "openid",
        "state": "s",
        "code_challenge": challenge_of(VERIFIER),
        "code_challenge_method": "S256",
    } | more


class World:
    """An organization, a user with an authenticator app, a client, and a browser."""

    def __init__(self, app: Flask, make: Any) -> None:
        self.app, self.make = app, make
        self.acme = make.organization(name="Acme", settings={"oauth": {"signing": {"algorithm": "ES256"}}})
        self.ada = make.user(self.acme, role="admin")
        self.client = make.client(self.acme, trust="first_party", redirect_uris=[REDIRECT_URI])
        self.phone = with_app(app, self.ada)
        self.visitor = Visitor(app)
        self.home = f"/organizations/{self.acme.slug}"

    def sign_in_at(self, location: str, password: str = PASSWORD) -> Any:
        """Submit the password on the page that the browser was sent to."""
        page = self.visitor.get(location)
        fields = {name: value for name, value in hidden(page).items() if name != "csrf_token"}
        return self.visitor.post(
            f"{self.home}/login", **(fields | {"email": self.ada.email, "password": password})
        )

    def is_signed_in(self) -> bool:
        """Return whether this browser can open the account."""
        return self.visitor.http.get(f"{self.home}/account/profile").status_code == 200


def from_the_sign_in_page(world: World) -> Any:
    return world.sign_in_at(f"{world.home}/login")


def from_the_account(world: World) -> Any:
    return world.sign_in_at(world.visitor.get(f"{world.home}/account/sessions").location)


def from_the_portal(world: World) -> Any:
    return world.sign_in_at(world.visitor.get(f"/portal/{world.acme.slug}/users?q=a").location)


def from_a_device(world: World) -> Any:
    return world.sign_in_at(world.visitor.get(f"{world.home}/device?user_code=BCDF-GHJK").location)


def from_an_app(world: World, **more: str) -> Any:
    asked = world.visitor.http.get("/oauth/authorize", query_string=request_of(world.client, **more))
    return world.sign_in_at(asked.location)


def after_a_reset(world: World) -> Any:
    """RP-3: a reset neither signs in nor bypasses the second factor."""
    with world.app.app_context():
        link = issue_reset_link(world.make.actor(world.acme), world.ada.id).link.removeprefix(BASE_URL)
    world.visitor.get(link)
    done = world.visitor.post(link, password=NEW)
    assert not world.is_signed_in()
    return world.sign_in_at(done.location, NEW)


def test_rejected_code_is_called_used_only_if_it_was(world: World) -> None:
    code = world.phone.code()
    for typed, accepted in ((code, True), ("000000", False), (code, False)):
        world.visitor = Visitor(world.app)
        page = world.visitor.get(from_the_sign_in_page(world).location)
        answer = verify(world.visitor, page, typed)
        assert answer.status_code == (303 if accepted else 400)
        if not accepted:
            assert ("Wait for the next one" in answer.text) is (typed == code)
            assert ("the clock of your device" in answer.text) is (typed != code)


PATHS: dict[str, tuple[Callable[[World], Any], str]] = {
    "the sign-in page": (from_the_sign_in_page, "/portal/{slug}"),
    "a page of the account": (from_the_account, "/organizations/{slug}/account/sessions"),
    "a page of the portal": (from_the_portal, "/portal/{slug}/users?q=a"),
    "a device": (from_a_device, "/organizations/{slug}/device?user_code=BCDF-GHJK"),
    "an app": (from_an_app, "/organizations/{slug}/oauth/authorize/resume?request="),
    "prompt=login": (
        lambda world: from_an_app(world, prompt="login"),
        "/organizations/{slug}/oauth/authorize/resume?request=",
    ),
    "max_age": (
        lambda world: from_an_app(world, max_age="0"),
        "/organizations/{slug}/oauth/authorize/resume?request=",
    ),
    "a reset": (after_a_reset, "/portal/{slug}"),
}


@pytest.fixture
def world(app: Flask, make: Any) -> World:
    return World(app, make)


@pytest.mark.parametrize("path", PATHS)
def test_every_sign_in_path_requires_the_second_step(world: World, database: Database, path: str) -> None:
    """MF-6: every sign-in path, for a user with a second factor."""
    begin, following = PATHS[path]
    step = begin(world)
    assert step.status_code == 303 and step.location.startswith(f"{world.home}/login/verify?sign_in=")
    assert database.count("sessions") == 0 and not world.is_signed_in()
    page = world.visitor.get(step.location)
    wrong = verify(world.visitor, page, "000000")
    assert wrong.status_code == 400 and "4 attempts left" in wrong.text and not world.is_signed_in()
    done = verify(world.visitor, page, world.phone.code())
    assert done.status_code == 303
    assert done.location.startswith(following.format(slug=world.acme.slug))
    assert world.is_signed_in()


@pytest.mark.parametrize("path", PATHS)
def test_every_sign_in_path_enforces_the_setup(app: Flask, make: Any, database: Database, path: str) -> None:
    """MF-6: the same paths, for a user without one after the grace period."""
    world = World(app, make)
    begin, following = PATHS[path]
    with app.app_context():
        reset_user_factors(make.actor(world.acme), world.ada.public_id)
    demand(world, "required", 0)
    step = begin(world)
    assert step.location.startswith(f"{world.home}/login/enrol?sign_in=") and not world.is_signed_in()
    page = world.visitor.get(step.location)
    assert 'id="enrol-now"' in page.text and 'id="enrol-later"' not in page.text
    fields = {name: value for name, value in hidden(page).items() if name != "csrf_token"}
    later = world.visitor.post(f"{world.home}/login/enrol", **(fields | {"later": "1"}))
    assert "/login/enrol?sign_in=" in later.location and not world.is_signed_in()
    page = world.visitor.get(later.location)
    phone = app_on(world, page)
    again = world.visitor.get(later.location)
    assert app_on(world, again).secret == phone.secret, "the page was loaded again"
    sign_in = hidden(again)["sign_in"]
    refused = world.visitor.post(f"{world.home}/login/enrol/passkey", sign_in=sign_in, answer="{}", name="x")
    assert app_on(world, refused).secret == phone.secret, "a passkey was refused"
    shown = verify(world.visitor, again, phone.shown())
    assert shown.status_code == 303
    page = shown.location
    shown = world.visitor.get(page)
    assert shown.text.count("<li><code>") == 10 and "<li><code>" not in world.visitor.get(page).text
    onward = re.search(r'id="codes-kept" href="([^"]+)"', shown.text)
    assert onward and unescape(onward[1]).startswith(following.format(slug=world.acme.slug))
    assert world.is_signed_in()


def test_invited_user_must_set_up_two_step_verification(world: World) -> None:
    """MF-6."""
    demand(world, "required", 0)
    with world.app.app_context():
        link = create_invitation(
            world.make.system(world.acme), world.acme.slug, email="new@acme.example"
        ).link
    assert link is not None
    path = link.removeprefix(BASE_URL)
    world.visitor.get(path)
    step = world.visitor.post(path, name="New", password=NEW)
    assert step.location.startswith(f"{world.home}/login/enrol?sign_in=") and not world.is_signed_in()


def test_optional_setup_shows_its_deadline(world: World, make: Any) -> None:
    demand(world, "required", 86400)
    bob = make.user(world.acme)
    step = world.visitor.sign_in(bob)
    page = world.visitor.get(step.location)
    assert 'id="enrol-until"' in page.text and "or skip it until then" in page.text
    fields = {name: value for name, value in hidden(page).items() if name != "csrf_token"}
    done = world.visitor.post(f"{world.home}/login/enrol", **(fields | {"later": "1"}))
    assert done.location == f"{world.home}/account" and world.is_signed_in()


def test_second_step_cannot_be_bypassed_by_adding_a_method(world: World) -> None:
    """MF-6: a sign-in that waits for verification cannot be used for enrolment, even with a forged form."""
    step = from_the_sign_in_page(world)
    token = parse_qs(urlsplit(step.location).query)["sign_in"][0]
    sent = world.visitor.get(f"{world.home}/login/enrol?sign_in={token}")
    assert sent.location.startswith(f"{world.home}/login/verify?")
    world.visitor.get(sent.location)
    for more in ({"later": "1"}, {"secret": "x", "code": "123456"}):
        answer = world.visitor.post(f"{world.home}/login/enrol", sign_in=token, **more)
        assert answer.location.startswith(f"{world.home}/login/verify?") and not world.is_signed_in()


def test_pending_sign_in_is_bound_to_its_browser(world: World) -> None:
    """MF-6: the URL alone, forwarded or read in a log, is useless."""
    step = from_the_sign_in_page(world)
    stranger = Visitor(world.app)
    assert stranger.get(step.location).location == f"{world.home}/login?ended=1"
    assert 'id="sign-in-ended"' in stranger.get(f"{world.home}/login?ended=1").text


def test_sign_in_that_ends_while_its_page_is_made_starts_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = from_the_sign_in_page(world)

    def end(*_: Any) -> None:
        raise SignInEnded

    monkeypatch.setattr("app.account.second_step.begin_passkey_second_factor", end)
    assert world.visitor.get(step.location).location == f"{world.home}/login?ended=1"


def test_fifth_wrong_code_ends_the_sign_in(world: World) -> None:
    """MF-3, through the pages."""
    step = from_the_sign_in_page(world)
    page = world.visitor.get(step.location)
    answers = [verify(world.visitor, page, "000000") for _ in range(5)]
    assert [answer.status_code for answer in answers] == [400] * 5
    assert "Start again with your password" in answers[-1].text and answers[-1].headers["Retry-After"] == "60"
    assert verify(world.visitor, page, world.phone.code()).location == f"{world.home}/login?ended=1"
    page = world.visitor.get(from_the_sign_in_page(world).location)
    waiting = verify(world.visitor, page, world.phone.code())
    assert waiting.status_code == 429 and int(waiting.headers["Retry-After"]) > 30


def test_recovery_code_signs_in(world: World) -> None:
    """MF-4."""
    step = from_the_sign_in_page(world)
    page = world.visitor.get(f"{step.location}&use=recovery")
    assert "Recovery code" in page.text and 'inputmode="numeric"' not in page.text
    assert verify(world.visitor, page, "").status_code == 400
    assert verify(world.visitor, page, world.phone.codes[0]).location == f"/portal/{world.acme.slug}"


def test_second_sign_in_replaces_the_pending_one(world: World) -> None:
    """A factor that an administrator removed meanwhile is no longer required."""
    step = from_the_sign_in_page(world)
    with world.app.app_context():
        delete_authenticator_app(world.acme.id, world.ada.id)
    assert world.visitor.get(step.location).location == f"{world.home}/login?ended=1"
    assert from_the_sign_in_page(world).location == f"/portal/{world.acme.slug}"


def demand(world: World, policy: str, grace: int) -> None:
    """Set the organization's policy."""
    document = {"authentication": {"mfa": {"policy": policy, "grace_period_seconds": grace}}}
    with world.app.app_context():
        update_settings(world.make.system(world.acme), world.acme.slug, document)


def app_on(world: World, page: Any) -> Authenticator:
    """Return an authenticator app with the key of the page."""
    found = re.search(r'id="app-key">([^<]+)<', page.text)
    assert found
    return Authenticator(world.app, world.ada, found[1].replace(" ", ""))
