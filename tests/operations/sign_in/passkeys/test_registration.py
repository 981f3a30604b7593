"""Registering passkeys: the options for browsers, and which responses are accepted (MF-5)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.operations.sign_in import passkeys
from app.operations.sign_in.passkey_registration import begin_registration, finish_registration
from app.operations.sign_in.passkeys import (
    InvalidChallenge,
    PasskeyNotVerified,
    PasskeysUnavailable,
    list_passkeys_of_user,
)
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.sign_in.second_factors import find_methods_of_user
from app.operations.store import clock
from app.rules.errors import Conflict, InvalidInput
from app.rules.sign_in import passkeys as rules
from app.rules.sign_in.passkeys import InvalidPasskeyResponse
from tests.oauth.conftest import audited
from tests.operations.sign_in.passkeys.conftest import ELSEWHERE, HERE, registered
from tests.support.cases import each
from tests.support.security_key import (
    MAY_SYNC,
    PRESENT,
    SYNCED,
    VERIFIED,
    Authenticator,
    decoded,
    encoded,
)

pytestmark = pytest.mark.usefixtures("context")


def test_passkey_is_registered(actor: Any, acme: Any, ada: Any, database: Any) -> None:
    registered(actor, Authenticator(flags=PRESENT | VERIFIED | MAY_SYNC | SYNCED))
    [passkey] = list_passkeys_of_user(acme.id, ada.id)
    assert (passkey.name, passkey.is_synced, passkey.signs_in_alone) == ("Firefox on macOS", True, True)
    assert passkey.transports == ("hybrid", "internal")
    assert (passkey.aaguid, passkey.last_used_at) == (None, None)
    assert find_methods_of_user(acme.id, ada.id) == ("passkey",)
    assert audited(database, "passkey.registered") == audited(database, "second_factor.added") == 1


def test_creation_options(actor: Any, acme: Any, key: Authenticator) -> None:
    asked = begin_registration(actor, HERE)
    assert asked["rp"] == {"id": "localhost", "name": acme.name}
    assert asked["attestation"] == "none"
    assert [one["id"] for one in asked["excludeCredentials"]] == [encoded(key.credential_id)]
    assert asked["authenticatorSelection"] == {"residentKey": "preferred", "userVerification": "preferred"}


def test_user_handle_is_random_and_differs_between_organizations(make: Any, actor: Any) -> None:
    """MF-5: it reveals nothing about the user and is the same for all their passkeys."""
    globex = make.organization()
    there = make.actor(globex, user=make.user(globex, email="ada@acme.example"))
    handles = [begin_registration(who, HERE)["user"]["id"] for who in (actor, actor, there)]
    assert handles[0] == handles[1] != handles[2]
    assert len(decoded(handles[0])) == 32


def test_registration_requires_fresh_sign_in(make: Any, acme: Any, ada: Any, actor: Any) -> None:
    stale = make.actor(acme, user=ada, authenticated_ago_seconds=601)
    with pytest.raises(FreshSignInRequired):
        begin_registration(stale, HERE)
    answer = Authenticator().create(begin_registration(actor, HERE))
    with pytest.raises(FreshSignInRequired):
        finish_registration(stale, answer, "", HERE)


@each(
    "wrong",
    [
        {"origin": "https://localhost"},
        {"origin": "http://localhost:80"},
        {"origin": "http://localhost.example"},
        {"origin": "http://LOCALHOST"},
        {"type": "webauthn.get"},
        {"crossOrigin": True},
        {"topOrigin": "http://localhost"},
    ],
)
def test_response_of_another_page_is_rejected(actor: Any, acme: Any, ada: Any, wrong: Any) -> None:
    """MF-5: the exact origin and the requested ceremony."""
    answer = Authenticator().create(begin_registration(actor, HERE), client=wrong)
    with pytest.raises(PasskeyNotVerified):
        finish_registration(actor, answer, "", HERE)
    assert list_passkeys_of_user(acme.id, ada.id) == ()


@pytest.mark.parametrize(
    "wrong", [{"party": "example.com"}, {"flags": VERIFIED}, {"flags": PRESENT | SYNCED}], ids=str
)
def test_response_with_wrong_authenticator_data_is_rejected(
    actor: Any, acme: Any, ada: Any, wrong: Any
) -> None:
    """MF-5: the RP ID, user presence, and no backup of a passkey that cannot be synced."""
    answer = Authenticator(**wrong).create(begin_registration(actor, HERE))
    with pytest.raises(PasskeyNotVerified):
        finish_registration(actor, answer, "", HERE)
    assert list_passkeys_of_user(acme.id, ada.id) == ()


def test_registration_challenge_is_used_once(actor: Any, make: Any) -> None:
    """MF-5: neither the same response nor another one to its challenge registers a passkey again."""
    asked = begin_registration(actor, HERE)
    finish_registration(actor, Authenticator().create(asked), "", HERE)
    with pytest.raises(InvalidChallenge):
        finish_registration(actor, Authenticator().create(asked), "", HERE)


def test_registration_challenge_expires_after_five_minutes(
    actor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MF-5."""
    answers = [Authenticator().create(begin_registration(actor, HERE)) for _ in range(2)]
    begun = clock.now()
    monkeypatch.setattr(clock, "now", lambda: begun + timedelta(seconds=298))
    finish_registration(actor, answers[0], "", HERE)
    monkeypatch.setattr(clock, "now", lambda: begun + timedelta(seconds=301))
    with pytest.raises(InvalidChallenge):
        finish_registration(actor, answers[1], "", HERE)


