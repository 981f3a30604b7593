"""Effects of user settings: sign-in, registration, second factors and sessions."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import requests
from sqlalchemy import delete, select, update

from app.extensions import db
from app.models.session import Attempt, Session
from app.operations.sign_in.passkey_registration import begin_registration, finish_registration
from app.operations.sign_in.sign_in import Browser
from app.rules.identifiers import new_id
from tests.factories import PASSWORD
from tests.support.authenticator import Authenticator
from tests.support.organization_probe import OrganizationProbe, numbers
from tests.support.security_key import Authenticator as Key

_TOKEN = re.compile(r'name="csrf_token" value="([^"]+)"')
GOOD = "nine small otters in a kiln"
_AUTH = "authentication."
DAY = 86_400


def _send(place: OrganizationProbe, path: str, **fields: str) -> requests.Response:
    """Submit a form of the organization from a signed-out browser."""
    if "stranger" not in place.notes:
        page = place.ask("GET", f"/organizations/{place.slug}/login")
        found = _TOKEN.search(page.text)
        assert found is not None
        place.notes["stranger"] = (page.cookies.get_dict(), found[1])
    cookies, token = place.notes["stranger"]
    return place.ask(
        "POST",
        f"/organizations/{place.slug}/{path}",
        data={"csrf_token": token} | fields,
        cookies=cookies,
        headers={"Sec-Fetch-Site": "same-origin"},
    )


def sent_cookies(answer: requests.Response) -> dict[str, str]:
    """Return the browser's cookies after the response."""
    sent = answer.request.headers["Cookie"].split("; ")
    return dict(cookie.split("=", 1) for cookie in sent) | answer.cookies.get_dict()


def _signs_up(password: str = GOOD) -> Callable[[OrganizationProbe], Any]:
    def probe(place: OrganizationProbe) -> Any:
        email = f"guest{next(numbers)}@meadow.example"
        return _send(place, "register", name="Ada Lovelace", email=email, password=password).status_code

    return probe


def _what_follows(place: OrganizationProbe) -> Any:
    email = f"guest{next(numbers)}@meadow.example"
    place_of = _send(place, "register", name="Ada Lovelace", email=email, password=GOOD)
    user = place.manage("GET", f"/users?q={email}")["data"]
    return len(user), place_of.status_code


def _roles_of_a_newcomer(place: OrganizationProbe) -> Any:
    email = f"guest{next(numbers)}@meadow.example"
    _send(place, "register", name="Ada Lovelace", email=email, password=GOOD)
    worker = place.worker
    [user] = place.manage("GET", f"/users?q={email}")["data"]
    place.worker = worker
    return user["roles"]


def _comes_in(place: OrganizationProbe) -> Any:
    """Return where a user lands after signing in: `account`, `enrol` or `verify`."""
    user = place.make.user(place.organization)
    answer = _send(place, "login", email=user.email, password=PASSWORD)
    return answer.headers["Location"].partition("?")[0].rpartition("/")[2]


def _may_put_off(place: OrganizationProbe) -> Any:
    """Return whether a user may postpone setting up a second factor."""
    user = place.make.user(place.organization)
    answer = _send(place, "login", email=user.email, password=PASSWORD)
    page = place.ask("GET", answer.headers["Location"], cookies=sent_cookies(answer))
    return 'id="enrol-later"' in page.text


def _tries_left(place: OrganizationProbe) -> Any:
    user = place.make.user(place.organization)
    text = _send(place, "login", email=user.email, password="nothing of the kind").text
    found = re.search(r"(\d+) attempts? left", text)
    return found and int(found[1])


def _wait(place: OrganizationProbe) -> Any:
    user = place.make.user(place.organization)
    for _ in range(3):
        answer = _send(place, "login", email=user.email, password="nothing of the kind")
    return round(int(answer.headers["Retry-After"]), -1)


