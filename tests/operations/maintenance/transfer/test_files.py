"""Archive files: crafted content is rejected, and all times are preserved."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import text, update

from app.extensions import db
from app.models.base import UtcDateTime
from app.models.organization import Organization
from app.operations.audit.chain import seal_all_events
from app.operations.directory import lookups
from app.operations.maintenance import archive, transfer
from app.operations.maintenance.archive import ArchiveReader, ArchiveWriter, UnreadableArchive
from app.operations.maintenance.transfer import COLUMNS
from app.operations.organizations.instance_limits import update_instance_limits
from app.operations.users.users import list_users
from app.rules.actor import Actor
from app.rules.errors import NotFound
from tests.factories import Factory
from tests.operations.maintenance.transfer.conftest import PASSPHRASE, Moved, brought_in, exported, operator
from tests.support.databases import Database


def written(records: list[Any]) -> bytes:
    """Return an archive of the records."""
    stream = io.BytesIO()
    writer = ArchiveWriter(stream, PASSPHRASE, {"organization": "acme"})
    for record in records:
        writer.write(record)
    writer.close()
    return stream.getvalue()


@pytest.mark.either
def test_crafted_file_cannot_affect_other_organizations(
    moved: Moved, elsewhere: tuple[Flask, Database]
) -> None:
    """TN-4: rows of another organization, tables that are not exported, and unknown columns and states."""
    there, _ = elsewhere
    globex = Factory(there).organization("globex")
    good = list(ArchiveReader(io.BytesIO(moved.file), PASSPHRASE).records())
    users = next(
        n for n, record in enumerate(good) if isinstance(record, dict) and record.get("table") == "users"
    )
    key = good[users]["columns"].index("organization_id")
    forged = [globex.id if column == key else value for column, value in enumerate(good[users + 1])]
    organization = good[0]["organization"]
    roles = next(
        n
        for n, record in enumerate(good)
        if isinstance(record, dict) and record.get("table") == "role_assignments"
    )
    eve = {"user_organization_id": globex.id, "user_id": Factory(there).user(globex).id.hex}
    stolen = [
        eve.get(name, value) for name, value in zip(good[roles]["columns"], good[roles + 1], strict=True)
    ]
    for place, record in (
        (users + 1, forged),
        # The roles of an organization show the name and email address of the user.
        (roles + 1, stolen),
        (users, {"table": "sessions", "columns": ["organization_id", "id"]}),
        (users, {"table": "users", "columns": [*good[users]["columns"][:-1], "is_root"]}),
        (0, {"organization": {**organization, "is_root": True}}),
        (0, {"organization": {**organization, "status": "purged"}}),
        (0, {"organization": {**organization, "id": "../etc"}}),
        (0, {"organization": {**organization, "slug": "../etc"}}),
        (0, {"organization": {**organization, "slug": 5}}),
        (0, {"organization": {**organization, "settings": []}}),
        (0, {"organization": {**organization, "version": "1"}}),
        (0, {"organization": {**organization, "data_key": "aa"}}),
        (0, {"organization": {**organization, "created_at": "yesterday"}}),
        (users, {"table": ["users"], "columns": []}),
        (users, {"table": "users", "columns": [["id"]]}),
        (users + 1, [1]),
        (users + 1, [{}] * len(good[users + 1])),
        (1, "x" * (17 << 20)),
    ):
        with pytest.raises(UnreadableArchive):
            brought_in(there, written([*good[:place], record, *good[place + 1 :]]))
    with there.app_context(), pytest.raises(NotFound):
        lookups.get_organization_by_slug("acme")
    with there.app_context():
        assert len(list_users(Actor.system(globex.id, "tests")).items) == 1


FAR = "9999-12-31T23:59:59+00:00"
RECEIPT = {
    "kind": "organization",
    "subject": "",
    "issued_before": FAR,
    "sessions": True,
    "counts": {},
    "created_at": "2026-01-01T00:00:00+00:00",
    "expires_at": "2027-01-01T00:00:00+00:00",
}
DEEP: list[Any] = []
for _ in range(99):
    DEEP = [DEEP]
# Each would end a job for all organizations, fail at a request, or end the import with a traceback.
ROWS: list[tuple[str, dict[str, Any], str]] = [
    ("revocation_receipts", RECEIPT, "revocation_receipts.issued_before"),
    ("signing_keys", {"activated_at": None}, "signing_keys.activated_at"),
    ("signing_keys", {"activated_at": FAR}, "signing_keys.activated_at"),
    ("clients", {"created_at": FAR}, "clients.created_at"),
    ("clients", {"created_at": "1969-12-31T00:00:00+00:00"}, "clients.created_at"),
    ("clients", {"created_at": "2026-01-01T00:00:00"}, "clients.created_at"),
    ("clients", {"created_at": None}, "clients.created_at"),
    ("clients", {"created_at": "0001-01-01T00:00:00+23:00"}, "clients.created_at"),
    ("audit_events", {"after": {"deep": DEEP}}, "audit_events.after"),
    ("audit_events", {"after": {"number": float("inf")}}, "audit_events.after"),
    ("audit_events", {"actor_label": ["x"]}, "audit_events.actor_label"),
    ("users", {"name": 5}, "users.name"),
    ("users", {"version": 1 << 63}, "users.version"),
    ("users", {"version": "1"}, "users.version"),
    ("clients", {"client_type": "web", "id": None}, "clients.id"),
]


def crafted(good: list[Any], table: str, values: Mapping[str, Any]) -> bytes:
    """Return an archive in which values of one row of the table are others; a table without rows gets one."""
    head = next(
        n for n, record in enumerate(good) if isinstance(record, dict) and record.get("table") == table
    )
    columns, place = good[head]["columns"], head + 1
    if isinstance(good[place], list):
        old, after = good[place], good[place + 1 :]
    else:
        ids = {"organization_id": good[0]["organization"]["id"], "id": "0" * 32}
        old, after = [ids.get(name) for name in columns], good[place:]
    row = [values.get(name, value) for name, value in zip(columns, old, strict=True)]
    return written([*good[:place], row, *after])


def test_rows_that_no_operation_would_write_are_rejected(
    moved: Moved, elsewhere: tuple[Flask, Database]
) -> None:
    """P2: jobs work on the rows of all organizations."""
    there, _ = elsewhere
    good = list(ArchiveReader(io.BytesIO(moved.file), PASSPHRASE).records())
    for table, values, column in ROWS:
        with pytest.raises(UnreadableArchive, match=column):
            brought_in(there, crafted(good, table, values))
    with there.app_context(), pytest.raises(NotFound):
        lookups.get_organization_by_slug("acme")


def test_log_that_cannot_be_continued_is_not_imported(
    moved: Moved, app: Flask, elsewhere: tuple[Flask, Database]
) -> None:
    """Before the organization is served: the sealer works on the logs of all organizations."""
    there, _ = elsewhere
    with app.app_context():
        seal_all_events(operator(), moved.organization.id)
    good = list(ArchiveReader(io.BytesIO(exported(app, "acme")), PASSPHRASE).records())
    last = (1 << 63) - 1
    # The end of this one fits its last link, and no event can follow.
    full = crafted(good, "audit_links", {"position": last})
    fitting = list(ArchiveReader(io.BytesIO(full), PASSPHRASE).records())
    for records, values in (
        (good, {"length": last}),
        (good, {"length": last, "removed": last}),
        (good, {"length": 3}),
        (good, {"removed": -1}),
        (good, {"removed": 999}),
        (fitting, {"length": last}),
    ):
        with pytest.raises(UnreadableArchive, match="chain of the audit log"):
            brought_in(there, crafted(records, "audit_chains", values))
        with there.app_context(), pytest.raises(NotFound):
            lookups.get_organization_by_slug("acme")
    assert brought_in(there, written(good)).slug == "acme"


@pytest.mark.either
def test_file_cannot_take_much_memory(
    moved: Moved, elsewhere: tuple[Flask, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few kilobytes may hold gigabytes, so rows are bounded and stored before many wait."""
    there, _ = elsewhere
    good = list(ArchiveReader(io.BytesIO(moved.file), PASSPHRASE).records())
    waiting: list[int] = []
    insert = transfer._insert
    monkeypatch.setattr(
        transfer,
        "_insert",
        lambda table, rows, renew: waiting.append(len(rows)) or insert(table, rows, renew),
    )
    events = next(
        n
        for n, record in enumerate(good)
        if isinstance(record, dict) and record.get("table") == "audit_events"
    )
    columns, event = good[events]["columns"], good[events + 1]
    large = {"after": {"text": "x" * (archive.MAX_RECORD_BYTES - 5000)}}
    many = [
        [
            ({"id": f"{number:032x}"} | large).get(name, value)
            for name, value in zip(columns, event, strict=True)
        ]
        for number in range(5)
    ]
    with pytest.raises(UnreadableArchive, match="number of rows"):
        brought_in(there, written([*good[: events + 1], *many, *good[events + 1 :]]))
    assert waiting.count(1) >= 5
    for wrong, message in (
        (json.dumps({"text": "x" * archive.MAX_RECORD_BYTES}), "oversized row"),
        ("[" * 100_000, "malformed"),
        ("[1,", "malformed"),
        ("\n" * 15_000_000, "truncated"),
    ):
        with pytest.raises(UnreadableArchive, match=message):
            brought_in(there, with_line(good[:1], wrong))


