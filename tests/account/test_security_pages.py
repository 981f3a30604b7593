"""The security pages: adding and removing methods, recovery codes, recent sign-in."""

from __future__ import annotations

import re
from typing import Any

import pytest
from flask import Flask

from app.models.session import Session
from app.operations.store import clock
from tests.account.conftest import Visitor
from tests.account.test_second_step import World, demand, from_the_sign_in_page, verify
from tests.support.authenticator import Authenticator, set_rows


@pytest.fixture
def world(app: Flask, make: Any) -> World:
    return World(app, make)


@pytest.fixture
def bob(make: Any, world: World) -> Any:
    return make.user(world.acme, email="bob@acme.example")


def test_authenticator_app_is_added_and_removed(world: World, bob: Any, visitor: Visitor) -> None:
    """MF-2, MF-4, SS-2: the session cookie changes after each step."""
    visitor.sign_in(bob)
    name, before = world.make.cookie_name(world.acme), None
    before = visitor.cookie(name)
    assert 'id="app-add"' in visitor.get(f"{world.home}/account/security").text
    page = visitor.get(f"{world.home}/account/security/app")
    key = re.search(r'id="app-key">([^<]+)<', page.text)
    assert key and "<svg" in page.text and "style=" not in page.text
    assert page.headers["Cache-Control"] == "no-store"
    again = visitor.get(f"{world.home}/account/security/app")
    assert key[0] in again.text, "a phone loads the page again after the app has the key"
    assert key[1] not in "".join(again.headers.getlist("Set-Cookie"))
    phone = Authenticator(world.app, bob, key[1].replace(" ", ""))
    sealed = re.search(r'name="secret" value="([^"]+)"', page.text)
    assert sealed
    secret = sealed[1]
    wrong = visitor.post(f"{world.home}/account/security/app", secret=secret, code="000000")
    assert wrong.status_code == 400 and phone.secret == re.search(r'id="app-key">([^<]+)<', wrong.text)[
        1
    ].replace(" ", "")
    done = visitor.post(f"{world.home}/account/security/app", secret=secret, code=phone.shown())
    assert done.location == f"{world.home}/account/security/recovery-codes"
    done = visitor.get(done.location)
    codes = re.findall(r"<li><code>([^<]+)</code>", done.text)
    assert len(codes) == 10 and f'download="recovery-codes-{world.acme.slug}.txt"' in done.text
    assert f"Recovery codes for {bob.email} at {world.acme.name}" in done.text
    assert visitor.cookie(name) not in {None, before}
    security = visitor.get(f"{world.home}/account/security").text
    assert "10 left" in security and codes[0] not in security and 'id="app-remove"' in security
    # The factor that was just verified counts for this sign-in, so it is not requested again.
    path = f"{world.home}/account/security/recovery-codes"
    assert "shown once" in visitor.get(path).text
    renewed = visitor.get(visitor.post(path).location)
    assert "<li><code>" in renewed.text and not set(codes) & set(
        re.findall(r"<li><code>([^<]+)</code>", renewed.text)
    )
    demand(world, "required", 0)
    kept = visitor.get(f"{world.home}/account/security/app/remove").text
    assert 'id="must-keep"' in kept and 'id="app-remove-confirm"' not in kept
    demand(world, "optional", 0)
    asked = visitor.get(f"{world.home}/account/security/app/remove").text
    assert "You will sign in without two-step verification." in asked and "codes will stop working" in asked
    gone = visitor.post(f"{world.home}/account/security/app/remove")
    assert gone.location == f"{world.home}/account/security"
    assert 'id="app-add"' in visitor.get(gone.location).text
    assert key[0] not in visitor.get(f"{world.home}/account/security/app").text


@pytest.mark.parametrize("page", ["app", "app/remove", "recovery-codes"])
def test_security_page_requires_a_recent_sign_in(world: World, page: str) -> None:
    """MF-2, SE-3: the sign-in leads back to the page."""
    step = world.visitor.get(from_the_sign_in_page(world).location)
    verify(world.visitor, step, world.phone.code())
    path = f"{world.home}/account/security/{page}"
    assert world.visitor.get(path).status_code == 200
    with world.app.app_context():
        set_rows(Session, authenticated_at=clock.now().replace(year=2020))
    sent = world.visitor.get(path)
    assert sent.status_code == 303 and "reauthenticate=1" in sent.location
    step = world.sign_in_at(sent.location)
    assert step.location.startswith(f"{world.home}/login/verify?")
    done = verify(world.visitor, world.visitor.get(step.location), world.phone.code())
    assert done.location == path and world.visitor.get(path).status_code == 200


def test_password_alone_cannot_change_verification_methods(world: World) -> None:
    """SE-3: a recent session from before the factor is not enough."""
    step = world.visitor.get(from_the_sign_in_page(world).location)
    verify(world.visitor, step, world.phone.code())
    with world.app.app_context():
        set_rows(Session, amr="pwd")
    sent = world.visitor.get(f"{world.home}/account/security/app/remove")
    assert sent.status_code == 303 and "reauthenticate=1" in sent.location
