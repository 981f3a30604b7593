"""An exported organization, its file, and another installation."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.operations.directory import lookups
from app.operations.maintenance import archive
from app.operations.maintenance.transfer import export_organization, import_organization
from app.rules.actor import Actor
from tests.factories import Factory, MadeClient, MadeUser
from tests.oauth.conftest import FAST_KEYS, SCOPES, Flow
from tests.support.applications import application
from tests.support.databases import Database

PASSPHRASE = "a barge of walnuts at noon"


@pytest.fixture(autouse=True)
def _cheap_passphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Derive keys with 1 MiB instead of 128: a test reads up to thirty files. The command's tests use the real cost."""
    monkeypatch.setitem(archive._SCRYPT, "n", 1 << 10)


@dataclass
class Moved:
    """An organization with everything that is exported, and its file."""

    organization: lookups.OrganizationSnapshot
    user: MadeUser
    client: MadeClient
    refresh_token: str
    file: bytes


@pytest.fixture
def elsewhere(
    database: Database, databases: Callable[[str], Database], tmp_path: Path
) -> Iterator[tuple[Flask, Database]]:
    """Another installation with other keys, the other database engine and its own root."""
    other = databases("mariadb" if database.engine == "sqlite" else "sqlite")
    other.clean()
    folder = tmp_path / "elsewhere"
    folder.mkdir(mode=0o700)
    made = application(other, folder, "http://localhost")
    lookups.clear_directory_cache()
    Factory(made).root()
    yield made, other
    other.clean()
    lookups.clear_directory_cache()


@pytest.fixture
def moved(app: Flask, http: FlaskClient, make: Factory) -> Moved:
    make.root()
    acme = make.organization("acme", settings=FAST_KEYS | {"branding": {"display_name": "Acmé ☀"}})
    admin = make.user(acme, email="ada@acme.example", role="admin")
    client = make.client(acme, scopes=SCOPES)
    flow = Flow(app, http, make, client, admin)
    flow.sign_in()
    refresh_token = flow.redeem(flow.code(scope="openid offline_access")).get_json()["refresh_token"]
    return Moved(acme, admin, client, refresh_token, exported(app, "acme"))


def exported(app: Flask, slug: str) -> bytes:
    stream = io.BytesIO()
    with app.app_context():
        export_organization(operator(), slug, stream, PASSPHRASE)
    return stream.getvalue()


def operator() -> Actor:
    return Actor.system(lookups.get_root_organization().id, "tests")


def brought_in(app: Flask, file: bytes, passphrase: str = PASSPHRASE) -> Any:
    with app.app_context():
        return import_organization(operator(), io.BytesIO(file), passphrase)