def with_line(records: list[Any], line: str) -> bytes:
    """Return an archive that ends with this line, whatever it is."""
    stream = io.BytesIO()
    writer = ArchiveWriter(stream, PASSPHRASE, {"organization": "acme"})
    for record in records:
        writer.write(record)
    writer._waiting.append(line.encode())
    writer.close()
    return stream.getvalue()


def test_file_cannot_make_sign_ins_expensive(moved: Moved, elsewhere: tuple[Flask, Database]) -> None:
    """P2: every organization waits for the cores that verify a password."""
    there, _ = elsewhere
    good = list(ArchiveReader(io.BytesIO(moved.file), PASSPHRASE).records())
    salt = "c2FsdHNhbHRzYWx0c2FsdA$ZGlnZXN0ZGlnZXN0ZGlnZXN0ZGlnZXN0"
    for values in (
        {"password_hash": f"$2b$31${'a' * 53}"},
        {"password_hash": f"$2b$31${'a' * 53}", "password_scheme": "bcrypt 31"},
        {"password_hash": f"$argon2id$v=19$m=9999999,t=9,p=1${salt}"},
        {"password_hash": f"$pbkdf2-sha256$i=999999999${salt}"},
        {"password_hash": "none"},
        {"password_scheme": "bcrypt 31"},
        {"password_hash": None, "password_scheme": "scrypt 31 8 1"},
    ):
        with pytest.raises(UnreadableArchive):
            brought_in(there, crafted(good, "users", values))
    known = {"password_hash": f"$2b$12${'a' * 53}", "password_scheme": "bcrypt 12"}
    brought_in(there, crafted(good, "users", known))


