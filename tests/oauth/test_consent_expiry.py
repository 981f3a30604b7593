"""Consent expiry: chosen by the user or limited by the organization; nothing outlives its consent."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from flask.testing import FlaskClient

from app.extensions import db
from app.models.grant import AuthorizationCode, Consent, Grant
from app.models.token import AccessToken
from app.operations.authorization.connected_apps import list_consents
from app.operations.organizations.settings import update_settings
from app.operations.store import clock
from app.operations.store.transactions import transaction
from tests.factories import Factory
from tests.oauth.conftest import Flow, change_rows, is_consent, query_of
from tests.oauth.device import Device
from tests.support.databases import Database

EVERYTHING = "openid profile email offline_access"
DAY = timedelta(hours=24)


def ends_of(flow: Flow, model) -> list[datetime | None]:
    """Return the expiry times of the model's rows, newest last."""
    with flow.app.app_context():
        column = model.grant_ends_at if model is AuthorizationCode else model.expires_at
        return list(db.session.scalars(db.select(column).order_by(model.id)))


def now_of(flow: Flow) -> datetime:
    """Return the database time."""
    with flow.app.app_context():
        return clock.now()


def bound(flow: Flow, seconds: int | None) -> None:
    """Limit the consent lifetime of the organization."""
    with flow.app.app_context():
        changes = {"oauth": {"consent": {"ttl_seconds": seconds}}}
        update_settings(flow.make.system(flow.organization), flow.organization.slug, changes)


def is_about(value: datetime | None, expected: datetime) -> bool:
    """Return whether two times are equal within the duration of a test."""
    return value is not None and abs(value - expected) < timedelta(seconds=30)


def test_consent_page_offers_three_expiry_choices_and_defaults_to_the_last(asking: Flow) -> None:
    """CO-1: the page states the expiry in words and as a time."""
    text = asking.consent(scope=EVERYTHING).text
    assert all(f'id="lasts-{name}"' in text for name in ("today", "30_days", "until_removed"))
    assert text.index('value="until_removed" selected') and "24 hours" in text and "UTC" in text


def test_consent_for_today_expires_with_everything_it_allowed(asking: Flow) -> None:
    answer = asking.decide(asking.consent(scope=EVERYTHING), lasts="today")
    tokens = asking.redeem(query_of(answer)["code"]).get_json()
    tomorrow = now_of(asking) + DAY
    assert is_about(ends_of(asking, Consent)[0], tomorrow)
    assert ends_of(asking, AuthorizationCode) == ends_of(asking, Consent) == ends_of(asking, Grant)
    # The consent is still valid: a code issued without a page expires with it too.
    again = asking.redeem(query_of(asking.authorize(scope=EVERYTHING))["code"]).get_json()
    assert set(ends_of(asking, Grant)) == set(ends_of(asking, Consent))
    change_rows(asking, Grant, expires_at=now_of(asking) + timedelta(seconds=90))
    shortened = asking.refresh(again["refresh_token"]).get_json()
    assert 80 <= shortened["expires_in"] <= 90, "the access token ends with the grant"
    assert 80 <= asking.introspect(shortened["access_token"])["exp"] - now_of(asking).timestamp() <= 91
    change_rows(asking, Grant, expires_at=now_of(asking) - timedelta(seconds=1))
    change_rows(asking, Consent, expires_at=now_of(asking) - timedelta(seconds=1))
    for token in (tokens["refresh_token"], shortened["refresh_token"]):
        assert asking.refresh(token).get_json()["error"] == "invalid_grant"
    assert is_consent(asking.authorize(scope=EVERYTHING), asking)


def test_consent_can_last_thirty_days_or_until_removed(asking: Flow) -> None:
    asking.decide(asking.consent(scope="openid"), lasts="30_days")
    assert is_about(ends_of(asking, Consent)[0], now_of(asking) + timedelta(days=30))
    asking.decide(asking.consent(scope="openid", prompt="consent"), lasts="until_removed")
    assert ends_of(asking, Consent) == [None]