def _aged(path: str = "profile", **ago: int) -> Callable[[OrganizationProbe], Any]:
    """Return the status of an account page for a session whose times are moved back."""

    def probe(place: OrganizationProbe) -> Any:
        user = place.make.user(place.organization)
        cookie = place.cookie_of(user)
        with place.make.app.app_context():
            values = {name: datetime.now(UTC) - timedelta(seconds=seconds) for name, seconds in ago.items()}
            mine = (Session.organization_id == place.organization.id, Session.user_id == user.id)
            db.session.execute(update(Session).where(*mine).values(**values))
            db.session.commit()
        return place.ask("GET", f"/organizations/{place.slug}/account/{path}", cookies=cookie).status_code

    return probe


def _sign_ins_held(place: OrganizationProbe) -> Any:
    user = place.make.user(place.organization)
    for _ in range(2):
        _send(place, "login", email=user.email, password=PASSWORD)
    worker = place.worker
    held = place.manage("GET", f"/users/{user.public_id}/sessions")["data"]
    place.worker = worker
    return len(held)


def _reset_life(place: OrganizationProbe) -> Any:
    user = place.make.user(place.organization)
    made = place.manage("POST", f"/users/{user.public_id}/reset")["data"]
    left = datetime.fromisoformat(made["expires_at"]) - datetime.now(UTC)
    return round(left.total_seconds(), -2)


def _window(place: OrganizationProbe) -> Any:
    """Return the result of a sign-in ten minutes after the number of failures that starts the delay."""
    user = place.make.user(place.organization)
    for _ in range(3):
        _send(place, "login", email=user.email, password="nothing of the kind")
    with place.make.app.app_context():
        for attempt in db.session.scalars(select(Attempt).filter_by(organization_id=place.organization.id)):
            attempt.at -= timedelta(minutes=10)
        db.session.commit()
    return _send(place, "login", email=user.email, password=PASSWORD).status_code


def _longest_wait(place: OrganizationProbe) -> Any:
    """Return the delay after ten wrong passwords, where the first is half an hour and doubles."""
    user = place.make.user(place.organization)
    of = {"organization_id": place.organization.id}
    with place.make.app.app_context():
        db.session.execute(delete(Attempt).filter_by(**of))
        db.session.commit()
    _send(place, "login", email=user.email, password="nothing of the kind")
    with place.make.app.app_context():
        for attempt in db.session.scalars(select(Attempt).filter_by(**of)).all():
            more = {"bucket": attempt.bucket, "at": attempt.at, "expires_at": attempt.expires_at}
            db.session.add_all(Attempt(id=new_id(), **of, **more) for _ in range(9))
        db.session.commit()
    answer = _send(place, "login", email=user.email, password="nothing of the kind")
    return round(int(answer.headers["Retry-After"]), -2)


def _signs_in(place: OrganizationProbe) -> Any:
    """Return the result of a password sign-in by a user with a passkey, without which passwords cannot be
    disabled.
    """
    user = place.make.user(place.organization)
    if "key" not in place.notes:
        place.notes["key"] = Key(place.server.url)
        with place.make.app.app_context():
            actor, here = place.make.actor(place.organization, user=user), Browser("here")
            finish_registration(actor, place.notes["key"].create(begin_registration(actor, here)), "", here)
    return _send(place, "login", email=user.email, password=PASSWORD).status_code


def _codes_given(place: OrganizationProbe) -> Any:
    """Return how many recovery codes come with an authenticator app."""
    user = place.make.user(place.organization)
    path = f"/organizations/{place.slug}/account/security/app"
    page = place.ask("GET", path, cookies=place.cookie_of(user))
    fields = dict(re.findall(r'name="(csrf_token|secret)" value="([^"]+)"', page.text))
    key = re.search(r'id="app-key">([^<]+)<', page.text)
    assert key is not None
    fields["code"] = Authenticator(place.make.app, user, key[1].replace(" ", "")).shown()
    headers = {"Sec-Fetch-Site": "same-origin"}
    done = place.ask("POST", path, data=fields, cookies=sent_cookies(page), headers=headers)
    # The next page shows them once.
    cookies = sent_cookies(page) | sent_cookies(done)
    return place.ask("GET", done.headers["Location"], cookies=cookies).text.count("<li><code>")


