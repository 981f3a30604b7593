"""After a run of all flows at debug level, no secret is in the database or in the logs (TK-2, LG-1)."""

from __future__ import annotations

import re
import time
from base64 import b64encode

import pytest
import requests

from tests.factories import PASSWORD
from tests.journeys.conftest import REDIRECT_URI, VERIFIER, Journey
from tests.support.form_browser import FormBrowser


@pytest.fixture
def journey(live_server, live_make):  # type: ignore[no-untyped-def]
    organization = live_make.organization()
    scopes = ["openid", "email", "offline_access"]
    client = live_make.client(organization, redirect_uris=[REDIRECT_URI], scopes=scopes)
    return Journey(live_server, live_make, client, live_make.user(organization, role="admin"))


def post(url: str, **arguments: object) -> requests.Response:
    return requests.post(url, timeout=60, **arguments)  # type: ignore[arg-type]


def canaries(journey: Journey) -> dict[str, str]:
    """Return every secret that one run of all flows issues or accepts, by its kind."""
    visitor = FormBrowser(journey.server.url)
    wrong = "a-wrong-password-typed-by-a-user-4711"
    url, _ = journey.session(scope="openid email offline_access").create_authorization_url(
        journey.metadata()["authorization_endpoint"], code_verifier=VERIFIER
    )
    sign_in_page = visitor.visit(url)
    interaction = {name: value for name, value in sign_in_page.query.items() if value.startswith("gth_")}
    refused = visitor.sign_in(sign_in_page, journey.user.email, wrong)
    page = visitor.press(refused, "login-submit", username=journey.user.email, password=PASSWORD)
    if page.left is None:
        page = visitor.press(page, "consent-allow")
    endpoint = journey.metadata()["token_endpoint"]
    form = {"grant_type": "authorization_code", "code": page.query["code"], "code_verifier": VERIFIER}
    basic = journey.client.basic
    first = post(endpoint, data=form | {"redirect_uri": REDIRECT_URI}, headers=basic).json()
    again = {"grant_type": "refresh_token", "refresh_token": first["refresh_token"]}
    second = post(endpoint, data=again, headers=basic).json()
    post(endpoint, data={"grant_type": "refresh_token", "refresh_token": "gth_rt_nonsense"}, headers=basic)
    machine = journey.make.machine(journey.client.organization)
    session_token = post(endpoint, data={"grant_type": "client_credentials"}, headers=machine.basic).json()[
        "access_token"
    ]
    bearer = {"Authorization": f"Bearer {session_token}"}
    base = journey.server.url
    made = post(f"{base}/clients/{journey.client.client_id}/credentials", json={}, headers=bearer).json()[
        "data"
    ]
    revealed = requests.get(
        f"{base}/clients/{journey.client.client_id}/credentials", headers=bearer, timeout=60
    )
    assert revealed.ok, revealed.text
    organization = journey.client.organization.slug
    body = {"organization_id": organization, "token_type": "access_token", "token": second["access_token"]}
    assert post(f"{base}/api/v1/revoke", json=body, headers=bearer).ok
    invited = post(
        f"{base}/organizations/{organization}/admins",
        json={"email": "grace@example.com", "name": "Grace"},
        headers=bearer,
    )
    invitation = re.search(r"gth_iv_[A-Za-z0-9_-]+", invited.text)
    assert invitation is not None, invited.text
    cookies = {f"cookie {cookie.name}": cookie.value or "" for cookie in visitor.session.cookies}
    return {
        **{f"interaction {name}": value for name, value in interaction.items()},
        **{name: value for name, value in cookies.items() if value.startswith("gth_ss_")},
        "code": page.query["code"],
        "first access token": first["access_token"],
        "first refresh token": first["refresh_token"],
        "second access token": second["access_token"],
        "second refresh token": second["refresh_token"],
        "id token": first["id_token"],
        "machine token": session_token,
        "machine secret": machine.secret,
        "client secret": journey.client.secret,
        "new client secret": made["client_secret"],
        "invitation": invitation[0],
        "password": PASSWORD,
        "wrong password": wrong,
        "code verifier": VERIFIER,
    }


def refuse_all(journey: Journey, secrets: dict[str, str]) -> None:
    """Send each secret in a request that is rejected: the log of failed requests stores none of them."""
    endpoint, client_id = f"{journey.server.url}/oauth", journey.client.client_id
    for secret in secrets.values():
        # Secrets of this service and signed ones are recognized anywhere, others by the name of their parameter.
        anywhere = secret if secret.startswith(("gth_", "eyJ")) else "nothing"
        forms = (
            {"grant_type": "authorization_code", "code": secret, "code_verifier": secret, "state": secret},
            {"grant_type": "refresh_token", "refresh_token": f"{secret}x", "scope": anywhere},
            {"grant_type": anywhere, "password": secret, "redirect_uri": f"https://x.example/#{anywhere}"},
            {"grant_type": "client_credentials", "client_secret": secret, "client_id": client_id},
        )
        for form in forms:
            headers = {} if "client_secret" in form else journey.client.basic
            post(f"{endpoint}/token", data=form, headers=headers)
        query = {"client_id": client_id, "redirect_uri": f"https://x.example/{anywhere}", "nonce": secret}
        assert requests.get(f"{endpoint}/authorize", params=query, timeout=60).status_code == 400


def wait_for_the_log(journey: Journey) -> None:
    """Wait until the workers have written what they buffer."""
    last = -1
    for _ in range(40):
        [(count,)] = journey.server.database.query("SELECT COUNT(*) FROM failed_requests")
        if count == last > 0:
            return
        last = count
        time.sleep(0.8)
    raise AssertionError("no failed requests were written")


def forms(secret: str) -> list[bytes]:
    """Return the encodings in which a secret might be stored."""
    raw = secret.encode()
    return [raw, raw.hex().encode(), b64encode(raw).rstrip(b"="), raw[::-1]]


def test_no_secret_is_stored_or_logged_in_clear(journey: Journey) -> None:
    secrets = canaries(journey)
    refuse_all(journey, secrets)
    wait_for_the_log(journey)
    dump, logs = journey.server.database.dump(), journey.server.logs().encode()
    # The dump and the log are the right ones: they contain values that are not secret.
    assert journey.user.email.encode() in dump
    assert b"/oauth/token" in logs
    kept = [
        f"{name} in the {where}"
        for name, secret in secrets.items()
        for where, text in (("database", dump), ("log", logs))
        if any(form in text for form in forms(secret))
    ]
    assert kept == []


def test_instance_keys_are_not_in_the_database(journey: Journey) -> None:
    dump = journey.server.database.dump()
    for file in journey.server.instance.glob("*.key"):
        key = bytes.fromhex(file.read_text().strip())
        assert file.stat().st_mode & 0o077 == 0
        assert key not in dump
        assert key.hex().encode() not in dump
    assert list(journey.server.instance.glob("*.key"))
    assert b"PRIVATE KEY" not in dump