def test_longer_consent_does_not_extend_scopes_it_is_not_for(asking: Flow) -> None:
    """CO-2: the page did not mention them."""
    asking.decide(asking.consent(scope="openid email"), lasts="today")
    asking.decide(asking.consent(scope="openid profile"), lasts="until_removed")
    for scope in ("openid email", "openid profile"):
        assert "code" in query_of(asking.authorize(scope=scope, prompt="none"))
    *_, of_email, of_profile = ends_of(asking, AuthorizationCode)
    assert is_about(of_email, now_of(asking) + DAY) and of_profile is None
    # The day is over. A consent for another scope does not bring it back.
    with asking.app.app_context():
        shown = db.session.scalar(db.select(Consent.shown))
    ended = {"email": (now_of(asking) - timedelta(seconds=1)).isoformat()}
    change_rows(asking, Consent, shown={**shown, "expiries": ended})
    asking.decide(asking.consent(scope="openid profile", prompt="consent"))
    assert is_consent(asking.authorize(scope="openid email"), asking)
    with asking.app.app_context():
        [app] = list_consents(asking.make.actor(asking.organization, user=asking.user))
    assert app.scopes == ("openid", "profile")


def test_shorter_consent_shortens_existing_grants(asking: Flow) -> None:
    """Otherwise the app could continue with its earlier grant."""
    tokens = asking.tokens()
    assert asking.is_alive(tokens["access_token"])
    asking.decide(asking.consent(scope="openid", prompt="consent"), lasts="today")
    assert all(is_about(end, now_of(asking) + DAY) for end in ends_of(asking, Grant))


def test_shorter_consent_shortens_access_tokens_and_pending_codes(asking: Flow) -> None:
    """CO-3: nothing issued under a longer consent is valid after the shorter one."""
    tokens = asking.tokens()
    change_rows(asking, AccessToken, expires_at=now_of(asking) + DAY)
    code = query_of(asking.decide(asking.consent(scope=EVERYTHING, prompt="consent")))["code"]
    bound(asking, 3600)
    asking.decide(asking.consent(scope="openid", prompt="consent"))
    soon = now_of(asking) + timedelta(hours=1)
    assert is_about(ends_of(asking, AccessToken)[0], soon)
    assert asking.introspect(tokens["access_token"])["exp"] - now_of(asking).timestamp() <= 3601
    assert "refresh_token" in asking.redeem(code).get_json()
    assert all(is_about(end, soon) for end in ends_of(asking, Grant)), "the code was issued without an end"


@pytest.mark.parametrize(
    ("seconds", "chosen", "expected"),
    [
        (3600, "until_removed", timedelta(hours=1)),
        (7 * 86_400, "until_removed", timedelta(days=7)),
        (7 * 86_400, "today", DAY),
    ],
)
def test_shorter_of_user_and_organization_expiry_applies(
    asking: Flow, seconds: int, chosen: str, expected: timedelta
) -> None:
    bound(asking, seconds)
    page = asking.consent(scope="openid")
    assert ('id="lasts-30_days"' in page.text) is False
    asking.decide(page, lasts=chosen)
    assert is_about(ends_of(asking, Consent)[0], now_of(asking) + expected)


def test_limited_consent_is_offered_until_a_date_and_not_until_removed(asking: Flow) -> None:
    scopes = "openid offline_access"
    assert "Until I remove access" in asking.consent(scope=scopes).text
    bound(asking, 7 * 86_400)
    page = asking.consent(scope=scopes).text
    assert "Until I remove" not in page and "Until you remove" not in page and "at most" not in page.lower()
    last = page.partition('id="lasts-until_removed"')[2].partition("</option>")[0]
    assert "7 days, until " in last and "UTC" in last