def _security(needle: str) -> Callable[[OrganizationProbe], Any]:
    return lambda place: needle in place.page("/account/security", signed_in=True)


def _login(needle: str) -> Callable[[OrganizationProbe], Any]:
    return lambda place: needle in place.page("/login")


OPEN = {f"{_AUTH}registration.mode": "open", f"{_AUTH}registration.verify_email": False}
THREE_TRIES = {
    f"{_AUTH}lockout.max_failures": 3,
    f"{_AUTH}lockout.delay_seconds": 1800,
    f"{_AUTH}lockout.max_delay_seconds": 1800,
}
DEMANDED = {f"{_AUTH}mfa.policy": "required"}
Effect = tuple[Callable[[OrganizationProbe], Any], list[tuple[Any, Any]], dict[str, Any]]
EFFECTS: dict[str, Effect] = {
    "authentication.password.enabled": (_signs_in, [(True, 303), (False, 403)], {}),
    "authentication.passkeys.enabled": (_security('id="passkeys-link"'), [(False, False), (True, True)], {}),
    "authentication.passkeys.passwordless": (_login('id="passkey-sign-in"'), [(False, False), (True, True)], {}),
    "authentication.recovery.password_reset": (
        lambda place: 'id="forgot-submit"' in place.page("/forgot"), [(False, False), (True, True)], {},
    ),
    "authentication.mfa.recovery_codes": (_codes_given, [(6, 6), (12, 12)], {}),
    "authentication.lockout.window_seconds": (
        _window, [(3600, 429), (300, 303)], THREE_TRIES,
    ),
    "authentication.lockout.max_delay_seconds": (
        _longest_wait, [(3600, 3600), (7200, 7200)], THREE_TRIES,
    ),
    "authentication.password.block_common": (_signs_up("password1234"), [(True, 400), (False, 303)], OPEN),
    "authentication.password.block_personal": (_signs_up("ada lovelace"), [(True, 400), (False, 303)], OPEN),
    "authentication.registration.allowed_email_domains": (
        _signs_up(), [(["orchard.example"], 400), (["meadow.example"], 303)], OPEN,
    ),
    "authentication.registration.verify_email": (
        _what_follows, [(True, (0, 303)), (False, (1, 303))], {f"{_AUTH}registration.mode": "open"},
    ),
    "authentication.registration.default_roles": (
        _roles_of_a_newcomer, [([], []), (["member"], ["member"])], OPEN,
    ),
    "authentication.recovery.reset_ttl_seconds": (_reset_life, [(7200, 7200), (3600, 3600)], {}),
    "authentication.mfa.policy": (
        _comes_in, [("required", "enrol"), ("optional", "account")], {f"{_AUTH}mfa.grace_period_seconds": 0},
    ),
    "authentication.mfa.grace_period_seconds": (_may_put_off, [(0, False), (DAY, True)], DEMANDED),
    "authentication.mfa.methods": (
        _security('id="app-add"'), [(["passkey"], False), (["totp", "passkey"], True)], {},
    ),
    "authentication.lockout.max_failures": (_tries_left, [(4, 3), (6, 5)], {}),
    "authentication.lockout.delay_seconds": (
        _wait, [(120, 120), (60, 60)], {f"{_AUTH}lockout.max_failures": 3},
    ),
    "authentication.sessions.idle_timeout_seconds": (
        _aged(created_at=7200, last_seen_at=3600), [(7200, 200), (1800, 303)], {},
    ),
    "authentication.sessions.absolute_timeout_seconds": (
        _aged(created_at=7200), [(DAY, 200), (3600, 303)], {f"{_AUTH}sessions.idle_timeout_seconds": 1800},
    ),
    "authentication.sessions.reauthentication_seconds": (
        _aged("delete", authenticated_at=3600),
        [(7200, 200), (1800, 303)],
        {"user_permissions.members_can_delete_account": True},
    ),
    "authentication.sessions.max_per_user": (_sign_ins_held, [(1, 1), (None, 2)], {}),
}  # fmt: skip
