"""Authenticator apps: proved before they count, sealed, and each of their codes of use once."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import select, update

from app.extensions import db
from app.models.second_factor import AuthenticatorApp, PendingSignIn, SecondFactorTry
from app.operations.sign_in import factor_enrollment, second_factors
from app.operations.sign_in.factor_verification import InvalidCode, verify_code
from app.operations.sign_in.passwords import change_password
from app.operations.sign_in.pending_sign_ins import SignInEnded
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.sign_in.sign_in import Browser, SecondStepRequired, SignedIn, SignInRefused, sign_in
from app.operations.store.transactions import transaction
from app.operations.users.deletion import delete_user
from app.operations.users.user_status import disable_user
from app.rules import sealing
from app.rules.actor import Actor
from app.rules.errors import Conflict, Forbidden, InvalidInput
from tests.factories import PASSWORD
from tests.oauth.conftest import audited
from tests.support.authenticator import Authenticator, person, secret_in, set_rows, with_app
from tests.support.databases import Database

pytestmark = pytest.mark.usefixtures("context")
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
BROWSER = Browser("this browser", "tests")


@pytest.fixture
def acme(make: Any) -> Any:
    return make.organization(name="Acme")


@pytest.fixture
def ada(make: Any, acme: Any) -> Any:
    return make.user(acme, email="ada@acme.example")


@pytest.fixture
def phone(app: Any, ada: Any) -> Authenticator:
    return with_app(app, ada)


def begin(user: Any, browser: Browser = BROWSER) -> str:
    """The token of the sign-in that waits after the password."""
    step = sign_in(user.organization.id, user.email, PASSWORD, browser_id=browser.id)
    assert isinstance(step, SecondStepRequired), step
    return step.token


def verify(user: Any, token: str, code: str, browser: Browser = BROWSER) -> Any:
    stranger = Actor.anonymous(user.organization.id, "192.0.2.7")
    return verify_code(stranger, user.organization, token, code, browser)


def test_an_app_needs_a_fresh_sign_in_and_a_code_that_it_shows(app: Any, ada: Any) -> None:
    """MF-2: neither a stale sign-in nor a wrong code sets up a factor."""
    who = person(ada)
    new = factor_enrollment.begin_authenticator_app(who)
    shown = Authenticator(app, ada, secret_in(new.address)).shown()
    with pytest.raises(FreshSignInRequired):
        factor_enrollment.add_authenticator_app(person(ada, ago_seconds=3600), new.sealed, shown)
    wrong = f"{(int(shown) + 1) % 10**6:06}"
    with pytest.raises(InvalidInput) as refused:
        factor_enrollment.add_authenticator_app(who, new.sealed, wrong)
    assert [(error.field, error.code) for error in refused.value.errors] == [("code", "wrong_code")]
    assert second_factors.find_authenticator_app(ada.organization.id, ada.id) is None
    assert len(factor_enrollment.add_authenticator_app(who, new.sealed, shown).codes) == 10
    assert second_factors.find_authenticator_app(ada.organization.id, ada.id) is not None


def test_a_page_of_another_user_organization_or_day_sets_up_nothing(
    app: Any, make: Any, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MF-2, SE-6: the secret in the form is sealed for its owner, and for half an hour."""
    new = factor_enrollment.begin_authenticator_app(person(ada))
    shown = Authenticator(app, ada, secret_in(new.address)).shown()
    for other in (make.user(ada.organization), make.user(make.organization())):
        with pytest.raises(InvalidInput):
            factor_enrollment.add_authenticator_app(person(other), new.sealed, shown)
    for broken in ("", "AAAA", new.sealed[:-4], "é" * 40):
        with pytest.raises(InvalidInput):
            factor_enrollment.add_authenticator_app(person(ada), broken, shown)
    monkeypatch.setattr(factor_enrollment, "SETUP_LIFETIME", -factor_enrollment.SETUP_LIFETIME)
    old = factor_enrollment.begin_authenticator_app(person(ada))
    with pytest.raises(InvalidInput) as refused:
        factor_enrollment.add_authenticator_app(person(ada), old.sealed, shown)
    assert refused.value.errors[0].code == "page_too_old"


