"""Wrong codes: someone who guesses elsewhere neither gets in nor locks the owner out (MF-3, LK-1)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import select

from app.extensions import db
from app.models.second_factor import SecondFactorTry
from app.models.session import KnownBrowser
from app.operations.sign_in import factor_enrollment
from app.operations.sign_in.factor_verification import InvalidCode, verify_code
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.pending_sign_ins import MAX_CONSECUTIVE_FAILURES, MAX_TOTAL_FAILURES
from app.operations.sign_in.sign_in import Browser, SecondStepRequired, SignedIn
from app.operations.store import clock
from app.operations.users import factor_resets
from app.operations.users.password_resets import issue_reset_link, reset_password
from app.rules.actor import Actor
from tests.factories import PASSWORD
from tests.support.authenticator import Authenticator, secret_in, set_rows, signed_in_actor, with_app

pytestmark = pytest.mark.usefixtures("context")
HERE, THERE = Browser("the owner's browser"), Browser("a guesser's browser")
WRONG = "000000"


@pytest.fixture
def ada(make: Any) -> Any:
    return make.user(make.organization(), email="ada@acme.example")


@pytest.fixture
def phone(app: Any, ada: Any) -> Authenticator:
    return with_app(app, ada)


@pytest.fixture
def known_browser(ada: Any, phone: Authenticator) -> Browser:
    """Return the owner's browser, in which a code was used."""
    done = verify(ada, begin_second_step(ada, HERE), phone.code(), HERE)
    assert isinstance(done, SignedIn)
    return replace(HERE, known_cookie=done.known_cookie)


def begin_second_step(user: Any, browser: Browser, password: str = PASSWORD) -> str:
    step = sign_in(user.organization.id, user.email, password, browser=browser)
    assert isinstance(step, SecondStepRequired), step
    return step.token


def verify(user: Any, token: str, code: str, browser: Browser) -> Any:
    stranger = Actor.anonymous(user.organization.id, "192.0.2.7")
    return verify_code(stranger, user.organization, token, code, browser)


def guess_codes(
    user: Any, browser: Browser = THERE, times: int = MAX_CONSECUTIVE_FAILURES, password: str = PASSWORD
) -> list[Any]:
    """Enter wrong codes, each in a new sign-in."""
    return [verify(user, begin_second_step(user, browser, password), WRONG, browser) for _ in range(times)]


@pytest.mark.slow
def test_guesses_elsewhere_do_not_delay_a_known_browser(
    ada: Any, phone: Authenticator, known_browser: Browser
) -> None:
    """LK-1: neither the codes nor the sign-in that the owner has started."""
    waiting = begin_second_step(ada, known_browser)
    assert guess_codes(ada)[-1].has_ended
    assert verify(ada, begin_second_step(ada, THERE), WRONG, THERE).retry_after > 0
    for _ in range(60):
        begin_second_step(ada, THERE)
    assert isinstance(verify(ada, waiting, phone.code(), known_browser), SignedIn)


def test_known_browser_has_its_own_code_counter(
    ada: Any, phone: Authenticator, known_browser: Browser
) -> None:
    """MF-3: its fifth wrong code ends its pending sign-in and delays only this browser."""
    elsewhere = begin_second_step(ada, THERE)
    outcomes = guess_codes(ada, known_browser)
    assert [wrong.attempts_left for wrong in outcomes] == [4, 3, 2, 1, 0] and outcomes[-1].has_ended
    assert verify(ada, begin_second_step(ada, known_browser), phone.code(), known_browser).retry_after > 0
    assert isinstance(verify(ada, elsewhere, phone.code(), THERE), SignedIn)


def test_wait_in_known_browser_doubles_and_ends(
    ada: Any, phone: Authenticator, known_browser: Browser
) -> None:
    guess_codes(ada, known_browser)
    set_rows(KnownBrowser, code_failed_at=clock.now() - timedelta(seconds=65))
    assert guess_codes(ada, known_browser, times=1)[0].retry_after == 120
    set_rows(KnownBrowser, code_failed_at=clock.now() - timedelta(seconds=125))
    assert isinstance(
        verify(ada, begin_second_step(ada, known_browser), phone.code(), known_browser), SignedIn
    )
    assert guess_codes(ada, known_browser, times=1)[0].attempts_left == MAX_CONSECUTIVE_FAILURES - 1


def test_browser_known_without_a_factor_counts_as_unknown(make: Any, ada: Any, phone: Authenticator) -> None:
    """MF-6: access to the mailbox gives any number of such browsers, but no additional codes."""
    guess_codes(ada)
    link = issue_reset_link(make.actor(ada.organization), ada.id).link
    done = reset_password(ada.organization, link.rpartition("/")[2], "a wholly different password")
    fresh = replace(THERE, known_cookie=done.known_cookie)
    assert guess_codes(ada, fresh, times=1, password="a wholly different password")[0].retry_after > 0


