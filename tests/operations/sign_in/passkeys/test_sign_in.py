"""Signing in with a passkey, alone or after the password: which answers count, and once (MF-5, MF-6)."""

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
from app.operations.sign_in.pending_sign_ins import SignInEnded
from app.operations.sign_in.sessions import find_session
from app.operations.sign_in.sign_in import SecondStepRequired, SignedIn
from app.operations.sign_in.sign_in import sign_in as sign_in_with_password
from app.operations.store import clock
from app.operations.users.user_status import disable_user
from app.rules.actor import Actor
from tests.factories import PASSWORD
from tests.oauth.conftest import audited
from tests.operations.sign_in.passkeys.conftest import ELSEWHERE, HERE, registered, sign_in
from tests.support.security_key import MAY_SYNC, PRESENT, SYNCED, VERIFIED, Authenticator

pytestmark = pytest.mark.usefixtures("context")
Answer = Callable[..., str]


def refused(reason: Any) -> PasskeyRefused:
    return PasskeyRefused(reason)


def pending(organization: Any, email: str) -> str:
    """The token of a sign-in whose password was right."""
    outcome = sign_in_with_password(organization.id, email, PASSWORD, browser_id=HERE.id)
    assert isinstance(outcome, SecondStepRequired)
    return outcome.token


def prove(organization: Any, token: str, answer: str, browser: Any = HERE) -> Any:
    return verify_passkey_second_factor(
        Actor.anonymous(organization.id), organization, token, answer, browser
    )


def test_a_passkey_alone_signs_in(acme: Any, ada: Any, key: Authenticator, answer_of: Answer) -> None:
    """It is two factors: the device, and what unlocks it."""
    outcome = sign_in(acme, answer_of(key))
    assert isinstance(outcome, SignedIn)
    session = find_session(outcome.token)
    assert session is not None
    assert (session.user_id, session.amr) == (ada.id, ("hwk", "user", "mfa"))
    assert list_passkeys_of_user(acme.id, ada.id)[0].last_used_at is not None


def test_one_that_may_be_copied_says_so(actor: Any, acme: Any, answer_of: Answer) -> None:
    key = registered(actor, Authenticator(flags=PRESENT | VERIFIED | MAY_SYNC, counter=None))
    key.flags |= SYNCED
    outcomes = [sign_in(acme, answer_of(key)) for _ in range(2)]
    session = find_session(outcomes[1].token)
    assert session is not None and session.amr == ("swk", "user", "mfa")
    assert list_passkeys_of_user(acme.id, session.user_id)[0].is_synced


def test_the_browser_is_told_of_nobody(acme: Any, key: Authenticator) -> None:
    asked = begin_passkey_sign_in(acme, HERE.id)
    assert (asked["allowCredentials"], asked["userVerification"]) == ([], "required")


def test_without_verification_nobody_signs_in_alone(acme: Any, key: Authenticator, answer_of: Answer) -> None:
    """MF-5: somebody who only holds the device is one factor."""
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
def test_an_answer_of_another_page_is_refused(
    acme: Any, key: Authenticator, answer_of: Answer, wrong: Any
) -> None:
    """MF-5: the exact origin."""
    assert sign_in(acme, answer_of(key, **wrong)) == refused("unknown")


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("party", "example.com"), ("flags", VERIFIED), ("flags", PRESENT | VERIFIED | MAY_SYNC)],
)
def test_an_answer_of_another_authenticator_is_refused(
    acme: Any, key: Authenticator, answer_of: Answer, attribute: str, value: Any
) -> None:
    """MF-5: the RP ID; a person; and whether it may be copied is as it was made."""
    setattr(key, attribute, value)
    assert sign_in(acme, answer_of(key)) == refused("unknown")


@pytest.mark.parametrize("change", ["key", "handle", "none"])
def test_a_copy_of_its_names_is_not_the_key(
    acme: Any, key: Authenticator, answer_of: Answer, change: str, database: Any
) -> None:
    """Its key, and what it calls the person: alone it must say whose it is."""
    other = Authenticator(credential_id=key.credential_id, handle=key.handle)
    if change != "key":
        other = key
        other.handle = None if change == "none" else "A" * 43
    assert sign_in(acme, answer_of(other)) == refused("unknown")
    assert audited(database, "sign_in.failed") == 1


