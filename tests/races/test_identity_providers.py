"""An identity provider names the same person in many browsers at once: there is one user with one link."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from itertools import count
from urllib.parse import parse_qs, urlsplit

import pytest
from flask import Flask

from app.operations.sign_in import identity_providers
from app.operations.sign_in.identity_providers import (
    create_identity_provider,
    read_client_secret,
    update_identity_provider,
)
from app.operations.sign_in.provider_answers import ProviderAnswer
from app.operations.sign_in.sign_in import Browser
from app.operations.store.transactions import OutdatedRead
from app.operations.users.provider_sign_in import (
    begin_provider_sign_in,
    complete_provider_sign_in,
)
from app.rules.actor import Actor
from tests.factories import Factory
from tests.scim.conftest import FIELDS
from tests.support.databases import Database
from tests.support.https_server import reaching
from tests.support.identity_provider import identity_provider
from tests.support.threads import at_once

CROWD = 12


@pytest.mark.parametrize("has_account", [False, True])
def test_person_who_signs_in_many_times_at_once_is_one_user(
    app: Flask, make: Factory, database: Database, monkeypatch: pytest.MonkeyPatch, has_account: bool
) -> None:
    with identity_provider() as fake:
        monkeypatch.setitem(app.config, "GATEHOUSE", reaching(app.config["GATEHOUSE"], fake.server))
        # A user who waits for the provider has one of few slots; this is about what follows.
        for name in ("_sign_in_slots", "_lookup_slots"):
            monkeypatch.setattr(f"app.operations.store.outgoing_http.{name}", _Slots())
        acme = make.organization()
        if has_account:
            make.user(acme, email=fake.claims["email"])
        with app.app_context():
            create_identity_provider(
                make.actor(acme), fake.fields | {"create_users": True, "link_users": True}
            )
        answers = []
        for number in range(CROWD):
            with app.app_context():
                visitor, browser = Actor.anonymous(acme.id), Browser(f"b{number}")
                url = begin_provider_sign_in(visitor, acme, "example", browser, parameters={})
            sent = parse_qs(urlsplit(fake.authorize(url)).query)
            answers.append(ProviderAnswer(sent["state"][0], sent["code"][0], issuer=fake.issuer))

        def come_back(number: int) -> object:
            outcome = complete_provider_sign_in(
                Actor.anonymous(acme.id),
                acme,
                "example",
                answers[number],
                Browser(f"b{number}"),
                own_actor=None,
            )
            return outcome.result

        found = Counter(at_once(app, [lambda number=number: come_back(number) for number in range(CROWD)]))
        assert found["SignedIn"] == CROWD, found
        assert database.count("users") == database.count("linked_identities") == 1
        assert database.count("sessions") == CROWD


@pytest.mark.either
def test_transaction_that_is_repeated_stores_the_client_secret(
    app: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a deadlock or a lost connection."""
    turns = count()

    def fail_first(organization_id: str) -> None:
        if next(turns) % 2 == 0:
            raise OutdatedRead

    monkeypatch.setattr(identity_providers, "_invalidate", fail_first)
    with app.app_context():
        actor = make.actor(make.organization())
        provider = identity_providers.store_identity_provider(actor, FIELDS)
        assert read_client_secret(provider) == FIELDS["client_secret"]
        _, changed = update_identity_provider(actor, provider.public_id, {"client_secret": "the next"})
        assert (changed, read_client_secret(provider)) == (("client_secret",), "the next")
    assert next(turns) == 4


class _Slots:
    def take(self, *_: object) -> ExitStack:
        return ExitStack()
