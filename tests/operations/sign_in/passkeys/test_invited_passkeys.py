"""Accepting an invitation with a passkey where passwords are disabled (MF-5)."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

from app.operations.directory.users import find_user_by_email
from app.operations.sign_in.passkey_sign_in import begin_passkey_sign_in
from app.operations.sign_in.passkeys import InvalidChallenge
from app.operations.sign_in.sessions import find_session
from app.operations.sign_in.sign_in import SignedIn
from app.operations.users.invitations import (
    InvitationEnded,
    accept_invitation,
    accept_invitation_with_passkey,
    begin_invited_passkey,
    create_invitation,
    find_invitation,
)
from app.rules.actor import Actor
from app.rules.errors import Conflict, InvalidInput
from tests.account.conftest import Visitor
from tests.factories import Factory
from tests.operations.sign_in.passkeys.conftest import ELSEWHERE, HERE, sign_in
from tests.support.databases import Database
from tests.support.security_key import PRESENT, Authenticator

pytestmark = pytest.mark.usefixtures("context")
WITHOUT = {"authentication": {"password": {"enabled": False}, "mfa": {"policy": "required"}}}


@pytest.fixture
def acme(make: Factory) -> Any:
    return make.organization(settings=WITHOUT)


@pytest.fixture
def token(make: Factory, acme: Any) -> str:
    link = create_invitation(make.actor(acme), acme.slug, email="grace@acme.example", role="developer").link
    assert link is not None
    return link.rpartition("/")[2]


def asked(acme: Any, token: str, browser: Any = HERE) -> Any:
    found = find_invitation(token)
    assert found is not None
    return begin_invited_passkey(Actor.anonymous(acme.id), found, browser)


def join(acme: Any, token: str, answer: str, name: str = "Grace", browser: Any = HERE) -> Any:
    found = find_invitation(token)
    if found is None:
        raise InvitationEnded("ended")
    return accept_invitation_with_passkey(
        Actor.anonymous(acme.id, "192.0.2.9"), found, token, answer, name, browser
    )


def test_invited_user_signs_in_with_the_passkey(acme: Any, token: str, database: Database) -> None:
    options = asked(acme, token)
    assert options["authenticatorSelection"] == {"residentKey": "required", "userVerification": "required"}
    key = Authenticator()
    entered = join(acme, token, key.create(options))
    assert isinstance(entered, SignedIn)
    view = find_session(entered.token)
    assert view is not None
    assert (view.user_name, view.roles, view.amr) == ("Grace", ("developer",), ("hwk", "user", "mfa"))
    assert isinstance(sign_in(acme, key.get(begin_passkey_sign_in(acme, HERE.id))), SignedIn)
    assert database.count("passkey_handles") == 1
    with pytest.raises(InvitationEnded):
        join(acme, token, key.create(options))


def test_user_handle_is_constant_for_an_invitation(make: Factory, acme: Any, token: str) -> None:
    """A second attempt replaces the passkey on the device. Another invitation is another user."""
    other = create_invitation(make.actor(acme), acme.slug, email="ada@acme.example").link
    assert other is not None
    handles = [asked(acme, one)["user"]["id"] for one in (token, token, other.rpartition("/")[2])]
    assert handles[0] == handles[1] != handles[2]


def test_foreign_or_used_challenge_creates_no_account(
    make: Factory, acme: Any, token: str, database: Database
) -> None:
    """MF-5: it is bound to the invitation and the browser, and used once."""
    other = create_invitation(make.actor(acme), acme.slug, email="ada@acme.example").link
    assert other is not None
    before = database.count("users")
    for options in (asked(acme, token, ELSEWHERE), asked(acme, other.rpartition("/")[2])):
        with pytest.raises(InvalidChallenge):
            join(acme, token, Authenticator().create(options))
    options = asked(acme, token)
    with pytest.raises(InvalidInput):
        join(acme, token, Authenticator().create(options), name="Grace\u202e")
    with pytest.raises(InvalidChallenge):
        join(acme, token, Authenticator().create(options))
    assert database.count("users") == before and database.count("passkeys") == 0


def test_passkey_that_needs_a_password_is_rejected(acme: Any, token: str) -> None:
    """MF-5: it would be the only way to sign in."""
    with pytest.raises(Conflict) as refused:
        join(acme, token, Authenticator(flags=PRESENT).create(asked(acme, token)))
    assert refused.value.code == "passkey_not_alone"
    assert find_user_by_email(acme.id, "grace@acme.example") is None


def test_password_does_not_use_the_invitation_where_passwords_are_disabled(
    app: Flask, acme: Any, token: str, database: Database
) -> None:
    """MF-5: a page opened before passwords were disabled would leave an account that cannot sign in."""
    with pytest.raises(Conflict) as refused:
        accept_invitation(token, name="Grace", password_hash="a hash")
    assert refused.value.code == "passwords_off"
    path = f"/organizations/{acme.slug}/invite/{token}"
    visitor = Visitor(app)
    visitor.get(path)
    for password in ("nine small otters in a kiln", "weak"):
        page = visitor.post(path, name="Grace", password=password)
        assert page.status_code == 409 and "does not allow signing in with a password" in page.text
        assert 'id="invitation-passkey"' in page.text
    assert find_user_by_email(acme.id, "grace@acme.example") is None and database.count("users") == 0
    assert isinstance(join(acme, token, Authenticator().create(asked(acme, token))), SignedIn)


def test_password_is_required_where_passwords_are_enabled(make: Factory) -> None:
    acme = make.organization()
    link = create_invitation(make.actor(acme), acme.slug, email="grace@acme.example").link
    assert link is not None
    token = link.rpartition("/")[2]
    assert asked(acme, token) is None
    with pytest.raises(Conflict) as refused:
        join(acme, token, "{}")
    assert refused.value.code == "passwords_on"
