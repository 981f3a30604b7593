"""Samples of successful requests: which are taken, without secrets, and for how long."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.operations.audit.sampled_requests import SUCCEEDED, SampleRecord, list_requests
from app.operations.maintenance.janitor import purge_expired
from app.operations.store import clock
from app.rules.actor import Actor
from app.rules.identifiers import new_id
from app.web.failed_requests import MAX_SAMPLES_PER_CLIENT, MAX_SAMPLES_PER_MINUTE, FailedRequests
from tests.factories import Factory, MadeClient
from tests.support.databases import Database


def token(app: Any, client: MadeClient, **form: str) -> Any:
    sent = {"grant_type": "client_credentials"} | form
    return app.test_client().post("/oauth/token", data=sent, headers=client.basic)


def kept(app: Any, make: Factory, client: MadeClient) -> list[Any]:
    """Return the samples of the client's organization, newest first."""
    with app.app_context():
        app.extensions["failed_requests"].write_waiting()
        return list(list_requests(make.system(client.organization), outcome=SUCCEEDED).items)


def test_successful_request_is_sampled_without_secrets(app: Any, make: Factory) -> None:
    """LG-1: the same redaction as for failures."""
    client = make.machine(make.organization(), "users:read")
    sent = {"grant_type": "client_credentials", "client_id": client.client_id, "client_secret": client.secret}
    answer = app.test_client().post("/oauth/token", data=sent)
    [sample] = kept(app, make, client)
    assert isinstance(sample, SampleRecord) and sample.client_id == client.client_id
    assert (sample.endpoint, sample.status) == ("token", 200)
    assert sample.request_id == answer.headers["X-Request-Id"]
    assert sample.parameters["client_secret"] == "[a client secret, removed]"
    assert client.secret not in str(sample)


def test_samples_of_a_client_are_limited_and_failures_are_none(app: Any, make: Factory) -> None:
    client = make.machine(make.organization(), "users:read")
    for _ in range(MAX_SAMPLES_PER_CLIENT + 3):
        assert token(app, client).status_code == 200
    assert token(app, client, scope="unknown").status_code == 400
    assert len(kept(app, make, client)) == MAX_SAMPLES_PER_CLIENT


def test_first_request_of_a_client_is_sampled_beyond_the_limit_of_all(app: Any) -> None:
    queue, row_id = FailedRequests(), new_id()
    for number in range(MAX_SAMPLES_PER_MINUTE):
        assert queue.has_room_for_sample((f"{number:08}", row_id))
    assert queue.has_room_for_sample(("another", row_id))
    assert not queue.has_room_for_sample(("another", row_id))


def test_samples_are_hidden_and_deleted_after_a_day(
    app: Any, context: Any, make: Factory, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    make.root()
    client = make.machine(make.organization(), "users:read")
    assert token(app, client).status_code == 200
    assert len(kept(app, make, client)) == 1
    later = clock.now() + timedelta(hours=25)
    monkeypatch.setattr(clock, "now", lambda: later)
    assert kept(app, make, client) == []
    purge_expired(Actor.system("", "janitor"), pause=0)
    assert database.count("sampled_requests") == 0


def test_organization_without_the_log_has_no_samples(app: Any, make: Factory, database: Database) -> None:
    client = make.machine(make.organization(settings={"audit": {"failed_requests": False}}), "users:read")
    assert token(app, client).status_code == 200
    assert kept(app, make, client) == [] and database.count("sampled_requests") == 0


def test_developer_sees_samples_of_own_clients_only(app: Any, context: Any, make: Factory) -> None:
    """TN-1: ``logs:read:own``."""
    acme = make.organization()
    client = make.machine(acme, "users:read")
    assert token(app, client).status_code == 200
    assert len(kept(app, make, client)) == 1
    developer = make.actor(acme, "logs:read:own", user=make.user(acme, role="developer"))
    assert list_requests(developer).items == ()
    assert list_requests(make.actor(make.organization())).items == ()
