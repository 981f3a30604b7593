"""An organization with a user who has a passkey, and her authenticator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from app.operations.sign_in.passkey_registration import begin_registration, finish_registration
from app.operations.sign_in.passkey_sign_in import begin_passkey_sign_in, sign_in_with_passkey
from app.operations.sign_in.sign_in import Browser
from app.rules.actor import Actor
from tests.factories import Factory, MadeUser
from tests.support.security_key import Authenticator

HERE = Browser("the browser here", "Mozilla/5.0 (Macintosh; Intel Mac OS X) Firefox/140.0")
ELSEWHERE = Browser("another browser")


@pytest.fixture
def acme(make: Factory) -> Any:
    return make.organization()


@pytest.fixture
def actor(make: Factory, acme: Any, ada: MadeUser) -> Actor:
    """Return Ada, who has just signed in, with all permissions."""
    return replace(make.actor(acme, user=ada), amr=("pwd", "mfa"))


@pytest.fixture
def key(actor: Actor) -> Authenticator:
    """Return Ada's authenticator with a registered passkey."""
    return registered(actor, Authenticator())


@pytest.fixture
def answer_of(acme: Any) -> Callable[..., str]:
    """Return a function that answers the challenge of a new sign-in."""
    return lambda key, **client: key.get(begin_passkey_sign_in(acme, HERE.id), client=client)


def registered(actor: Actor, key: Authenticator, name: str = "") -> Authenticator:
    finish_registration(actor, key.create(begin_registration(actor, HERE)), name, HERE)
    return key


def sign_in(organization: Any, answer: str, browser: Browser = HERE) -> Any:
    return sign_in_with_passkey(Actor.anonymous(organization.id, "192.0.2.9"), organization, answer, browser)