def test_one_hour_limit_leaves_no_choice(asking: Flow) -> None:
    bound(asking, 3600)
    page = asking.consent(scope="openid")
    assert "Access expires after 1 hour" in page.text and 'type="radio"' not in page.text
    assert "code" in query_of(asking.decide(page))


@pytest.mark.parametrize("sent", ["", "forever", "30_days "])
def test_expiry_that_was_not_offered_is_rejected(asking: Flow, database: Database, sent: str) -> None:
    answer = asking.decide(asking.consent(scope="openid"), lasts=[sent] if sent else ())
    assert answer.status_code == 200 and 'id="consent-allow"' in answer.text
    assert database.count("authorization_codes") == database.count("consents") == 0


def test_expiry_that_is_no_longer_offered_shows_the_page_again(asking: Flow, database: Database) -> None:
    """IN-3: the organization tightened its limit while the page was open."""
    page = asking.consent(scope="openid")
    bound(asking, 3600)
    again = asking.decide(page, lasts="30_days")
    assert again.status_code == 200 and "Access expires after 1 hour" in again.text
    assert database.count("consents") == 0


def test_approved_device_that_has_not_polled_expires_too(
    http: FlaskClient, make: Factory, organization
) -> None:
    device = Device(http, make, make.user(organization))
    device.sign_in()
    codes = [device.code(scope="openid offline_access") for _ in range(2)]
    for code, lasts in zip(codes, ("until_removed", "today"), strict=True):
        page = device.press(device.enter(code["user_code"]), "device-continue")
        device.press(page, "consent-allow", lasts=lasts)
    assert "refresh_token" in device.poll(codes[0]["device_code"]).get_json()
    with device.make.app.app_context():
        assert is_about(db.session.scalar(db.select(Grant.expires_at)), clock.now() + DAY)
        ended_at = clock.now() - timedelta(seconds=1)
    device.change(grant_ends_at=ended_at)
    assert device.poll(codes[1]["device_code"]).get_json()["error"] == "invalid_grant"


def test_approved_device_gets_nothing_without_the_consent(
    http: FlaskClient, make: Factory, organization, database: Database
) -> None:
    """CD-8: a withdrawal at the moment of the approval expires only the codes that it finds."""
    device = Device(http, make, make.user(organization))
    device.sign_in()
    codes = device.code()
    device.allow(codes["user_code"])
    assert database.count("consents") == 1
    with device.make.app.app_context():
        transaction(db.session.execute)(db.delete(Consent).where(Consent.organization_id == organization.id))
    assert device.poll(codes["device_code"]).get_json()["error"] == "invalid_grant"


def test_optional_scopes_start_unchecked_and_stay_checked_once_allowed(asking: Flow) -> None:
    other = asking.other_client(
        optional_scopes=["email", "offline_access"], redirect_uris=["https://b.example/cb"]
    )
    page = other.consent(scope=EVERYTHING)
    assert 'value="email">' in page.text and '<input type="hidden" name="scope" value="profile">' in page.text
    document = other.redeem(query_of(other.decide(page))["code"]).get_json()
    assert document["scope"] == "openid profile" and "refresh_token" not in document
    page = other.consent(scope=EVERYTHING, prompt="consent")
    other.decide(page, scope=["email"])
    assert 'value="email" checked' in other.consent(scope=EVERYTHING, prompt="consent").text


def test_device_consent_expires_too(http: FlaskClient, make: Factory, organization) -> None:
    device = Device(http, make, make.user(organization))
    device.sign_in()
    codes = device.code(scope="openid offline_access")
    page = device.press(device.enter(codes["user_code"]), "device-continue")
    assert 'id="lasts-today"' in page.text
    assert 'id="device-allowed"' in device.press(page, "consent-allow", lasts="today").text
    tokens = device.poll(codes["device_code"]).get_json()
    assert "refresh_token" in tokens
    with device.make.app.app_context():
        assert is_about(db.session.scalar(db.select(Grant.expires_at)), clock.now() + DAY)