@pytest.mark.parametrize("is_at_home", [True, False])
def test_reset_in_known_browser_keeps_its_own_counter(
    make: Any, ada: Any, phone: Authenticator, known_browser: Browser, is_at_home: bool
) -> None:
    """LK-1: a guesser cannot lock the owner's known browser.

    A reset elsewhere does not help a guesser (MF-3).
    """
    guess_codes(ada, times=1)
    set_rows(SecondFactorTry, failures=0, total=MAX_TOTAL_FAILURES, failed_at=clock.now())
    browser, password = known_browser if is_at_home else THERE, "a wholly different password"
    link = issue_reset_link(make.actor(ada.organization), ada.id).link
    done = reset_password(ada.organization, link.rpartition("/")[2], password, browser=browser)
    browser = replace(browser, known_cookie=done.known_cookie)
    outcome = verify(ada, begin_second_step(ada, browser, password), phone.code(), browser)
    assert isinstance(outcome, SignedIn) if is_at_home else outcome.is_capped
    assert len(db.session.scalars(select(KnownBrowser.id)).all()) == 1


def test_browser_known_before_the_factor_counts_as_unknown(app: Any, ada: Any) -> None:
    before = sign_in(ada.organization.id, ada.email, PASSWORD, browser=THERE)
    assert isinstance(before, SignedIn)
    with_app(app, ada)
    guess_codes(ada)
    assert guess_codes(ada, replace(THERE, known_cookie=before.known_cookie), times=1)[0].retry_after > 0


def test_browser_that_enrolled_the_factor_has_its_own_counter(app: Any, ada: Any) -> None:
    here = sign_in(ada.organization.id, ada.email, PASSWORD, browser=HERE)
    assert isinstance(here, SignedIn)
    new = factor_enrollment.begin_authenticator_app(signed_in_actor(ada))
    phone = Authenticator(app, ada, secret_in(new.otpauth_uri))
    factor_enrollment.add_authenticator_app(
        signed_in_actor(ada), new.sealed, phone.shown(), known_cookie=here.known_cookie
    )
    guess_codes(ada)
    known_browser = replace(HERE, known_cookie=here.known_cookie)
    assert isinstance(
        verify(ada, begin_second_step(ada, known_browser), phone.code(), known_browser), SignedIn
    )


def test_waiting_does_not_lift_the_cap_on_codes(
    ada: Any, phone: Authenticator, known_browser: Browser
) -> None:
    """MF-3, LK-1: a hard cap, which the owner's sign-in lifts."""
    guess_codes(ada, times=1)
    set_rows(
        SecondFactorTry, failures=0, total=MAX_TOTAL_FAILURES, failed_at=clock.now() - timedelta(days=29)
    )
    capped = verify(ada, begin_second_step(ada, THERE), phone.code(), THERE)
    assert capped.is_capped and timedelta(hours=23) < timedelta(seconds=capped.retry_after) < timedelta(
        days=2
    )
    assert isinstance(
        verify(ada, begin_second_step(ada, known_browser), phone.code(), known_browser), SignedIn
    )
    assert isinstance(verify(ada, begin_second_step(ada, THERE), phone.code(), THERE), SignedIn)


def test_slow_guesses_count_towards_the_cap_for_a_month(ada: Any, phone: Authenticator) -> None:
    for _ in range(3):
        guess_codes(ada, times=1)
        set_rows(SecondFactorTry, failed_at=clock.now() - timedelta(days=1))
    assert db.session.scalars(select(SecondFactorTry.total)).all() == [3]
    db.session.remove()
    set_rows(SecondFactorTry, total=MAX_TOTAL_FAILURES, failed_at=clock.now() - timedelta(days=31))
    assert isinstance(verify(ada, begin_second_step(ada, THERE), phone.code(), THERE), SignedIn)


def test_recovery_code_is_accepted_during_a_wait(ada: Any, phone: Authenticator) -> None:
    """MF-4: it cannot be guessed, so a guesser cannot lock the owner out of it."""
    guess_codes(ada)
    waiting = begin_second_step(ada, THERE)
    assert verify(ada, waiting, phone.code(), THERE).retry_after > 0
    assert isinstance(verify(ada, waiting, "aaaa-" + phone.codes[0][5:], THERE), InvalidCode)
    assert isinstance(verify(ada, waiting, phone.codes[0], THERE), SignedIn)


def test_factor_reset_clears_used_factors_of_browsers(
    app: Any, make: Any, ada: Any, known_browser: Browser
) -> None:
    factor_resets.reset_user_factors(make.actor(ada.organization), ada.public_id)
    with_app(app, ada)
    guess_codes(ada)
    assert guess_codes(ada, known_browser, times=1)[0].retry_after > 0