def test_an_unknown_passkey_is_refused_and_not_audited(acme: Any, answer_of: Answer, database: Any) -> None:
    assert sign_in(acme, answer_of(Authenticator(handle="A" * 43))) == refused("unknown")
    assert audited(database, "sign_in.failed") == 0


def test_a_passkey_of_another_organization_is_as_unknown(
    make: Any, acme: Any, key: Authenticator, database: Any
) -> None:
    """All organizations share one origin and one RP ID, so the browser offers it there too (MF-5)."""
    globex = make.organization()
    make.user(globex, email="ada@acme.example")
    assert sign_in(globex, key.get(begin_passkey_sign_in(globex, HERE.id))) == refused("unknown")
    assert audited(database, "sign_in.failed") == audited(database, "session.started") == 0


def test_one_id_in_two_organizations_is_two_passkeys(
    make: Any, acme: Any, ada: Any, key: Authenticator, answer_of: Answer
) -> None:
    """TN-1: each is found by its organization, and whoever is disabled in one is unknown in the other."""
    globex = make.organization()
    bob = make.user(globex)
    other = registered(make.actor(globex, user=bob), Authenticator(credential_id=key.credential_id))
    assert sign_in(acme, answer_of(key)).user_id == ada.id
    assert sign_in(globex, other.get(begin_passkey_sign_in(globex, HERE.id))).user_id == bob.id
    disable_user(make.actor(acme, user=make.user(acme)), ada.id)
    assert sign_in(globex, key.get(begin_passkey_sign_in(globex, HERE.id))) == refused("unknown")


def test_a_challenge_of_another_organization_is_refused(make: Any, acme: Any, key: Authenticator) -> None:
    globex = make.organization()
    assert sign_in(acme, key.get(begin_passkey_sign_in(globex, HERE.id))) == refused("expired")


def test_an_answer_counts_once(acme: Any, actor: Any, answer_of: Answer) -> None:
    """MF-5: also of a key that never counts, for which nothing else would tell a replay."""
    key = registered(actor, Authenticator(counter=None))
    answer = answer_of(key)
    assert isinstance(sign_in(acme, answer), SignedIn)
    assert sign_in(acme, answer) == refused("expired")


def test_two_answers_to_one_challenge_count_once(acme: Any, key: Authenticator) -> None:
    asked = begin_passkey_sign_in(acme, HERE.id)
    outcomes = [sign_in(acme, key.get(asked)) for _ in range(2)]
    assert isinstance(outcomes[0], SignedIn)
    assert outcomes[1] == refused("expired")


