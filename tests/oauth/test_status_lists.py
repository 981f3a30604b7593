"""Status lists: their indexes, blocks, how they are served, and lists that a failure lost."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask

from app import database
from app.extensions import db
from app.fast_path import compiled_query
from app.models.token import AccessToken, StatusList, StatusListEntry
from app.operations.clients import clients, credential_revocation
from app.operations.directory.lookups import find_client, get_organization_by_id
from app.operations.directory.snapshots import AuthenticatedClient
from app.operations.organizations.settings import update_settings
from app.operations.store.transactions import transaction
from app.operations.tokens import published_status_lists, revocation, status_lists
from app.operations.tokens.tokens import issue_to_client
from app.rules.errors import NotFound
from app.rules.tokens.status_lists import BOUND_SECONDS, SIZE
from tests.oauth import token_storage
from tests.oauth.conftest import change_rows, clock_ago
from tests.oauth.test_bulk_revocation import revoke as bulk_revoke
from tests.oauth.token_storage import (
    API,
    claims_of,
    exchange,
    is_revoked,
    make_exchanger,
    read_list,
    restore_backup,
    revoke_by_form,
)
from tests.support import threads
from tests.support.process import wait_until
from tests.support.threads import at_once

pytestmark = pytest.mark.either
make_case = token_storage.make_case


@pytest.mark.parametrize("storage", ["status_list", "none"])
def test_token_has_a_row_only_once_it_is_revoked(make_case: Any, storage: str) -> None:
    case = make_case(storage)
    tokens = [case.issue_to_client() for _ in range(5)] + [case.issue_to_user()]
    assert all(case.is_alive(token) for token in tokens)
    assert case.rows(AccessToken) == 0
    assert (case.rows(StatusListEntry) > 0) == (storage == "status_list")
    revoke_by_form(case, tokens[0], case.machine)
    assert case.rows(AccessToken) == 1


def test_indexes_are_used_once_and_blocks_grow(make_case: Any) -> None:
    case = make_case("status_list")
    with case.flow.app.app_context():
        client = find_client(case.machine.client_id)
        assert client is not None
        taken = {
            status_lists.take_index_for_client(client, None, scope="", audience=API, lifetime_seconds=60)
            for _ in range(50)
        }
        taken |= {status_lists.take_index(client.organization) for _ in range(300)}
        other = case.flow.make.organization()
        status_lists.take_index(other)
        assert db.session.query(StatusList).filter_by(organization_id=other.id).count() == 1
    assert len(taken) == 350 and case.rows(StatusList) == 1
    assert case.rows(StatusListEntry) == 3  # blocks of 8, 32 and 128


def test_threads_never_take_the_same_index(make_case: Any) -> None:
    case = make_case("status_list")
    taken: list[Any] = []

    def take() -> None:
        client = find_client(case.machine.client_id)
        assert client is not None
        for _ in range(40):
            taken.append(status_lists.take_index(client.organization))
            taken.append(
                status_lists.take_index_for_client(client, None, scope="", audience=API, lifetime_seconds=60)
            )

    assert at_once(case.flow.app, [take] * 8) == ["NoneType"] * 8
    assert len(taken) == len(set(taken)) == 640


def test_token_is_revoked_once_by_simultaneous_requests(make_case: Any) -> None:
    """RV-8: each of them stores the row that the token did not have."""
    case = make_case("none")
    token = case.issue_to_client()
    actor = case.flow.make.actor(case.flow.organization)
    results = at_once(case.flow.app, [lambda: revocation.revoke_token(actor, token)] * 6)
    assert sorted(results) == ["NoneType"] * 5 + ["RevokedToken"]
    assert not case.is_alive(token) and case.rows(AccessToken) == 1


def test_tokens_after_a_cutoff_are_valid(make_case: Any) -> None:
    """The block from before the cutoff is not used any more."""
    case = make_case("status_list")
    before = case.issue_to_client()
    bulk_revoke(case.flow, client_id=case.machine.client_id)
    after = case.issue_to_client()
    assert (case.is_alive(before), case.is_alive(after)) == (False, True)


@pytest.mark.parametrize(("age", "is_kept"), [(0, False), (120, True)])
def test_block_in_use_when_its_secret_was_revoked_ends(make_case: Any, age: int, is_kept: bool) -> None:
    """A worker that did not know of the revocation may have issued some of its tokens later."""
    case = make_case("status_list")
    secret = case.machine.registered.credential
    with case.flow.app.app_context():
        client = find_client(case.machine.client_id)
        assert client is not None and secret is not None
        machine = AuthenticatedClient(client, secret.id)
        before = issue_to_client(machine, ("read",)).access_token
        change_rows(case.flow, StatusListEntry, issued_at=clock_ago(case.flow, age))
        credential_revocation.revoke_credentials(case.admin, case.machine.client_id)
        after = issue_to_client(machine, ("read",)).access_token
    assert [case.introspect(token).get_json()["active"] for token in (before, after)] == [True, False]
    assert is_revoked(case.flow, claims_of(before)["status"]["status_list"]) is not is_kept
    assert is_kept or not case.is_alive(after)


def test_tokens_after_a_restore_are_in_another_list(make_case: Any) -> None:
    """BK-2: rows of tokens in the old list may be lost, so all of it is revoked."""
    case = make_case("status_list")
    before = case.issue_to_client()
    with case.flow.app.app_context():
        restore_backup(case)
    after = case.issue_to_client()
    uris = [claims_of(token)["status"]["status_list"]["uri"] for token in (before, after)]
    assert uris[0] != uris[1]
    assert is_revoked(case.flow, {"uri": uris[0], "idx": SIZE - 1})
    assert case.is_alive(after)


def test_list_is_repeated_for_seconds_only(make_case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 8: the bound of a revocation counts what the service, HTTP caches and readers repeat."""
    case = make_case("status_list")
    reference = claims_of(case.issue_to_client())["status"]["status_list"]
    path = reference["uri"].removeprefix("http://localhost")
    claims = read_list(case.flow, reference["uri"])
    assert claims["exp"] - claims["iat"] == 300
    assert published_status_lists.BUILT_SECONDS + 5 + claims["ttl"] == BOUND_SECONDS == 20
    # An hour, so that no delay of this machine counts.
    monkeypatch.setattr(published_status_lists, "BUILT_SECONDS", 3600)
    first = case.flow.http.get(path)
    assert first.headers["Cache-Control"] == "public, max-age=5"
    assert first.headers["Access-Control-Allow-Origin"] == "*"
    assert case.flow.http.get(path).text == first.text
    past = case.flow.http.get(f"{path}?time=1")
    assert (past.status_code, past.headers["Cache-Control"]) == (501, "no-store"), "not the list of now"
    [(key, (made, signed))] = published_status_lists._signed._values.items()
    published_status_lists._signed._values[key] = (made - timedelta(seconds=3601), signed)
    assert case.flow.http.get(path).text != first.text