def test_registration_challenge_is_bound_to_browser_user_and_organization(
    actor: Any, make: Any, acme: Any
) -> None:
    """MF-5."""
    globex = make.organization()
    for who in (make.actor(acme, user=make.user(acme)), make.actor(globex, user=make.user(globex))):
        with pytest.raises(InvalidChallenge):
            finish_registration(who, Authenticator().create(begin_registration(actor, HERE)), "", HERE)
    with pytest.raises(InvalidChallenge):
        finish_registration(actor, Authenticator().create(begin_registration(actor, HERE)), "", ELSEWHERE)


@each(
    "text",
    [
        *("", "{", "[]", "null", "{}", '{"id": 7}', "x" * 40_000, "\ud800", '{"id":"a","id":"b"}'),
        '{"id":"AA","rawId":"AA","type":"public-key","response":{"clientDataJSON":"e30","attestationObject":"o"}}',
        '{"id":"AA","rawId":"AA","type":"public-key","response":{"clientDataJSON":"AA","attestationObject":"AA"}}',
        '{"id":"A A","type":"public-key","response":{"clientDataJSON":"e30","attestationObject":"AA"}}',
    ],
)
def test_malformed_response_is_rejected(actor: Any, text: str) -> None:
    with pytest.raises(InvalidPasskeyResponse):
        finish_registration(actor, text, "", HERE)


@pytest.mark.parametrize(
    "attestation", ["", "AA", "oA", "n" * 400, "o2NmbXRkbm9uZWdhdHRTdG10oGhhdXRoRGF0YUEA"]
)
def test_broken_attestation_is_rejected(actor: Any, attestation: str) -> None:
    """The library parses untrusted input, and none of its errors gets through."""
    answer = Authenticator().create(begin_registration(actor, HERE))
    start = answer.index('"attestationObject": "') + len('"attestationObject": "')
    broken = answer[:start] + attestation + answer[answer.index('"', start) :]
    with pytest.raises((PasskeyNotVerified, InvalidPasskeyResponse)):
        finish_registration(actor, broken, "", HERE)


def test_passkey_cannot_be_registered_twice(actor: Any, make: Any, acme: Any, key: Authenticator) -> None:
    """MF-5: its id is unique in the organization, whichever user registers it."""
    for who in (actor, make.actor(acme, user=make.user(acme))):
        with pytest.raises(Conflict) as refused:
            registered(who, Authenticator(credential_id=key.credential_id))
        assert refused.value.code == "passkey_exists"


def test_passkey_can_be_registered_in_two_organizations(make: Any, key: Authenticator) -> None:
    globex = make.organization()
    user = make.user(globex)
    registered(make.actor(globex, user=user), Authenticator(credential_id=key.credential_id))
    assert len(list_passkeys_of_user(globex.id, user.id)) == 1


def test_number_of_passkeys_is_limited(actor: Any, monkeypatch: pytest.MonkeyPatch, key: Any) -> None:
    monkeypatch.setattr("app.operations.sign_in.passkey_registration.MAX_PASSKEYS_PER_USER", 1)
    with pytest.raises(Conflict) as refused:
        begin_registration(actor, HERE)
    assert refused.value.code == "too_many_passkeys"


def test_disabled_passkeys_cannot_be_registered(make: Any) -> None:
    """authentication.passkeys.enabled, also between the page and its response."""
    closed = make.organization(settings={"authentication": {"passkeys": {"enabled": False}}})
    with pytest.raises(Conflict) as refused:
        begin_registration(make.actor(closed, user=make.user(closed)), HERE)
    assert refused.value.code == "passkeys_off"


def test_passkeys_are_unavailable_at_an_ip_address(actor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passkeys, "relying_party", lambda _: rules.relying_party("http://127.0.0.1:8000"))
    with pytest.raises(PasskeysUnavailable):
        begin_registration(actor, HERE)


@pytest.mark.parametrize(("name", "code"), [("x" * 61, "too_long"), ("\x00\x07", "required")])
def test_invalid_passkey_name_is_rejected(actor: Any, name: str, code: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        finish_registration(actor, Authenticator().create(begin_registration(actor, HERE)), name, HERE)
    assert (refused.value.field, refused.value.errors[0].code) == ("name", code)
