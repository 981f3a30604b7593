"""Signing in with a passkey, alone or after the password (MF-5, MF-6)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from app.operations.directory.lookups import get_organization_by_id
from app.operations.organizations.settings import update_settings
from app.operations.sign_in import passkeys as challenges
from app.operations.sign_in.passkey_sign_in import (
    PasskeyRefused,
    begin_passkey_second_factor,
    begin_passkey_sign_in,
    verify_passkey_second_factor,
)
from app.operations.sign_in.passkeys import list_passkeys_of_user
from app.operations.sign_in.password_sign_in import sign_in as sign_in_with_password
from app.operations.sign_in.pending_sign_ins import SignInEnded
from app.operations.sign_in.sessions import find_session
from app.operations.sign_in.sign_in import SecondStepRequired, SignedIn
from app.operations.store import clock
from app.operations.users.users import disable_user
from app.rules.actor import Actor
from tests.factories import PASSWORD
from tests.oauth.conftest import audited
from tests.operations.sign_in.passkeys.conftest import ELSEWHERE, HERE, registered, sign_in
from tests.support.security_key import MAY_SYNC, PRESENT, SYNCED, VERIFIED, Authenticator

pytestmark = pytest.mark.usefixtures("context")
Answer = Callable[..., str]


def refused(reason: Any) -> PasskeyRefused:
    return PasskeyRefused(reason)


def begin_second_step(organization: Any, email: str) -> str:
    """Return the token of a sign-in after its right password."""
    outcome = sign_in_with_password(organization.id, email, PASSWORD, browser=HERE)
    assert isinstance(outcome, SecondStepRequired)
    return outcome.token


def verify(organization: Any, token: str, answer: str, browser: Any = HERE) -> Any:
    return verify_passkey_second_factor(
        Actor.anonymous(organization.id), organization, token, answer, browser
    )


def test_passkey_alone_signs_in(acme: Any, ada: Any, key: Authenticator, answer_of: Answer) -> None:
    """It is two factors: the device, and what unlocks it."""
    outcome = sign_in(acme, answer_of(key))
    assert isinstance(outcome, SignedIn)
    session = find_session(outcome.token)
    assert session is not None
    assert (session.user_id, session.amr) == (ada.id, ("hwk", "user", "mfa"))
    assert list_passkeys_of_user(acme.id, ada.id)[0].last_used_at is not None


def test_synced_passkey_has_amr_swk(actor: Any, acme: Any, answer_of: Answer) -> None:
    key = registered(actor, Authenticator(flags=PRESENT | VERIFIED | MAY_SYNC, counter=None))
    key.flags |= SYNCED
    outcomes = [sign_in(acme, answer_of(key)) for _ in range(2)]
    session = find_session(outcomes[1].token)
    assert session is not None and session.amr == ("swk", "user", "mfa")
    assert list_passkeys_of_user(acme.id, session.user_id)[0].is_synced


def test_request_options_identify_no_user(acme: Any, key: Authenticator) -> None:
    asked = begin_passkey_sign_in(acme, HERE.id)
    assert (asked["allowCredentials"], asked["userVerification"]) == ([], "required")


def test_passkey_without_user_verification_does_not_sign_in_alone(
    acme: Any, key: Authenticator, answer_of: Answer
) -> None:
    """MF-5: possession of the device is only one factor."""
    key.flags = PRESENT
    assert sign_in(acme, answer_of(key)) == refused("unknown")


@pytest.mark.parametrize(
    "wrong",
    [
        {"origin": "https://localhost"},
        {"origin": "http://localhost/"},
        {"origin": "http://localhost:8000"},
        {"type": "webauthn.create"},
        {"crossOrigin": True},
    ],
    ids=str,
)
def test_response_of_another_page_is_rejected(
    acme: Any, key: Authenticator, answer_of: Answer, wrong: Any
) -> None:
    """MF-5: the exact origin."""
    assert sign_in(acme, answer_of(key, **wrong)) == refused("unknown")


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("party", "example.com"), ("flags", VERIFIED), ("flags", PRESENT | VERIFIED | MAY_SYNC)],
)
def test_response_with_wrong_authenticator_data_is_rejected(
    acme: Any, key: Authenticator, answer_of: Answer, attribute: str, value: Any
) -> None:
    """MF-5: the RP ID, user presence, and unchanged backup eligibility."""
    setattr(key, attribute, value)
    assert sign_in(acme, answer_of(key)) == refused("unknown")


@pytest.mark.parametrize("change", ["key", "handle", "none"])
def test_response_needs_the_key_and_the_user_handle(
    acme: Any, key: Authenticator, answer_of: Answer, change: str, database: Any
) -> None:
    """The signature, and the user handle that a passkey alone must send."""
    other = Authenticator(credential_id=key.credential_id, handle=key.handle)
    if change != "key":
        other = key
        other.handle = None if change == "none" else "A" * 43
    assert sign_in(acme, answer_of(other)) == refused("unknown")
    assert audited(database, "sign_in.failed") == 1


def test_unknown_passkey_is_rejected_and_not_audited(acme: Any, answer_of: Answer, database: Any) -> None:
    assert sign_in(acme, answer_of(Authenticator(handle="A" * 43))) == refused("unknown")
    assert audited(database, "sign_in.failed") == 0


def test_passkey_of_another_organization_is_unknown(
    make: Any, acme: Any, key: Authenticator, database: Any
) -> None:
    """All organizations share one origin and RP ID, so the browser offers it there too (MF-5)."""
    globex = make.organization()
    make.user(globex, email="ada@acme.example")
    assert sign_in(globex, key.get(begin_passkey_sign_in(globex, HERE.id))) == refused("unknown")
    assert audited(database, "sign_in.failed") == audited(database, "session.started") == 0


def test_same_credential_in_two_organizations_is_two_passkeys(
    make: Any, acme: Any, ada: Any, key: Authenticator, answer_of: Answer
) -> None:
    """TN-1: each is found by its organization. Disabling the user in one does not affect the other."""
    globex = make.organization()
    bob = make.user(globex)
    other = registered(make.actor(globex, user=bob), Authenticator(credential_id=key.credential_id))
    assert sign_in(acme, answer_of(key)).user_id == ada.id
    assert sign_in(globex, other.get(begin_passkey_sign_in(globex, HERE.id))).user_id == bob.id
    disable_user(make.actor(acme, user=make.user(acme)), ada.id)
    assert sign_in(globex, key.get(begin_passkey_sign_in(globex, HERE.id))) == refused("unknown")


def test_challenge_of_another_organization_is_rejected(make: Any, acme: Any, key: Authenticator) -> None:
    globex = make.organization()
    assert sign_in(acme, key.get(begin_passkey_sign_in(globex, HERE.id))) == refused("expired")


def test_response_is_accepted_once(acme: Any, actor: Any, answer_of: Answer) -> None:
    """MF-5: also for a passkey without a counter, where nothing else would detect a replay."""
    key = registered(actor, Authenticator(counter=None))
    answer = answer_of(key)
    assert isinstance(sign_in(acme, answer), SignedIn)
    assert sign_in(acme, answer) == refused("expired")


def test_challenge_accepts_one_response(acme: Any, key: Authenticator) -> None:
    asked = begin_passkey_sign_in(acme, HERE.id)
    outcomes = [sign_in(acme, key.get(asked)) for _ in range(2)]
    assert isinstance(outcomes[0], SignedIn)
    assert outcomes[1] == refused("expired")


def test_challenge_is_bound_to_browser_and_expires_after_five_minutes(
    acme: Any, key: Authenticator, answer_of: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MF-5."""
    answer = answer_of(key)
    assert sign_in(acme, answer, ELSEWHERE) == refused("expired")
    begun = clock.now()
    monkeypatch.setattr(clock, "now", lambda: begun + timedelta(seconds=301))
    assert sign_in(acme, answer) == refused("expired")