def test_metadata_names_the_lists(make_case: Any) -> None:
    """Section 9. An API that reads lists goes on when the permission for new ones is withdrawn."""
    case = make_case("status_list")
    uri = claims_of(case.issue_to_client())["status"]["status_list"]["uri"]
    with case.flow.app.app_context():
        withdrawn = {"oauth": {"access_token": {"allow_unstored": False}}}
        update_settings(case.flow.make.system(case.flow.organization), case.flow.organization.slug, withdrawn)
    metadata = case.flow.http.get(f"{case.flow.issuer}/.well-known/openid-configuration").get_json()
    answer = case.flow.http.get(metadata["status_list_aggregation_endpoint"].removeprefix("http://localhost"))
    assert answer.get_json() == {"status_lists": [uri]}


def test_list_that_a_failover_lost_is_stored_again(make_case: Any) -> None:
    case = make_case("status_list")
    case.issue_to_user()

    @transaction
    def lose() -> None:
        db.session.query(StatusList).filter_by(organization_id=case.flow.organization.id).delete()

    with case.flow.app.app_context():
        lose()
        organization = get_organization_by_id(case.flow.organization.id)
        filling = status_lists._filling.get(organization.id)
        assert filling is not None and filling.stored_at is not None
        filling.stored_at -= timedelta(minutes=2)
    token = case.issue_to_user()
    assert case.rows(StatusList) == 1 and case.is_alive(token)


def test_process_without_a_list_starts_one(make_case: Any) -> None:
    """As one that was forked: it does not know which indexes its parent gives out."""
    case = make_case("status_list")
    case.issue_to_user()
    status_lists._filling.clear()
    case.issue_to_user()
    assert case.rows(StatusList) == 2


