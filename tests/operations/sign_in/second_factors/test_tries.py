"""Wrong codes: whoever guesses elsewhere neither gets in nor keeps the owner out (MF-3, LK-1)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from app.extensions import db
from app.models.second_factor import SecondFactorTry
from app.models.session import KnownBrowser
from app.operations.sign_in import factor_enrollment
from app.operations.sign_in.factor_verification import InvalidCode, verify_code
from app.operations.sign_in.pending_sign_ins import MAX_CONSECUTIVE_FAILURES, MAX_TOTAL_FAILURES
from app.operations.sign_in.sign_in import Browser, SecondStepRequired, SignedIn, sign_in
from app.operations.store import clock
from app.operations.users import factor_resets
from app.operations.users.password_resets import issue_reset_link, reset_password
from app.rules.actor import Actor
from tests.factories import PASSWORD
from tests.support.authenticator import Authenticator, person, secret_in, set_rows, with_app

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
def known(ada: Any, phone: Authenticator) -> Browser:
    """The owner's browser, in which a code was given."""
    done = verify(ada, begin(ada, HERE), phone.code(), HERE)
    assert isinstance(done, SignedIn)
    return replace(HERE, known=done.known)


def begin(user: Any, browser: Browser, password: str = PASSWORD) -> str:
    step = sign_in(user.organization.id, user.email, password, browser_id=browser.id, known=browser.known)
    assert isinstance(step, SecondStepRequired), step
    return step.token


def verify(user: Any, token: str, code: str, browser: Browser) -> Any:
    stranger = Actor.anonymous(user.organization.id, "192.0.2.7")
    return verify_code(stranger, user.organization, token, code, browser)


def guess(
    user: Any, browser: Browser = THERE, times: int = MAX_CONSECUTIVE_FAILURES, password: str = PASSWORD
) -> list[Any]:
    """Wrong codes, each in a sign-in of its own."""
    return [verify(user, begin(user, browser, password), WRONG, browser) for _ in range(times)]


def test_a_guesser_elsewhere_keeps_the_owner_waiting_nowhere_they_are_known(
    ada: Any, phone: Authenticator, known: Browser
) -> None:
    """LK-1: neither the codes nor the sign-in that the owner has begun."""
    waiting = begin(ada, known)
    assert guess(ada)[-1].has_ended
    assert verify(ada, begin(ada, THERE), WRONG, THERE).retry_after > 0
    for _ in range(60):
        begin(ada, THERE)
    assert isinstance(verify(ada, waiting, phone.code(), known), SignedIn)


def test_a_known_browser_is_counted_by_itself(ada: Any, phone: Authenticator, known: Browser) -> None:
    """MF-3: its own fifth wrong code ends what waits in it and makes it wait, and nobody else."""
    elsewhere = begin(ada, THERE)
    outcomes = guess(ada, known)
    assert [wrong.attempts_left for wrong in outcomes] == [4, 3, 2, 1, 0] and outcomes[-1].has_ended
    assert verify(ada, begin(ada, known), phone.code(), known).retry_after > 0
    assert isinstance(verify(ada, elsewhere, phone.code(), THERE), SignedIn)


def test_a_wait_in_a_known_browser_passes(ada: Any, phone: Authenticator, known: Browser) -> None:
    guess(ada, known)
    set_rows(KnownBrowser, code_failed_at=clock.now() - timedelta(seconds=65))
    assert isinstance(verify(ada, begin(ada, known), phone.code(), known), SignedIn)
    assert guess(ada, known, times=1)[0].attempts_left == MAX_CONSECUTIVE_FAILURES - 1


def test_a_browser_that_is_known_by_the_password_alone_is_one_of_many(
    make: Any, ada: Any, phone: Authenticator
) -> None:
    """MF-6: whoever reads the mailbox has as many of those as they ask for links, and no more codes by it."""
    guess(ada)
    link = issue_reset_link(make.actor(ada.organization), ada.id).link
    done = reset_password(ada.organization, link.rpartition("/")[2], "a wholly different password")
    fresh = replace(THERE, known=done.known)
    assert guess(ada, fresh, times=1, password="a wholly different password")[0].retry_after > 0