INVALID_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"authentication": {"password": {"min_length": 1}}}, "authentication.password.min_length"),
    ({"authentication": {"password": {"min_length": "x"}}}, "authentication.password.min_length"),
    ({"oauth": {"pkcs": "off"}}, "oauth.pkcs"),
    (
        {"user_permissions": {"roles": {"developer": {"permissions": ["organizations:write"]}}}},
        "user_permissions.roles.developer.permissions[0]",
    ),
    (
        {"authentication": {"registration": {"default_roles": ["auditor"]}}},
        "authentication.registration.default_roles[0]",
    ),
    ({"branding": {"logo": "https://evil.example/x.png"}}, "branding.logo"),
    ({"oauth": {"access_token": {"ttl_seconds": 7200}}}, "oauth.access_token.ttl_seconds"),
]


def test_invalid_settings_are_not_imported(moved: Moved, elsewhere: tuple[Flask, Database]) -> None:
    """TN-11: a file cannot bypass the validation of settings or the instance limits."""
    there, database = elsewhere
    with there.app_context():
        root = Actor.system(lookups.get_root_organization().id, "tests")
        update_instance_limits(root, {"oauth.access_token.ttl_seconds": {"max": 3600}})
    organization, *rest = ArchiveReader(io.BytesIO(moved.file), PASSPHRASE).records()
    before = database.count("organizations")
    for settings, field in INVALID_SETTINGS:
        organization["organization"]["settings"] = settings
        with pytest.raises(UnreadableArchive) as refusal:
            brought_in(there, written([organization, *rest]))
        assert [error.field for error in refusal.value.errors] == [f"settings.{field}"]
        assert f"settings.{field}" in refusal.value.description
    assert database.count("organizations") == before


def test_file_of_a_release_without_a_pkce_policy_keeps_requiring_pkce(
    moved: Moved, elsewhere: tuple[Flask, Database]
) -> None:
    there, _ = elsewhere
    organization, *rest = ArchiveReader(io.BytesIO(moved.file), PASSPHRASE).records()
    assert organization["organization"]["settings"]["oauth"].pop("pkce") == "required_or_nonce"
    brought_in(there, written([organization, *rest]))
    with there.app_context():
        assert lookups.get_organization_by_slug("acme").settings["oauth"]["pkce"] == "required"
    # As of release 0.1, in which clients need no access to APIs: they would have none here.
    del organization["organization"]["restored_at"]
    with pytest.raises(UnreadableArchive, match="Import it with that release, upgrade"):
        brought_in(there, written([organization, *rest]))


def test_all_times_of_an_organization_are_exported(
    app: Flask, make: Factory, elsewhere: tuple[Flask, Database]
) -> None:
    """The grace period of second factors and the cutoff of sessions are preserved."""
    make.root()
    acme = make.organization("acme")
    moments = [name for name in COLUMNS if isinstance(Organization.__table__.c[name].type, UtcDateTime)]
    assert {"factor_demanded_at", "admins_factor_demanded_at", "sessions_not_before"} <= set(moments)
    at = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    with app.app_context():
        db.session.execute(
            update(Organization).where(Organization.id == acme.id).values(dict.fromkeys(moments, at))
        )
        db.session.commit()
    there, _ = elsewhere
    brought_in(there, exported(app, "acme"))
    with there.app_context():
        row = db.session.get_one(Organization, acme.id)
        assert {name: getattr(row, name) for name in moments} == dict.fromkeys(moments, at)


def test_export_does_not_change_isolation_of_later_reads(
    app: Flask, make: Factory, database: Database
) -> None:
    """The isolation level of the snapshot stays on its connection."""
    make.root()
    make.organization("acme")
    exported(app, "acme")
    if database.engine != "mariadb":
        return
    with app.app_context():
        variables = db.session.execute(
            text("SHOW VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')")
        )
        assert {value for _name, value in variables} == {"READ-COMMITTED"}