def test_threads_with_and_without_a_transaction_start_a_list_together(
    make_case: Any, app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SQLite one has the turn to write and the other waits for it: neither may keep what the other needs."""
    monkeypatch.setattr(database, "POOL_WAIT_SECONDS", 10)
    case = make_case("status_list")
    taken: list[Any] = []
    has_turn, is_over = threading.Event(), threading.Event()
    writers = app.extensions[database._WRITERS]

    @transaction
    def take() -> None:
        has_turn.set()
        wait_until(lambda: writers is None or writers.waiting or is_over.is_set(), "the other thread")
        taken.append(status_lists.take_index(get_organization_by_id(case.flow.organization.id)))

    def take_for_client() -> None:
        client = find_client(case.machine.client_id)
        assert client is not None and has_turn.wait(60)
        try:
            taken.append(
                status_lists.take_index_for_client(client, None, scope="", audience=API, lifetime_seconds=60)
            )
        finally:
            is_over.set()

    monkeypatch.setattr(threads, "ATTEMPTS", 1)
    assert at_once(app, [take, take_for_client]) == ["NoneType"] * 2
    assert len(set(taken)) == 2 and case.rows(StatusList) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_list_of_a_transaction_is_stored_whether_that_commits_or_not(make_case: Any, fails: bool) -> None:
    """In one that was rolled back its row was lost, so the next token stores it."""
    case = make_case("status_list")

    @transaction
    def take() -> None:
        status_lists.take_index(get_organization_by_id(case.flow.organization.id))
        if fails:
            raise NotFound("No.")

    with case.flow.app.app_context():
        with pytest.raises(NotFound) if fails else nullcontext():
            take()
        assert fails or case.rows(StatusList) == 1
    assert case.is_alive(case.issue_to_user())
    assert case.rows(StatusList) == 1


def test_list_reads_the_parents_of_exchanged_tokens_together(
    make_case: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anyone may read a list, so its price must not grow with each exchanged token."""
    case = make_case("status_list")
    exchangers = [make_exchanger(case) for _ in range(2)]
    subjects = [case.issue_to_user() for _ in range(4)]

    def exchange_twice(subject: str) -> list[str]:
        first = exchange(case, exchangers[0], subject)
        return [first, exchange(case, exchangers[1], first)]

    asked: list[str] = []
    run = compiled_query._run

    def note(driver: Any, compiled: Any, *values: Any, **options: Any) -> Any:
        asked.append(compiled.sql)
        return run(driver, compiled, *values, **options)

    def count(reference: dict[str, Any]) -> int:
        is_revoked(case.flow, reference)
        asked.clear()
        assert not is_revoked(case.flow, reference)
        return len(asked)

    monkeypatch.setattr(compiled_query, "_run", note)
    chains = [exchange_twice(subjects[0])]
    reference = claims_of(subjects[0])["status"]["status_list"]
    alone = count(reference)
    chains += [exchange_twice(subject) for subject in subjects[1:]]
    assert count(reference) == alone
    revoke_by_form(case, subjects[1], case.flow.client)
    assert [case.is_alive(token) for chain in chains for token in chain] == [True] * 2 + [False] * 2 + [
        True
    ] * 4


def test_list_validates_no_token_that_a_cutoff_or_secret_ended(
    make_case: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may have all tokens of a list."""
    case = make_case("status_list")
    validated: list[Any] = []

    def note(organization_id: str, row: Any, *context: Any) -> bool:
        validated.append(row)
        return is_valid(organization_id, row, *context)

    is_valid = published_status_lists._is_valid_entry
    monkeypatch.setattr(published_status_lists, "_is_valid_entry", note)
    tokens = [case.issue_to_user() for _ in range(4)]
    bulk_revoke(case.flow, client_id=case.flow.client.client_id)
    tokens.append(case.issue_to_user())
    assert [case.is_alive(token) for token in tokens] == [False] * 4 + [True]
    assert not validated
    with case.flow.app.app_context():
        credential_revocation.revoke_credentials(case.admin, case.flow.client.client_id, revoke_tokens=True)
    assert not any(case.is_alive(token) for token in tokens)
    with case.flow.app.app_context():
        clients.update_client(case.admin, case.flow.client.client_id, {"status": "disabled"})
    assert not any(case.is_alive(token) for token in tokens)
    assert not validated