def test_the_secret_lies_sealed_and_opens_nowhere_else(
    make: Any, ada: Any, phone: Authenticator, database: Database
) -> None:
    """MF-2, SE-6: moved to another user's row it opens for nobody."""
    secret = base64.b32decode(phone.secret)
    [(sealed,)] = database.query("SELECT sealed_secret FROM authenticator_apps")
    assert secret not in bytes(sealed)
    assert second_factors.open_secret(ada.organization.id, ada.id, "app", bytes(sealed)) == secret
    eve = make.user(ada.organization)
    with pytest.raises(sealing.UnsealError):
        second_factors.open_secret(ada.organization.id, eve.id, "app", bytes(sealed))
    with pytest.raises(sealing.UnsealError):
        second_factors.open_secret(ada.organization.id, ada.id, "enrolment", bytes(sealed))


def test_a_code_counts_once_also_the_one_that_set_the_app_up(ada: Any, phone: Authenticator) -> None:
    """MF-1."""
    assert verify(ada, begin(ada), phone.shown()) == InvalidCode(4)
    code = phone.code()
    assert isinstance(verify(ada, begin(ada), code), SignedIn)
    assert verify(ada, begin(ada), code) == InvalidCode(4)


def test_a_code_of_an_earlier_step_counts_no_more(ada: Any, phone: Authenticator) -> None:
    """MF-1: ``last_step < :s`` – an older code was seen by whoever looked over the shoulder."""

    @transaction
    def later() -> None:
        db.session.execute(update(AuthenticatorApp).values(last_step=AuthenticatorApp.last_step + 5))

    later()
    assert verify(ada, begin(ada), phone.shown()) == InvalidCode(4)


def test_an_app_is_asked_for_and_what_was_used_is_told(
    ada: Any, phone: Authenticator, database: Database
) -> None:
    """MF-6: the right password alone is no sign-in."""
    signed_in = verify(ada, begin(ada), phone.code())
    assert isinstance(signed_in, SignedIn)
    [(amr,)] = database.query("SELECT CAST(amr AS CHAR) FROM sessions")
    assert amr == "pwd otp mfa"
    assert audited(database, "sign_in.first_proof_given") == 1
    assert audited(database, "session.started") == 1


def test_a_sign_in_that_waits_counts_in_its_browser_once_and_for_minutes(
    ada: Any, phone: Authenticator, database: Database
) -> None:
    """MF-6: bound to organization and browser."""
    token = begin(ada)
    for browser in (Browser("another"), Browser("")):
        with pytest.raises(SignInEnded):
            verify(ada, token, phone.code(), browser)
    assert isinstance(verify(ada, token, phone.code()), SignedIn)
    with pytest.raises(SignInEnded):
        verify(ada, token, phone.code())
    late = begin(ada)
    set_rows(PendingSignIn, expires_at=LONG_AGO)
    with pytest.raises(SignInEnded):
        verify(ada, late, phone.code())


def test_what_waits_to_be_verified_is_no_enrolment(ada: Any, phone: Authenticator) -> None:
    """MF-6: another factor set up in place of the one that is there would be a way around it."""
    waiting = begin(ada)
    with pytest.raises(SignInEnded):
        factor_enrollment.get_pending_enrollment(ada.organization, waiting, BROWSER.id)
    stranger = Actor.anonymous(ada.organization.id)
    with pytest.raises(SignInEnded):
        factor_enrollment.add_authenticator_app_at_sign_in(
            stranger, ada.organization, waiting, "", phone.code(), BROWSER
        )


def test_a_token_of_another_organization_is_no_sign_in_here(make: Any, app: Any, ada: Any) -> None:
    """TN-2."""
    with_app(app, ada)
    globex = make.organization()
    with pytest.raises(SignInEnded):
        verify_code(Actor.anonymous(globex.id), globex, begin(ada), "123456", BROWSER)