def test_forged_challenge_is_rejected(acme: Any, key: Authenticator) -> None:
    """MF-5: invented challenges and those for another purpose."""
    asked = dict(begin_passkey_sign_in(acme, HERE.id))
    asked["challenge"] = asked["challenge"][:-1] + ("A" if asked["challenge"][-1] != "A" else "B")
    assert sign_in(acme, key.get(asked)) == refused("expired")
    asked["challenge"] = "AAAA"
    assert sign_in(acme, key.get(asked)) == refused("expired")


@pytest.mark.parametrize("back", [0, 1])
def test_decreased_counter_is_rejected_and_audited(
    acme: Any, key: Authenticator, answer_of: Answer, database: Any, back: int
) -> None:
    """MF-5: a copied key does not sign in, and the owner and administrators are notified."""
    key.counter = 40
    assert isinstance(sign_in(acme, answer_of(key)), SignedIn)
    key.counter = 41 - 1 - back
    assert sign_in(acme, answer_of(key)) == refused("copied")
    assert audited(database, "passkey.counter_went_back") == 1
    key.counter = None
    assert sign_in(acme, answer_of(key)) == refused("copied")


def test_disabled_user_is_reported_with_the_right_passkey(
    make: Any, acme: Any, ada: Any, key: Authenticator, answer_of: Answer
) -> None:
    disable_user(make.actor(acme, user=make.user(acme)), ada.id)
    assert sign_in(acme, answer_of(key)) == refused("disabled")


