"""What requests count: each token once by its grant, each request by its secret, each failure by its cause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient

from app.operations.audit import usage
from app.operations.store.usage_counters import counters
from app.rules.identifiers import parse_client_id
from app.web import failed_requests as queue
from tests.factories import Factory, MadeClient, basic_header, bearer_header
from tests.oauth import test_token_exchange
from tests.oauth.conftest import Flow
from tests.oauth.device import Device
from tests.oauth.test_par import push
from tests.oauth.test_token_exchange import exchange, subject
from tests.support.databases import Database

Counted = dict[str, int]
orders = test_token_exchange.orders
web = test_token_exchange.web


def counted(flow: Flow, database: Database, client: MadeClient | None = None) -> Counted:
    """Return this hour's counters of the client, after everything was written."""
    with flow.app.app_context():
        flow.app.extensions["failed_requests"].write_waiting()
        counters.flush()
    parsed = parse_client_id((client or flow.client).client_id)
    assert parsed is not None
    rows = database.query("SELECT client_id, span, metric, detail, count FROM usage_counters")
    return {
        f"{bytes(metric).decode()} {bytes(detail).decode()}": int(count)
        for client_id, span, metric, detail, count in rows
        if (bytes(client_id), bytes(span)) == (parsed[1].bytes, b"hour")
    }


def redeem_twice(flow: Flow) -> None:
    code = flow.code()
    flow.redeem(code)
    flow.redeem(code)


def revoke(flow: Flow) -> Any:
    return flow.http.post("/oauth/revoke", data={"token": "unknown"}, headers=flow.client.basic)


def read_userinfo(flow: Flow) -> None:
    """Call userinfo on the fast path, and where Flask answers."""
    bearer = bearer_header(flow.tokens()["access_token"])
    for method in ("GET", "POST"):
        assert flow.http.open("/oauth/userinfo", method=method, headers=bearer).status_code == 200


ACTIONS: dict[str, tuple[Callable[[Flow], Any], Counted]] = {
    "code": (
        lambda flow: flow.redeem(flow.code()),
        {"requests token:succeeded": 1, "tokens authorization_code": 1},
    ),
    "refresh": (
        lambda flow: flow.refresh(flow.tokens()["refresh_token"]),
        {"requests token:succeeded": 2, "tokens authorization_code": 1, "tokens refresh_token": 1},
    ),
    # Not a request of the client: anyone who has the token can send it.
    "userinfo": (read_userinfo, {"requests token:succeeded": 1, "tokens authorization_code": 1}),
    "rejected code": (
        lambda flow: flow.redeem("unknown"),
        {"requests token:failed": 1, "failed code_unknown": 1},
    ),
    "reused code": (
        redeem_twice,
        {
            "requests token:succeeded": 1,
            "tokens authorization_code": 1,
            "requests token:failed": 1,
            "failed code_reused": 1,
            "failed_users code_reused": 1,
        },
    ),
    "wrong secret": (
        lambda flow: flow.token(basic_header(flow.client.client_id, "wrong"), grant_type="refresh_token"),
        {"failed secret_unknown": 1},
    ),
    "wrong redirect URI": (
        lambda flow: flow.authorize(redirect_uri="https://orchard.example/other"),
        {"failed redirect_uri_not_registered": 1, "failed_users redirect_uri_not_registered": 1},
    ),
    "refresh token for another scope": (
        lambda flow: flow.refresh(flow.tokens(scope="openid offline_access")["refresh_token"], scope="email"),
        {
            "requests token:succeeded": 1,
            "tokens authorization_code": 1,
            "requests token:failed": 1,
            "failed scope_beyond_token": 1,
            "failed_users scope_beyond_token": 1,
        },
    ),
    "introspection": (lambda flow: flow.introspect("unknown"), {"requests introspect:succeeded": 1}),
    "revocation": (revoke, {"requests revoke:succeeded": 1}),
    "refresh token of nobody": (
        lambda flow: flow.refresh("unknown"),
        {"requests token:failed": 1, "failed refresh_unknown": 1},
    ),
    "wrong content type": (
        lambda flow: flow.http.post("/oauth/revoke", headers=flow.client.basic),
        {"failed wrong_content_type": 1},
    ),
    "pushed request": (push, {"requests par:succeeded": 1}),
    "rejected pushed request": (
        lambda flow: push(flow, scope="unknown"),
        {"requests par:failed": 1, "failed scope_not_allowed": 1},
    ),
}