def test_five_wrong_codes_end_what_waits_in_every_browser(
    ada: Any, phone: Authenticator, database: Database
) -> None:
    """MF-3: counted for the user, not for the browser, and a new sign-in does not start the count again."""
    tokens = [begin(ada, Browser(f"browser {number}")) for number in range(5)]
    outcomes = [verify(ada, token, "000000", Browser(f"browser {n}")) for n, token in enumerate(tokens)]
    assert [(wrong.attempts_left, wrong.has_ended) for wrong in outcomes] == [
        (4, False),
        (3, False),
        (2, False),
        (1, False),
        (0, True),
    ]
    assert database.count("pending_sign_ins") == 0
    with pytest.raises(SignInEnded):
        verify(ada, tokens[0], phone.code(), Browser("browser 0"))
    waiting = verify(ada, begin(ada), phone.code())
    assert isinstance(waiting, InvalidCode) and 0 < waiting.retry_after <= 60 and not waiting.has_ended
    assert audited(database, "second_factor.failed") == 5
    set_rows(SecondFactorTry, failed_at=LONG_AGO)
    assert isinstance(verify(ada, begin(ada), phone.code()), SignedIn)


def test_a_right_code_starts_the_count_again(ada: Any, phone: Authenticator) -> None:
    """MF-3."""
    for _ in range(2):
        token = begin(ada)
        for left in (4, 3, 2, 1):
            assert verify(ada, token, "000000") == InvalidCode(left)
        assert isinstance(verify(ada, token, phone.code()), SignedIn)


def test_other_sign_ins_and_waiting_ones_end_when_a_factor_is_added(
    make: Any, ada: Any, app: Any, database: Database
) -> None:
    """SS-6."""
    make.sign_in(ada)
    with_app(app, ada)
    assert database.count("sessions") == 0
    begin(ada)
    assert database.count("pending_sign_ins") == 1
    change_password(person(ada), PASSWORD, "a wholly different password")
    assert database.count("pending_sign_ins") == 0


def test_a_second_app_takes_no_place_and_a_method_that_is_off_is_refused(
    make: Any, app: Any, ada: Any, phone: Authenticator
) -> None:
    who = person(ada, amr=("pwd", "otp", "mfa"))
    new = factor_enrollment.begin_authenticator_app(who)
    with pytest.raises(Conflict):
        factor_enrollment.add_authenticator_app(
            who, new.sealed, Authenticator(app, ada, secret_in(new.address)).shown()
        )
    off = make.organization(settings={"authentication": {"mfa": {"methods": ["passkey"]}}})
    eve = make.user(off)
    other = factor_enrollment.begin_authenticator_app(person(eve))
    with pytest.raises(Conflict) as refused:
        factor_enrollment.add_authenticator_app(
            person(eve), other.sealed, Authenticator(app, eve, secret_in(other.address)).shown()
        )
    assert refused.value.code == "method_not_allowed"


def test_an_account_is_changed_by_its_owner_at_home_alone(make: Any, ada: Any) -> None:
    root = make.root()
    visiting = Actor("user", ada.organization.id, root.id, user_id=ada.id)
    with pytest.raises(Forbidden):
        factor_enrollment.begin_authenticator_app(visiting)


def test_a_disabled_user_finishes_no_sign_in(make: Any, acme: Any, ada: Any, phone: Authenticator) -> None:
    token = begin(ada)
    disable_user(make.actor(acme), ada.id)
    with pytest.raises(SignInEnded):
        verify(ada, token, phone.code())
    assert isinstance(sign_in(acme.id, ada.email, PASSWORD), SignInRefused)


def test_a_deleted_user_leaves_no_factor(make: Any, acme: Any, ada: Any, phone: Authenticator) -> None:
    delete_user(make.actor(acme), ada.public_id)
    assert db.session.scalars(select(AuthenticatorApp)).all() == []