def test_passwordless_setting_applies_immediately(
    make: Any, acme: Any, key: Authenticator, answer_of: Answer
) -> None:
    """authentication.passkeys.passwordless and .enabled, at once."""
    admin = make.system(acme)
    for passkeys in ({"passwordless": False}, {"passwordless": True, "enabled": False}):
        answer = answer_of(key)
        update_settings(admin, acme.slug, {"authentication": {"passkeys": passkeys}})
        assert sign_in(acme, answer) == refused("off")
        back = dict.fromkeys(("enabled", "passwordless"))
        update_settings(admin, acme.slug, {"authentication": {"passkeys": back}})


def test_passkey_is_second_factor_after_password(acme: Any, ada: Any, key: Authenticator) -> None:
    token = begin_second_step(acme, ada.email)
    asked = begin_passkey_second_factor(acme, token, HERE)
    assert asked is not None
    assert len(asked["allowCredentials"]) == 1
    key.flags = PRESENT
    outcome = verify(acme, token, key.get(asked))
    assert isinstance(outcome, SignedIn)
    session = find_session(outcome.token)
    assert session is not None and session.amr == ("pwd", "hwk", "user", "mfa")


def test_passkey_of_another_user_is_rejected_as_second_factor(
    make: Any, acme: Any, ada: Any, key: Any
) -> None:
    """MF-6."""
    bob = make.user(acme)
    other = registered(make.actor(acme, user=bob), Authenticator())
    token = begin_second_step(acme, ada.email)
    asked = begin_passkey_second_factor(acme, token, HERE)
    assert asked is not None
    assert verify(acme, token, other.get(asked)) == refused("unknown")


def test_challenges_of_different_sign_ins_are_not_interchangeable(
    acme: Any, ada: Any, key: Authenticator
) -> None:
    """MF-5: a sign-in alone, a second factor, and another pending sign-in."""
    token, other = begin_second_step(acme, ada.email), begin_second_step(acme, ada.email)
    asked = begin_passkey_second_factor(acme, token, HERE)
    assert asked is not None
    assert sign_in(acme, key.get(asked)) == refused("expired")
    assert verify(acme, token, key.get(begin_passkey_sign_in(acme, HERE.id))) == refused("expired")
    assert verify(acme, other, key.get(asked)) == refused("expired")
    with pytest.raises(SignInEnded):
        verify(acme, token, key.get(asked), ELSEWHERE)


def test_existing_passkey_works_where_registration_is_disabled(
    make: Any, acme: Any, ada: Any, key: Authenticator
) -> None:
    """Otherwise the setting would reduce accounts to their passwords or lock them (MF-6)."""
    changed = {"authentication": {"passkeys": {"enabled": False}, "mfa": {"methods": ["totp"]}}}
    update_settings(make.system(acme), acme.slug, changed)
    token = begin_second_step(get_organization_by_id(acme.id), ada.email)
    asked = begin_passkey_second_factor(acme, token, HERE)
    assert asked is not None
    assert isinstance(verify(acme, token, key.get(asked)), SignedIn)


def test_challenge_is_valid_for_one_purpose(acme: Any) -> None:
    """MF-5: regardless of its other bindings."""
    purposes = (challenges.REGISTER, challenges.SIGN_IN, challenges.SECOND_FACTOR)
    for asked, brought in itertools.permutations(purposes, 2):
        challenge = challenges.issue_challenge(acme, asked, HERE.id, "ada")
        challenges.validate_challenge(acme, asked, HERE.id, challenge, "ada")
        with pytest.raises(challenges.InvalidChallenge):
            challenges.validate_challenge(acme, brought, HERE.id, challenge, "ada")
