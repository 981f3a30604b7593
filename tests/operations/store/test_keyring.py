"""Encryption keys: one data key per organization, wrapped by the master key, and associated data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import select, update

from app.extensions import db
from app.models.client import Credential
from app.models.organization import Organization
from app.operations.clients.credentials import NotRevealable, list_credentials, reveal_credential
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.store import keyring
from app.operations.store.transactions import transaction
from app.rules.errors import NotFound
from app.rules.sealing import UnsealError
from tests.factories import Factory


@pytest.fixture
def organization(context: Flask, make: Factory) -> OrganizationSnapshot:
    return make.organization()


def set_row(model, condition, **values) -> None:
    @transaction
    def act() -> None:
        db.session.execute(update(model).where(condition).values(**values))

    act()


def test_sealed_value_is_unsealed_in_its_place(organization: OrganizationSnapshot) -> None:
    sealed = keyring.seal(organization.id, b"a secret", "row|1")
    assert keyring.unseal(organization.id, sealed, "row|1") == b"a secret"
    assert b"a secret" not in sealed


def test_sealed_value_is_rejected_in_another_place(make: Factory, organization: OrganizationSnapshot) -> None:
    """SE-6."""
    there = make.organization()
    sealed = keyring.seal(organization.id, b"a secret", "row|1")
    for owner, place in ((organization.id, "row|2"), (there.id, "row|1"), (organization.id, "")):
        with pytest.raises(UnsealError):
            keyring.unseal(owner, sealed, place)


def test_secret_moved_to_another_row_or_client_cannot_be_unsealed(
    make: Factory, organization: OrganizationSnapshot
) -> None:
    """SE-6: moving a sealed secret in the database does not reveal it."""
    mine, other = make.machine(organization, "reports:read"), make.machine(organization, "reports:read")
    actor = make.actor(organization, user=make.user(organization))
    [source], [target] = (
        list_credentials(actor, mine.client_id).items,
        list_credentials(actor, other.client_id).items,
    )
    assert reveal_credential(actor, mine.client_id, source.public_id) == mine.secret
    sealed = db.session.scalar(select(Credential.sealed).where(Credential.id == source.id))
    set_row(Credential, Credential.id == target.id, sealed=sealed)
    with pytest.raises(NotRevealable):
        reveal_credential(actor, other.client_id, target.public_id)


def test_nothing_can_be_unsealed_without_the_data_key(organization: OrganizationSnapshot) -> None:
    """SE-8: this is what a purge does."""
    sealed = keyring.seal(organization.id, b"a secret", "row|1")
    set_row(Organization, Organization.id == organization.id, data_key=None)
    keyring.clear_cached_keys(organization.id)
    with pytest.raises(NotFound):
        keyring.unseal(organization.id, sealed, "row|1")


def test_data_key_works_only_for_its_organization(make: Factory, organization: OrganizationSnapshot) -> None:
    """SE-6: swapping wrapped keys between rows reveals nothing."""
    there = make.organization()
    wrapped = db.session.scalar(select(Organization.data_key).where(Organization.id == organization.id))
    set_row(Organization, Organization.id == there.id, data_key=wrapped)
    keyring.clear_cached_keys(there.id)
    with pytest.raises(UnsealError):
        keyring.seal(there.id, b"a secret", "row|1")


def test_another_master_key_unseals_nothing(
    context: Flask, organization: OrganizationSnapshot, monkeypatch
) -> None:
    """KY-6: cached keys of the right master key are not used with a wrong one."""
    sealed = keyring.seal(organization.id, b"a secret", "row|1")
    wrong = replace(context.config["GATEHOUSE"], master_key=bytes(range(32)))
    with monkeypatch.context() as changed:
        changed.setitem(context.config, "GATEHOUSE", wrong)
        with pytest.raises(UnsealError):
            keyring.unseal(organization.id, sealed, "row|1")
    assert keyring.unseal(organization.id, sealed, "row|1") == b"a secret"


def test_subkeys_differ_by_purpose_and_instance(context: Flask, monkeypatch) -> None:
    first, second = keyring.derive_instance_key("cursors"), keyring.derive_instance_key("anonymous cookie")
    assert len({first, second}) == 2 and keyring.derive_instance_key("cursors") == first and len(first) == 32
    other = replace(context.config["GATEHOUSE"], secret_key=bytes(range(32)))
    monkeypatch.setitem(context.config, "GATEHOUSE", other)
    assert keyring.derive_instance_key("cursors") != first


def test_configuration_text_contains_no_key(context: Flask, instance: Path) -> None:
    """LG-3."""
    configuration = context.config["GATEHOUSE"]
    text = repr(configuration) + str(configuration)
    for name in ("secret.key", "master.key"):
        assert (instance / name).read_text().strip() not in text
    assert repr(configuration.master_key) not in text