@pytest.mark.parametrize(("act", "expected"), ACTIONS.values(), ids=ACTIONS)
def test_request_is_counted_once(
    flow: Flow, database: Database, act: Callable[[Flow], Any], expected: Counted
) -> None:
    act(flow)
    assert counted(flow, database) == expected


def test_client_credentials_is_counted_once(flow: Flow, database: Database) -> None:
    machine = flow.make.machine(flow.organization, "clients:read")
    flow.token(machine.basic, grant_type="client_credentials")
    assert counted(flow, database, machine) == {
        "requests token:succeeded": 1,
        "tokens client_credentials": 1,
    }


def test_token_exchange_is_counted_once(web: Flow, orders: MadeClient, database: Database) -> None:
    assert exchange(web, orders, subject(web)["access_token"]).status_code == 200
    found = counted(web, database, orders)
    assert found["tokens token_exchange"] == found["requests token:succeeded"] == 1


def test_device_code_is_counted_once_and_polls_are_no_failures(
    flow: Flow, http: FlaskClient, make: Factory, database: Database
) -> None:
    device = Device(http, make, flow.user)
    codes = device.code()
    device.poll(codes["device_code"])
    device.allow(codes["user_code"])
    device.wait()
    assert device.poll(codes["device_code"]).status_code == 200
    assert counted(flow, database, device.client) == {
        "requests device_authorization:succeeded": 1,
        "requests token:succeeded": 2,
        "tokens device_code": 1,
    }


def test_public_client_is_not_used_by_who_knows_its_name(flow: Flow, database: Database) -> None:
    """Its requests prove nothing: anybody may send its client_id."""
    public = flow.make.client(flow.organization, type="spa", token_endpoint_auth_method="none")
    flow.http.post("/oauth/revoke", data={"token": "x", "client_id": public.client_id})
    flow.token({}, grant_type="refresh_token", refresh_token="x", client_id=public.client_id)
    found = counted(flow, database, public)
    assert not any(name.startswith("requests") for name in found)
    with flow.app.app_context():
        traffic = usage.get_clients_traffic(flow.make.actor(flow.organization), [public.client_id])
    assert traffic[public.client_id].last_used_at is None


@pytest.mark.parametrize("act", [revoke, lambda flow: flow.redeem("unknown")], ids=["revocation", "failure"])
def test_secret_is_used_by_revocations_and_failed_requests(flow: Flow, act: Callable[[Flow], Any]) -> None:
    """Whoever sends them still has the secret: it is not safe to revoke."""
    act(flow)
    with flow.app.app_context():
        counters.flush()
        [used] = usage.get_credential_use(
            flow.make.actor(flow.organization), flow.client.client_id
        ).credentials
    assert used.total == used.counts[-1] == 1
    assert used.last_used_at is not None
    assert used.last_used_address == "127.0.0.1"


def test_failures_beyond_the_limit_of_the_log_are_counted_with_their_cause(
    flow: Flow, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MAX_PER_CAUSE_PER_HOUR", 2)
    for number in range(5):
        flow.token(basic_header(flow.client.client_id, "gth_cs_wrong"), grant_type="refresh_token")
        if number == 1:
            counted(flow, database)
    assert counted(flow, database) == {"failed secret_unknown": 5}


def test_failures_of_unknown_clients_are_not_counted(
    flow: Flow, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody could fill the table."""
    monkeypatch.setattr(queue, "MAX_PER_CAUSE_PER_HOUR", 1)
    unknown = flow.client.client_id[:-3] + "000"
    for _ in range(3):
        flow.token(basic_header(unknown, "wrong"), grant_type="refresh_token")
    counted(flow, database)
    assert [
        row for row in database.query("SELECT metric FROM usage_counters") if bytes(row[0]) == b"failed"
    ] == []


def test_sign_ins_and_active_users_are_counted(flow: Flow, database: Database) -> None:
    """The user of the flow has signed in; redeeming a code and refreshing add no second user."""
    flow.refresh(flow.tokens()["refresh_token"])
    other = flow.make.user(flow.organization)
    flow.make.sign_in(other)
    flow.make.sign_in(other)
    with flow.app.app_context():
        counters.flush()
        totals = usage.get_traffic(flow.make.actor(flow.organization), hours=24).totals
    assert (totals.sign_ins, totals.active_users, totals.tokens) == (3, 2, 2)
