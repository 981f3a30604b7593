"""Authorization codes: redeemed once, by their own client, and bound to their request."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from datetime import timedelta

import pytest
from flask import Flask
from sqlalchemy import select, update

from app.extensions import db
from app.models.grant import AuthorizationCode
from app.operations.grants import signing_keys
from app.operations.organizations.settings import update_settings
from app.operations.store.transactions import transaction
from app.rules.identifiers import new_token
from tests.oauth.conftest import FAST_KEYS, REDIRECT_URI, SCOPES, VERIFIER, Flow, audited
from tests.support.databases import Database


def is_refused(answer) -> bool:
    return (answer.status_code, answer.get_json()["error"]) == (400, "invalid_grant")


def test_code_returns_the_tokens_of_its_request(flow: Flow) -> None:
    answer = flow.redeem(flow.code(scope="openid email offline_access"))
    document = answer.get_json()
    assert answer.status_code == 200
    assert set(document) == {"access_token", "token_type", "expires_in", "scope", "refresh_token", "id_token"}
    assert (document["token_type"], document["expires_in"]) == ("Bearer", 3600)
    assert document["scope"] == "openid email offline_access"


def test_openid_and_offline_access_decide_which_tokens_are_issued(flow: Flow) -> None:
    """CO-5."""
    document = flow.redeem(flow.code(scope="profile")).get_json()
    assert set(document) == {"access_token", "token_type", "expires_in", "scope"}


def test_client_without_refresh_grant_gets_no_refresh_token(flow: Flow) -> None:
    """CO-5: the client must be allowed to refresh as well."""
    other = flow.other_client(grant_types=["authorization_code"], scopes=["openid"], trust="first_party")
    assert "refresh_token" not in other.redeem(other.code(scope="openid")).get_json()


def test_code_is_stored_only_as_a_digest(flow: Flow, database: Database) -> None:
    """CD-1."""
    code = flow.code()
    assert code.startswith(f"gth_ac_{flow.organization.id}") and len(code) == 66
    dump = database.dump()
    assert code.encode() not in dump and code[15:58].encode() not in dump


def foreign(flow: Flow) -> Flow:
    """Return the same client and user in another organization."""
    there = flow.make.organization(settings=FAST_KEYS)
    client = flow.make.client(there, scopes=SCOPES, trust="first_party", redirect_uris=[REDIRECT_URI])
    return Flow(flow.app, flow.http, flow.make, client, flow.make.user(there))


def secret_post(flow: Flow) -> Flow:
    return flow.other_client(redirect_uris=[REDIRECT_URI], trust="first_party")


def public(flow: Flow) -> Flow:
    return flow.other_client(type="spa", redirect_uris=[REDIRECT_URI])


# CD-3: a valid redemption except for one parameter.
FLIPPED: dict[str, Callable[[Flow, str], object]] = {
    "organization": lambda flow, code: foreign(flow).redeem(code),
    "client": lambda flow, code: secret_post(flow).redeem(code),
    "client, a public one": lambda flow, code: flow.redeem(code, {}, client_id=public(flow).client.client_id),
    "redirect_uri": lambda flow, code: flow.redeem(code, redirect_uri=REDIRECT_URI + "/"),
    "redirect_uri, by case": lambda flow, code: flow.redeem(code, redirect_uri=REDIRECT_URI.upper()),
    "redirect_uri, none": lambda flow, code: flow.redeem(code, redirect_uri=None),
    "challenge": lambda flow, code: flow.redeem(code, code_verifier="w" * 43),
    "challenge, none": lambda flow, code: flow.redeem(code, code_verifier=None),
    "challenge, too short": lambda flow, code: flow.redeem(code, code_verifier="v" * 42),
    "challenge, with a line feed": lambda flow, code: flow.redeem(code, code_verifier=VERIFIER + "\n"),
    "the code, one character": lambda flow, code: flow.redeem(
        code[:20] + ("a" if code[20] != "a" else "b") + code[21:]
    ),
    "the code, its case": lambda flow, code: flow.redeem(code.swapcase()),
    "the code, a space after it": lambda flow, code: flow.redeem(code + " "),
    "a well-formed code that was never issued": lambda flow, code: flow.redeem(
        new_token("ac", flow.organization.id)
    ),
    "the code, another kind of token": lambda flow, code: flow.redeem(new_token("at", flow.organization.id)),
}


@pytest.mark.parametrize("attempt", FLIPPED.values(), ids=FLIPPED.keys())
def test_wrong_binding_is_rejected_and_keeps_the_code_valid(flow: Flow, database: Database, attempt) -> None:
    """CD-3, PK-4, CD-6, TN-6: the rightful client can still redeem the code."""
    code = flow.code()
    assert is_refused(attempt(flow, code))
    assert database.count("access_tokens") == 0 and database.count("grants") == 0
    assert flow.redeem(code).status_code == 200


def test_code_binding_cannot_be_changed_at_redemption(flow: Flow) -> None:
    """CD-3: scope, nonce, user and session come from the code, whatever the redemption request says."""
    from tests.oauth.test_id_token import claims_of

    code = flow.code(scope="openid", nonce="mine")
    changes = {"scope": "openid email", "nonce": "other", "sub": "usr_x"}
    document = flow.redeem(code, **changes).get_json()
    assert document["scope"] == "openid"
    claims = claims_of(flow, document["id_token"])
    assert (claims["nonce"], claims["sub"]) == ("mine", flow.user.public_id)
    assert flow.introspect(document["access_token"])["aud"] == flow.issuer


def test_second_redemption_revokes_the_tokens_of_the_first(flow: Flow, database: Database) -> None:
    """CD-6."""
    code = flow.code(scope=" ".join(SCOPES))
    first = flow.redeem(code).get_json()
    renewed = flow.refresh(first["refresh_token"]).get_json()
    assert flow.is_alive(first["access_token"]) and flow.is_alive(renewed["access_token"])
    assert is_refused(flow.redeem(code))
    for token in (first["access_token"], renewed["access_token"], renewed["refresh_token"]):
        assert not flow.is_alive(token)
    assert is_refused(flow.refresh(renewed["refresh_token"]))
    assert is_refused(flow.redeem(code))
    assert audited(database, "code.replayed") == 1


REPLAYS = {
    name: FLIPPED[name]
    for name in FLIPPED
    if name.startswith(("organization", "client", "redirect", "challenge"))
}


@pytest.mark.parametrize("attempt", REPLAYS.values(), ids=REPLAYS.keys())
def test_invalid_second_redemption_revokes_nothing(flow: Flow, attempt) -> None:
    """CD-6: a code found in a log cannot be used to revoke a session."""
    code = flow.code()
    token = flow.redeem(code).get_json()["access_token"]
    assert is_refused(attempt(flow, code))
    assert flow.is_alive(token)


def move(app: Flask, **columns: timedelta) -> None:
    """Shift the times of every code."""

    @transaction
    def act() -> None:
        rows = db.session.scalars(select(AuthorizationCode)).all()
        for row in rows:
            values = {name: getattr(row, name) + by for name, by in columns.items()}
            db.session.execute(update(AuthorizationCode).where(AuthorizationCode.id == row.id).values(values))

    with app.app_context():
        act()


def test_code_expires_60_seconds_after_it_was_issued(flow: Flow, database: Database) -> None:
    """CD-2."""
    code = flow.code()
    with flow.app.app_context():
        row = db.session.scalars(select(AuthorizationCode)).one()
        assert row.expires_at - row.issued_at == timedelta(seconds=60)
        assert row.purge_at - row.expires_at >= timedelta(days=1), "CD-7"
    move(flow.app, expires_at=-timedelta(seconds=60))
    assert is_refused(flow.redeem(code))
    assert database.count("grants") == 0


def test_code_is_valid_until_it_expires(flow: Flow) -> None:
    code = flow.code()
    move(flow.app, expires_at=-timedelta(seconds=45))
    assert flow.redeem(code).status_code == 200


def test_reuse_after_expiry_is_still_detected(flow: Flow) -> None:
    """CD-7."""
    code = flow.code()
    token = flow.redeem(code).get_json()["access_token"]
    move(
        flow.app,
        expires_at=-timedelta(hours=20),
        issued_at=-timedelta(hours=20),
        used_at=-timedelta(hours=20),
    )
    assert is_refused(flow.redeem(code))
    assert not flow.is_alive(token)


def test_organization_can_shorten_the_code_lifetime(flow: Flow) -> None:
    with flow.app.app_context():
        changes = {"oauth": {"authorization_code_ttl_seconds": 10}}
        update_settings(flow.make.system(flow.organization), flow.organization.slug, changes)
    flow.code()
    with flow.app.app_context():
        row = db.session.scalars(select(AuthorizationCode)).one()
        assert row.expires_at - row.issued_at == timedelta(seconds=10)


def test_signing_failure_does_not_consume_the_code(
    flow: Flow, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CD-5: everything is signed before the commit."""
    code = flow.code()

    def fail(*_: object, **__: object) -> str:
        raise RuntimeError("the key cannot be opened")

    with monkeypatch.context() as broken:
        broken.setattr(signing_keys, "sign_jwt", fail)
        broken.setitem(flow.app.config, "PROPAGATE_EXCEPTIONS", False)
        broken.setattr(flow.app, "testing", False)
        assert flow.redeem(code).status_code == 500
    assert database.count("grants") == 0 and database.count("access_tokens") == 0
    assert flow.redeem(code).status_code == 200


def test_missing_code_is_an_invalid_request(flow: Flow) -> None:
    answer = flow.token(grant_type="authorization_code", redirect_uri=REDIRECT_URI, code_verifier=VERIFIER)
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_request")


def test_public_client_redeems_with_client_id_and_verifier(flow: Flow) -> None:
    other = flow.other_client(type="spa", redirect_uris=[REDIRECT_URI])
    answer = other.redeem(other.code(), {}, client_id=other.client.client_id)
    assert answer.status_code == 200


def test_wrong_credentials_do_not_consume_the_code(flow: Flow) -> None:
    code = flow.code()
    wrong = b64encode(f"{flow.client.client_id}:nonsense".encode()).decode()
    assert flow.redeem(code, {"Authorization": f"Basic {wrong}"}).status_code == 401
    assert flow.redeem(code).status_code == 200