@pytest.mark.parametrize("is_at_home", [True, False])
def test_who_resets_at_home_after_a_hundred_guesses_elsewhere_has_their_app(
    make: Any, ada: Any, phone: Authenticator, known: Browser, is_at_home: bool
) -> None:
    """LK-1: a guesser shuts no door of the owner's home; a reset anywhere else opens none to a guesser (MF-3)."""
    guess(ada, times=1)
    set_rows(SecondFactorTry, failures=0, total=MAX_TOTAL_FAILURES, failed_at=clock.now())
    browser, password = known if is_at_home else THERE, "a wholly different password"
    link = issue_reset_link(make.actor(ada.organization), ada.id).link
    done = reset_password(ada.organization, link.rpartition("/")[2], password, known=browser.known)
    browser = replace(browser, known=done.known)
    outcome = verify(ada, begin(ada, browser, password), phone.code(), browser)
    assert isinstance(outcome, SignedIn) if is_at_home else outcome.is_capped
    assert len(db.session.scalars(select(KnownBrowser.id)).all()) == 1


def test_a_browser_of_before_the_factor_is_one_of_many(app: Any, ada: Any) -> None:
    before = sign_in(ada.organization.id, ada.email, PASSWORD, browser_id=THERE.id)
    assert isinstance(before, SignedIn)
    with_app(app, ada)
    guess(ada)
    assert guess(ada, replace(THERE, known=before.known), times=1)[0].retry_after > 0


def test_the_browser_in_which_a_factor_was_set_up_is_counted_by_itself(app: Any, ada: Any) -> None:
    here = sign_in(ada.organization.id, ada.email, PASSWORD, browser_id=HERE.id)
    assert isinstance(here, SignedIn)
    new = factor_enrollment.begin_authenticator_app(person(ada))
    phone = Authenticator(app, ada, secret_in(new.address))
    factor_enrollment.add_authenticator_app(person(ada), new.sealed, phone.shown(), known=here.known)
    guess(ada)
    known = replace(HERE, known=here.known)
    assert isinstance(verify(ada, begin(ada, known), phone.code(), known), SignedIn)


def test_patience_does_not_pass_the_bound_of_all_codes(
    ada: Any, phone: Authenticator, known: Browser
) -> None:
    """MF-3, LK-1: a hard cap, which the owner's sign-in ends."""
    guess(ada, times=1)
    set_rows(
        SecondFactorTry, failures=0, total=MAX_TOTAL_FAILURES, failed_at=clock.now() - timedelta(days=29)
    )
    capped = verify(ada, begin(ada, THERE), phone.code(), THERE)
    assert capped.is_capped and timedelta(hours=23) < timedelta(seconds=capped.retry_after) < timedelta(
        days=2
    )
    assert isinstance(verify(ada, begin(ada, known), phone.code(), known), SignedIn)
    assert isinstance(verify(ada, begin(ada, THERE), phone.code(), THERE), SignedIn)


def test_slow_guesses_count_for_the_bound_and_a_month_ends_it(ada: Any, phone: Authenticator) -> None:
    for _ in range(3):
        guess(ada, times=1)
        set_rows(SecondFactorTry, failed_at=clock.now() - timedelta(days=1))
    assert db.session.scalars(select(SecondFactorTry.total)).all() == [3]
    db.session.remove()
    set_rows(SecondFactorTry, total=MAX_TOTAL_FAILURES, failed_at=clock.now() - timedelta(days=31))
    assert isinstance(verify(ada, begin(ada, THERE), phone.code(), THERE), SignedIn)


def test_a_recovery_code_does_not_wait(ada: Any, phone: Authenticator) -> None:
    """MF-4: nobody guesses one, so nobody keeps its owner from it."""
    guess(ada)
    waiting = begin(ada, THERE)
    assert verify(ada, waiting, phone.code(), THERE).retry_after > 0
    assert isinstance(verify(ada, waiting, "aaaa-" + phone.codes[0][5:], THERE), InvalidCode)
    assert isinstance(verify(ada, waiting, phone.codes[0], THERE), SignedIn)


def test_after_a_reset_of_the_factors_no_browser_has_given_one(
    app: Any, make: Any, ada: Any, known: Browser
) -> None:
    factor_resets.reset_user_factors(make.actor(ada.organization), ada.public_id)
    with_app(app, ada)
    guess(ada)
    assert guess(ada, known, times=1)[0].retry_after > 0