def test_an_answer_counts_in_its_browser_and_for_five_minutes(
    acme: Any, key: Authenticator, answer_of: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MF-5."""
    answer = answer_of(key)
    assert sign_in(acme, answer, ELSEWHERE) == refused("expired")
    begun = clock.now()
    monkeypatch.setattr(clock, "now", lambda: begun + timedelta(seconds=301))
    assert sign_in(acme, answer) == refused("expired")


def test_a_challenge_of_ours_is_not_made_by_others(acme: Any, key: Authenticator) -> None:
    """MF-5: what a stranger made up, or asked for something else, is none."""
    asked = dict(begin_passkey_sign_in(acme, HERE.id))
    asked["challenge"] = asked["challenge"][:-1] + ("A" if asked["challenge"][-1] != "A" else "B")
    assert sign_in(acme, key.get(asked)) == refused("expired")
    asked["challenge"] = "AAAA"
    assert sign_in(acme, key.get(asked)) == refused("expired")


@pytest.mark.parametrize("back", [0, 1])
def test_a_counter_that_went_back_is_refused_and_audited(
    acme: Any, key: Authenticator, answer_of: Answer, database: Any, back: int
) -> None:
    """MF-5: the copy of a key signs in nobody, and its owner and the administrators hear of it."""
    key.counter = 40
    assert isinstance(sign_in(acme, answer_of(key)), SignedIn)
    key.counter = 41 - 1 - back
    assert sign_in(acme, answer_of(key)) == refused("copied")
    assert audited(database, "passkey.counter_went_back") == 1
    key.counter = None
    assert sign_in(acme, answer_of(key)) == refused("copied")


def test_whoever_is_disabled_hears_so_when_the_passkey_is_right(
    make: Any, acme: Any, ada: Any, key: Authenticator, answer_of: Answer
) -> None:
    disable_user(make.actor(acme, user=make.user(acme)), ada.id)
    assert sign_in(acme, answer_of(key)) == refused("disabled")


def test_passwordless_is_a_setting(make: Any, acme: Any, key: Authenticator, answer_of: Answer) -> None:
    """authentication.passkeys.passwordless and .enabled, at once."""
    admin = make.system(acme)
    for passkeys in ({"passwordless": False}, {"passwordless": True, "enabled": False}):
        answer = answer_of(key)
        update_settings(admin, acme.slug, {"authentication": {"passkeys": passkeys}})
        assert sign_in(acme, answer) == refused("off")
        back = dict.fromkeys(("enabled", "passwordless"))
        update_settings(admin, acme.slug, {"authentication": {"passkeys": back}})


def test_the_second_factor_after_the_password(acme: Any, ada: Any, key: Authenticator) -> None:
    token = pending(acme, ada.email)
    asked = begin_passkey_second_factor(acme, token, HERE)
    assert asked is not None
    assert len(asked["allowCredentials"]) == 1
    key.flags = PRESENT
    outcome = prove(acme, token, key.get(asked))
    assert isinstance(outcome, SignedIn)
    session = find_session(outcome.token)
    assert session is not None and session.amr == ("pwd", "hwk", "user", "mfa")


def test_another_ones_passkey_is_no_second_factor(make: Any, acme: Any, ada: Any, key: Any) -> None:
    """MF-6."""
    bob = make.user(acme)
    other = registered(make.actor(acme, user=bob), Authenticator())
    token = pending(acme, ada.email)
    asked = begin_passkey_second_factor(acme, token, HERE)
    assert asked is not None
    assert prove(acme, token, other.get(asked)) == refused("unknown")


def test_challenges_are_not_taken_for_each_other(acme: Any, ada: Any, key: Authenticator) -> None:
    """MF-5: of a sign-in alone, of a second factor, and of another sign-in that waits."""
    token, other = pending(acme, ada.email), pending(acme, ada.email)
    asked = begin_passkey_second_factor(acme, token, HERE)
    assert asked is not None
    assert sign_in(acme, key.get(asked)) == refused("expired")
    assert prove(acme, token, key.get(begin_passkey_sign_in(acme, HERE.id))) == refused("expired")
    assert prove(acme, other, key.get(asked)) == refused("expired")
    with pytest.raises(SignInEnded):
        prove(acme, token, key.get(asked), ELSEWHERE)


def test_whoever_has_a_passkey_may_use_it_where_new_ones_are_off(
    make: Any, acme: Any, ada: Any, key: Authenticator
) -> None:
    """Else the setting would open accounts to their passwords alone, or close them (MF-6)."""
    changed = {"authentication": {"passkeys": {"enabled": False}, "mfa": {"methods": ["totp"]}}}
    update_settings(make.system(acme), acme.slug, changed)
    token = pending(get_organization_by_id(acme.id), ada.email)
    asked = begin_passkey_second_factor(acme, token, HERE)
    assert asked is not None
    assert isinstance(prove(acme, token, key.get(asked)), SignedIn)


def test_a_challenge_is_for_one_purpose(acme: Any) -> None:
    """MF-5: whatever else it is bound to."""
    purposes = (challenges.REGISTER, challenges.SIGN_IN, challenges.SECOND_FACTOR)
    for asked, brought in itertools.permutations(purposes, 2):
        challenge = challenges.issue_challenge(acme, asked, HERE.id, "somebody")
        challenges.validate_challenge(acme, asked, HERE.id, challenge, "somebody")
        with pytest.raises(challenges.InvalidChallenge):
            challenges.validate_challenge(acme, brought, HERE.id, challenge, "somebody")
