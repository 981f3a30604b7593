"""Secrets of a client: revealing, adding, rotating and revoking them."""

from __future__ import annotations

import re
from typing import Any

import pytest

SECRET = re.compile(r"gth_cs_[A-Za-z0-9_-]{40,}")
ACTION = re.compile(r'(?:action|href)="[^"]*/credentials/(sec_[a-z0-9]+)/')


@pytest.fixture
def orchard(make: Any, acme: Any) -> Any:
    """Return a client with one secret."""
    return make.client(acme)


def _path(client: Any, rest: str = "") -> str:
    return f"/clients/{client.client_id}/credentials{rest}"


def _ids(portal_user: Any, client: Any) -> list[str]:
    return list(dict.fromkeys(ACTION.findall(portal_user.get(_path(client)).text)))


def test_page_shows_client_id_and_masks_secret(ada: Any, orchard: Any) -> None:
    answer = ada.get(_path(orchard))

    assert orchard.client_id in ada.text
    assert orchard.secret not in answer.text
    assert f"••••{orchard.registered.credential.hint}" in answer.text


def test_rotate_button_chooses_that_the_old_secret_expires(ada: Any, orchard: Any) -> None:
    assert f"{_path(orchard)}/new?others=retire" in ada.get(_path(orchard)).text
    for path, chosen in (("/new", "keep"), ("/new?others=retire", "retire")):
        assert re.findall(r'value="(\w+)" required checked', ada.get(_path(orchard, path)).text) == [chosen]


def test_reveal_shows_secret_and_is_audited(ada: Any, orchard: Any, database: Any) -> None:
    (secret_id,) = _ids(ada, orchard)

    answer = ada.submit(_path(orchard, f"/{secret_id}/reveal"))

    assert orchard.secret in answer.text and orchard.secret not in ada.get(_path(orchard)).text
    assert answer.headers["Cache-Control"] == "no-store"
    assert (
        database.query(
            "SELECT COUNT(*) FROM audit_events WHERE CAST(action AS CHAR) = 'credential.revealed'"
        )[0][0]
        == 1
    )


def test_reveal_requires_fresh_sign_in(ada: Any, orchard: Any, database: Any) -> None:
    (secret_id,) = _ids(ada, orchard)
    database.query("UPDATE sessions SET authenticated_at = '2026-01-01 00:00:00'")

    answer = ada.send(_path(orchard, f"/{secret_id}/reveal"))

    assert answer.status_code == 303 and "reauthenticate=1" in answer.headers["Location"]
    assert orchard.secret not in answer.text
    assert not database.query(
        "SELECT id FROM audit_events WHERE CAST(action AS CHAR) = 'credential.revealed'"
    )


def test_reveal_link_shows_form_without_secret(ada: Any, orchard: Any) -> None:
    (secret_id,) = _ids(ada, orchard)

    answer = ada.get(_path(orchard, f"/{secret_id}/reveal"))

    assert answer.status_code == 200 and orchard.secret not in answer.text


def test_secrets_shown_once_cannot_be_revealed(make: Any, portal_user: Any) -> None:
    acme = make.organization("acme", settings={"oauth": {"clients": {"secret_display": "once"}}})
    ada, client = portal_user(acme), make.client(acme)

    ada.get(_path(client))

    assert "/reveal" not in ada.page.text
    (secret_id,) = _ids(ada, client)
    assert ada.send(_path(client, f"/{secret_id}/reveal")).status_code == 409


def test_added_secret_keeps_first_one_active(ada: Any, orchard: Any) -> None:
    answer = ada.submit(_path(orchard, "/new"), name="second", others="keep")

    assert SECRET.search(answer.text)
    assert len(_ids(ada, orchard)) == 2
    assert "Deploy the new secret" not in ada.text


def test_rotation_expires_first_secret_and_can_be_cancelled(ada: Any, orchard: Any) -> None:
    ada.submit(_path(orchard, "/new"), name="next", others="retire")
    assert "Deploy the new secret before then" in ada.text

    ada.get(_path(orchard))
    assert (
        "next expires in 24 hours" in ada.text
        or "expires in 24 hours" in ada.text
        or "expires in 1 day" in ada.text
    )
    ada.send(_path(orchard, "/rotation/cancel"))
    ada.follow()

    assert "Rotation cancelled" in ada.text
    assert "Deploy the new secret" not in ada.text


