"""Command-line commands: effect, output and exit status."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import Result
from flask import Flask

from app.operations.clients.clients import get_client, update_client
from app.operations.clients.credential_revocation import revoke_credentials
from app.operations.directory.lookups import get_organization_by_slug
from app.operations.grants.signing_keys import get_active_key, list_public_keys
from app.operations.maintenance import janitor
from app.operations.maintenance.demo import create_demo
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.sign_in import SignedIn
from app.operations.store import keyring, leases
from app.rules.actor import Actor
from tests.factories import PASSWORD, Factory
from tests.support.databases import Database
from tests.support.server_script import copy_to
from tests.support.servers import ROOT


def run(app: Flask, *arguments: str, typed: str | bytes | None = None) -> Result:
    return app.test_cli_runner().invoke(args=list(arguments), input=typed)


SETUP = ("setup", "--email", "rosa@gatehouse.example", "--organization", "Acme")


def test_setup_reads_the_password_from_standard_input(app: Flask) -> None:
    result = run(app, *SETUP, "--password-stdin", typed=f"{PASSWORD}\n")
    assert result.exit_code == 0, result.output
    values = dict(line.split("=", 1) for line in result.stdout.splitlines())
    assert values["GATEHOUSE_ORGANIZATION"] == "acme"
    assert values["GATEHOUSE_CLIENT_SECRET"].startswith("gth_cs_")
    assert PASSWORD not in result.output
    assert "Sign in to Acme at http://localhost/organizations/acme/login" in result.stderr
    with app.app_context():
        root = get_organization_by_slug("root")
        assert isinstance(sign_in(root.id, "rosa@gatehouse.example", PASSWORD), SignedIn)


def test_setup_credentials_can_get_a_token(app: Flask) -> None:
    values = dict(line.split("=", 1) for line in run(app, *SETUP, typed=f"{PASSWORD}\n").stdout.splitlines())
    answer = app.test_client().post(
        "/oauth/token",
        data={"grant_type": "client_credentials"},
        auth=(values["GATEHOUSE_CLIENT_ID"], values["GATEHOUSE_CLIENT_SECRET"]),
    )
    assert answer.status_code == 200
    bearer = {"Authorization": f"Bearer {answer.get_json()['access_token']}"}
    listed = app.test_client().get("/organizations", headers=bearer)
    assert {entry["id"] for entry in listed.get_json()["data"]} >= {"root", "acme"}


def test_second_setup_is_rejected(app: Flask, make: Factory) -> None:
    make.setup()
    result = run(app, *SETUP, typed=f"{PASSWORD}\n")
    assert result.exit_code == 1
    assert "already set up" in result.stderr


def test_setup_lists_every_invalid_field(app: Flask) -> None:
    result = run(
        app, "setup", "--email", "nobody", "--organization", "", "--organization-id", "A", typed="short\n"
    )
    assert result.exit_code == 1
    for field in ("email:", "password:", "organization_id:"):
        assert field in result.stderr
    assert "Traceback" not in result.output


def test_setup_link_can_be_replaced(app: Flask) -> None:
    result = run(app, "setup", "--link")
    assert result.exit_code == 0
    assert re.fullmatch(r"http://localhost/setup\?token=gth_su_[\w-]+\n", result.stdout)
    path = result.stdout.strip().removeprefix("http://localhost")
    assert 'name="organization_name"' in app.test_client().get(path).text


def test_doctor_exits_with_its_result(app: Flask, make: Factory) -> None:
    make.root()
    result = run(app, "doctor")
    assert result.exit_code == 0, result.output
    assert "ok     migrations" in result.stdout
    assert "->" not in result.stdout or "note" in result.stdout


def test_strict_doctor_fails_on_notes(app: Flask) -> None:
    result = run(app, "doctor", "--strict")
    assert result.exit_code == 1
    assert "-> flask --app wsgi setup" in result.stdout


def test_keys_rotate_publishes_a_key_before_it_signs(app: Flask, make: Factory) -> None:
    acme = make.organization("acme")
    with app.app_context():
        before = get_active_key(acme, "ES256").kid
    result = run(app, "keys", "rotate", "--organization", "acme", "--algorithm", "ES256")
    assert result.exit_code == 0, result.output
    with app.app_context():
        assert len(list_public_keys(acme.id)) == 2
        assert get_active_key(get_organization_by_slug("acme"), "ES256").kid == before
    assert (
        run(app, "keys", "rotate", "--organization", "acme", "--algorithm", "ES256", "--now").exit_code == 0
    )
    with app.app_context():
        # --now is for a key that leaked: nothing that it or the keys beside it signed may verify any more.
        [standing] = list_public_keys(acme.id)
        assert get_active_key(get_organization_by_slug("acme"), "ES256").kid == standing["kid"]
        assert standing["kid"] not in {before, result.stdout.split()[-1]}
    listed = run(app, "keys", "list", "--organization", "acme")
    assert listed.stdout.split()[:2] == ["ES256", "active"] and listed.stdout.split()[-1] == standing["kid"]


def test_keys_rewrap_requires_the_previous_key(app: Flask, make: Factory) -> None:
    """SE-8."""
    make.organization()
    result = run(app, "keys", "rewrap")
    assert result.exit_code == 1
    assert "GATEHOUSE_PREVIOUS_MASTER_KEY_FILE" in result.stderr


def test_keys_wrap_prints_the_key_only_if_asked(app: Flask) -> None:
    """The fingerprint is on standard error, so that the output can be a key file."""
    config = app.config["GATEHOUSE"]
    assert run(app, "keys", "wrap").exit_code == 2
    plain = run(app, "keys", "wrap", "--plain")
    assert plain.stdout == f"{config.master_key.hex()}\n"
    with app.app_context():
        assert keyring.fingerprint(config.master_key) in plain.stderr
    assert run(app, "keys", "wrap", "--plain", "--key", "secret").stdout.strip() == config.secret_key.hex()
    made = run(app, "keys", "wrap", "--plain", "--new").stdout.strip()
    assert len(made) == 64 and made != config.master_key.hex()
    refused = run(app, "keys", "wrap", "--kms", "vault://vault.example.com")
    assert refused.exit_code == 1 and "is not the URL of a key" in refused.stderr


def test_keys_rotate_rejects_an_unknown_organization(app: Flask, make: Factory) -> None:
    result = run(app, "keys", "rotate", "--organization", "nobody")
    assert result.exit_code == 1
    assert "no such organization" in result.stderr


def test_purge_reports_what_it_deleted(app: Flask, make: Factory) -> None:
    from app.models.session import Attempt
    from app.operations.store import clock
    from app.rules.identifiers import new_id
    from tests.operations.maintenance.test_janitor import write

    acme = make.organization()
    with app.app_context():
        from sqlalchemy import insert

        moment = clock.now() - timedelta(days=2)
        write(
            insert(Attempt).values(
                organization_id=acme.id, id=new_id(), bucket=b"b" * 32, at=moment, expires_at=moment
            )
        )
    result = run(app, "purge")
    assert (result.exit_code, result.stdout) == (0, "attempts: 1\n")


def test_purge_is_skipped_while_another_is_running(app: Flask) -> None:
    with app.app_context():
        assert leases.acquire(janitor.LEASE, "another process", 60)
    assert run(app, "purge").exit_code == 2


@pytest.mark.slow
def test_demo_prints_working_credentials_and_is_created_once(app: Flask, database: Database) -> None:
    result = run(app, "demo")
    assert result.exit_code == 0, result.output
    found = re.findall(r"^    (\S+@\S+) +(\S+)  (.+)$", result.stdout, re.MULTILINE)
    assert [email.split("@")[0] for email, _, _ in found] == ["root", "ada", "grace", "bob"]
    assert len({password for _, password, _ in found}) == 4
    assert result.stdout.count("gth_cs_") == 4
    for table in ("grants", "access_tokens", "consents", "audit_events", "sessions"):
        assert database.count(table) > 0, table
    tables = ("users", "clients", "client_credentials", "grants", "sessions")
    counts = [database.count(table) for table in tables]
    second = run(app, "demo")
    assert second.exit_code == 0, second.output
    assert second.stdout.strip() == result.stdout.split("Clients:")[0].strip()
    assert [database.count(table) for table in tables] == counts
    with app.app_context():
        for email, password, _ in found:
            organization = get_organization_by_slug("root" if email.startswith("root") else "acme")
            assert isinstance(sign_in(organization.id, email, password), SignedIn), email


def test_demo_leaves_another_organization_of_its_name_alone(
    app: Flask, make: Factory, database: Database
) -> None:
    make.setup(organization_name="Acme", organization_id="acme")
    result = run(app, "demo")
    assert result.exit_code == 1
    assert "not the demo's" in result.stderr
    assert database.count("clients") == 1


@pytest.mark.slow
def test_demo_app_gets_a_secret_or_client_in_place_of_one_that_it_cannot_use(app: Flask) -> None:
    with app.app_context():
        first = create_demo()
        system = Actor.system(get_organization_by_slug("acme").id, "tests")
        client_id = first.app.client_id
        assert create_demo().app == first.app
        revoke_credentials(system, client_id)
        again = create_demo("http://127.0.0.1:9001").app
        assert again.client_id == client_id and again.client_secret != first.app.client_secret
        assert get_client(system, client_id).redirect_uris == ("http://127.0.0.1:9001/callback",)
        keys = {"token_endpoint_auth_method": "private_key_jwt", "jwks_uri": "https://orchard.example/keys"}
        update_client(system, client_id, keys)
        replaced = create_demo().app
        assert replaced.client_id != client_id and create_demo().app == replaced


def test_help_lists_every_command(app: Flask) -> None:
    listed = run(app, "--help").stdout
    for name in ("setup", "doctor", "keys", "purge", "demo", "db"):
        assert re.search(rf"^  {name} ", listed, re.MULTILINE), name


@pytest.mark.slow
def test_command_without_its_environment_creates_nothing(tmp_path: Path) -> None:
    folder = copy_to(tmp_path)
    flask = [sys.executable, "-m", "flask", "--app", "wsgi", "doctor"]
    result = subprocess.run(flask, cwd=folder, env={}, capture_output=True, text=True, check=False)
    assert result.returncode == 78
    assert "Neither DATABASE_URL nor GATEHOUSE_INSTANCE is set" in result.stderr
    assert ". /etc/gatehouse/environment" in result.stderr
    assert not (folder / "instance").exists()


@pytest.mark.slow
def test_unsafe_setting_stops_every_command_with_a_fix(tmp_path: Path) -> None:
    """BS-2: what an operator sees."""
    result = subprocess.run(
        [sys.executable, "-m", "flask", "--app", "wsgi", "doctor"],
        cwd=ROOT,
        env={"GATEHOUSE_INSTANCE": str(tmp_path), "GATEHOUSE_BASE_URL": "https://id.example.com"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 78
    assert "GATEHOUSE_SECRET_KEY" in result.stderr
    assert "openssl rand -hex 32" in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == [], "beyond the loopback interface no key is made"


@pytest.mark.parametrize("command", ["--help", "doctor"])
@pytest.mark.slow
def test_command_prints_only_its_result(tmp_path: Path, command: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "flask", "--app", "wsgi", command],
        cwd=ROOT,
        env={"GATEHOUSE_INSTANCE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout
    assert result.stderr == ""