def test_rotation_is_updated_and_finished(ada: Any, orchard: Any) -> None:
    ada.send(_path(orchard, "/new"), name="next", others="retire", revoke_tokens="1")
    ada.get(_path(orchard))
    assert "View rotation" in ada.text
    ada.get(_path(orchard, "/rotation"))
    assert "Neither secret has been used yet" in ada.text and "Ready to finish" not in ada.text
    ada.send(_path(orchard, "/rotation/update"), expires_in_seconds="604800")
    ada.follow()
    assert "in 7 days" in ada.text or "in 6 days" in ada.text
    for refused in ("soon", "9" * 5_000):
        assert ada.send(_path(orchard, "/rotation/update"), expires_in_seconds=refused).status_code == 400
    ada.get(_path(orchard, "/rotation"))
    ada.send(_path(orchard, "/rotation/update"), expires_in_seconds="0")
    ada.follow()
    assert "Rotation finished" in ada.text and len(_ids(ada, orchard)) == 1
    assert ada.get(_path(orchard, "/rotation")).status_code == 303


def test_revocation_requires_confirmation(ada: Any, orchard: Any) -> None:
    ada.send(_path(orchard, "/new"), name="second", others="keep")
    newest = _ids(ada, orchard)[0]
    ada.get(_path(orchard, f"/{newest}/revoke"))
    assert "Impact" in ada.text and "last secret" not in ada.text

    ada.send(_path(orchard, f"/{newest}/revoke"), revoke_tokens="1")
    ada.follow()

    assert "along with every token issued with it" in ada.text
    assert len(_ids(ada, orchard)) == 1
    assert "Inactive secrets (1)" in ada.text


def test_revocation_of_last_secret_requires_fresh_sign_in(ada: Any, orchard: Any, database: Any) -> None:
    (only,) = _ids(ada, orchard)
    ada.get(_path(orchard, f"/{only}/revoke"))
    assert "This is the last secret" in ada.text
    database.query("UPDATE sessions SET authenticated_at = '2026-01-01 00:00:00'")

    answer = ada.send(_path(orchard, f"/{only}/revoke"))

    assert answer.status_code == 303 and "reauthenticate=1" in answer.headers["Location"]
    assert _ids(ada, orchard) == [only]


def test_too_many_secrets_show_error(make: Any, portal_user: Any) -> None:
    acme = make.organization("acme", settings={"oauth": {"clients": {"max_secrets": 2}}})
    ada, client = portal_user(acme), make.client(acme)
    ada.send(_path(client, "/new"), name="second", others="keep")

    ada.get(_path(client))
    assert "Add a secret" not in ada.text
    answer = ada.send(_path(client, "/new"), name="third", others="keep")

    assert answer.status_code == 409 and "Revoke one first" in ada.text


def test_auditor_sees_client_without_secrets(make: Any, acme: Any, portal_user: Any, orchard: Any) -> None:
    auditor = portal_user(acme, role="auditor")

    answer = auditor.get(_path(orchard))

    assert answer.status_code == 200
    assert "You don't have access to this client's secrets" in auditor.text
    assert orchard.registered.credential.hint not in answer.text
    assert auditor.get(_path(orchard, "/new")).status_code == 403


def test_secret_of_another_client_is_not_found(make: Any, acme: Any, ada: Any, orchard: Any) -> None:
    other = make.client(acme, name="Other")
    (foreign,) = _ids(ada, other)

    for act in ("reveal", "revoke"):
        assert ada.get(_path(orchard, f"/{foreign}/{act}")).status_code == 404
        assert ada.get(_path(orchard, f"/sec_nonsense/{act}")).status_code == 404


def test_fresh_sign_in_leads_back_to_secret(ada: Any, orchard: Any, database: Any) -> None:
    (secret_id,) = _ids(ada, orchard)
    database.query("UPDATE sessions SET authenticated_at = '2026-01-01 00:00:00'")
    ada.send(_path(orchard, f"/{secret_id}/reveal"))

    ada.page = ada.http.get(ada.page.headers["Location"])
    assert ada.page.status_code == 200 and 'name="password"' in ada.page.text
    state = {name: ada.hidden(name) for name in ("csrf_token", "next", "reauthenticate")}
    ada.page = ada.http.post(
        "/organizations/acme/login",
        data={"email": ada.user.email, "password": ada.user.password, **state},
        headers={"Sec-Fetch-Site": "same-origin"},
    )
    ada.follow()
    assert "Reveal secret" in ada.text

    assert orchard.secret in ada.submit(_path(orchard, f"/{secret_id}/reveal")).text
