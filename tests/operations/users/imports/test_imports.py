"""Imports of users: complete files and invalid rows, limited by the importer's permissions."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, func, select, update

from app.extensions import db
from app.models.user import RoleAssignment, User, UserImport, UserImportPart
from app.operations.directory.lookups import get_user_roles
from app.operations.directory.users import create_user, find_user_by_email
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.sign_in import SignedIn
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.operations.users import groups, import_records, import_runner, import_uploads
from app.rules.actor import Actor
from app.rules.audit.events import event_type_for_action
from app.rules.errors import Conflict, Forbidden, InvalidInput, NotFound
from tests.factories import PASSWORD
from tests.support.importing import (
    BCRYPT,
    admin,
    begin,
    bring_in,
    counts,
    events,
    imported,
    reasons,
    stored,
    user_rows,
)

pytestmark = pytest.mark.usefixtures("context")


@transaction
def expire_parts(left: timedelta) -> None:
    """Let all uploaded rows expire after this time."""
    db.session.execute(update(UserImportPart).values(expires_at=clock.now() + left))


def test_users_are_imported_with_all_fields_and_one_event_each(make: Any) -> None:
    """AU-1."""
    acme, globex = make.organization(), make.organization()
    actor = admin(make, acme)
    text = (
        "email,name,given_name,email_verified,password_hash,roles,status\n"
        f"Ada@a.example,Ada Lovelace,Ada,true,{BCRYPT},member auditor,active\n"
        "bob@a.example,,,,,,disabled\n"
    )
    ended = bring_in(actor, text, name="users.csv")
    assert counts(ended) == ("done", 2, 0, 0, 0)
    ada = find_user_by_email(acme.id, "ada@A.example")
    assert (ada.email, ada.name, ada.email_verified, ada.profile) == (
        "Ada@a.example",
        "Ada Lovelace",
        True,
        {"given_name": "Ada"},
    )
    assert ada.has_password and ada.is_active
    bob = find_user_by_email(acme.id, "bob@a.example")
    assert (bob.status, bob.has_password, bob.email_verified) == ("disabled", False, False)
    roles = db.session.scalars(select(RoleAssignment.role).where(RoleAssignment.user_id == ada.id)).all()
    assert sorted(roles) == ["auditor", "member"]
    made = events(acme, "user.imported")
    assert {event.target_id for event in made} == {ada.public_id, bob.public_id}
    assert BCRYPT not in json.dumps([event.after for event in made])
    assert event_type_for_action("user.imported") is None, (
        "a webhook would be told of each of a hundred thousand"
    )
    assert [event.after["rows"] for event in events(acme, "user_import.started")] == [2]
    assert [event.after["created"] for event in events(acme, "user_import.ended")] == [2]
    assert find_user_by_email(globex.id, "ada@a.example") is None
    assert stored(UserImportPart) == 0


@pytest.mark.usefixtures("real_hashes")
def test_imported_hash_signs_in_and_is_renewed(make: Any) -> None:
    """PW-5."""
    from argon2 import PasswordHasher

    acme = make.organization()
    elsewhere = PasswordHasher(time_cost=1, memory_cost=8192, parallelism=1).hash(PASSWORD)
    text = json.dumps([{"email": "ada@a.example", "password_hash": elsewhere}])
    assert bring_in(admin(make, acme), text, file_format="json").created == 1
    assert isinstance(sign_in(acme.id, "ada@a.example", PASSWORD), SignedIn)
    asked = select(User.password_hash, User.password_scheme).where(User.email == "ada@a.example")
    kept = db.session.execute(asked).one()
    assert kept.password_hash.startswith("$argon2id$v=19$m=19456,t=2,p=1$") and kept.password_scheme is None


def test_invalid_rows_are_reported_and_the_others_imported(make: Any) -> None:
    acme = make.organization()
    actor = admin(make, acme)
    text = (
        "email,name,password_hash,roles\n"
        "ok@a.example,Fine,,\n"
        "nobody,A\u202eB,md5,\n"
        "OK@a.example,Again,,\n"
        "x@a.example,X,,nonesuch\n"
        "short@a.example\n"
    )
    ended = bring_in(actor, text)
    assert counts(ended) == ("done", 1, 0, 0, 4)
    assert reasons(actor, ended) == {
        3: [("email", "invalid_email"), ("name", "forbidden_character"), ("password_hash", "unknown_hash")],
        4: [("", "unusable_row")],
        5: [("roles", "unknown_role")],
        6: [("", "unusable_row")],
    }
    report = "".join(import_records.refusal_report(actor, ended.public_id))
    assert report.splitlines()[0] == "row,errors,email,name,password_hash,roles"
    assert "Row 2 has the same email." in report
    mended = report.replace("nonesuch", "member")
    assert counts(bring_in(actor, mended)) == ("done", 2, 0, 1, 1)


def test_invalid_file_leaves_nothing(make: Any) -> None:
    acme = make.organization()
    actor = admin(make, acme)
    for text in ("", "email\n", user_rows(600) + '"', user_rows(600).encode() + b"\xff\n"):
        with pytest.raises(InvalidInput) as refusal:
            begin(actor, text)
        assert refusal.value.field == "file"
    with pytest.raises(InvalidInput) as refusal:
        begin(actor, "email\n", file_format="xml", on_existing="replace", name="a\0b")
    assert {error.field for error in refusal.value.errors} == {"format", "on_existing", "name"}
    assert stored(UserImport) == stored(UserImportPart) == imported() == 0
    assert events(acme, "user_import.started") == []


def test_dry_run_predicts_the_import(make: Any) -> None:
    acme = make.organization()
    actor = admin(make, acme)
    make.user(acme, email="p1@users.example")
    text = user_rows(300) + "nobody,Wrong\n"
    checked = bring_in(actor, text, dry=True)
    assert counts(checked) == ("checked", 299, 0, 1, 1)
    assert imported() == 1 and events(acme, "user.imported") == []
    expire_parts(timedelta(seconds=-1))
    with pytest.raises(Conflict, match="expired"):
        import_uploads.start_import(actor, checked.public_id)
    assert list(reasons(actor, checked)) == [302]
    expire_parts(timedelta(minutes=1))
    import_uploads.start_import(actor, checked.public_id)
    until = db.session.scalars(select(func.min(UserImportPart.expires_at))).one()
    assert until - clock.now() > timedelta(days=1), "they are kept for the import"
    with pytest.raises(Conflict):
        import_uploads.start_import(actor, checked.public_id)
    ended = import_runner.run_import(actor, checked.public_id)
    assert counts(ended) == ("done", 299, 0, 1, 1)
    assert imported() == 300 and stored(UserImportPart) == 0
    assert list(reasons(actor, ended)) == [302]


def test_rows_beyond_the_limit_of_users_are_refused(make: Any) -> None:
    """The trial predicts it."""
    acme = make.organization(settings={"limits": {"max_users": 4}})
    actor = admin(make, acme)
    checked = bring_in(actor, user_rows(10), dry=True)
    ended = bring_in(actor, user_rows(10))
    # The administrator has one of the four places.
    assert counts(checked)[1:] == counts(ended)[1:] == (3, 0, 0, 7)
    assert next(iter(reasons(actor, ended).values()))[0][1] == "too_many_users"


def test_existing_user_is_skipped_or_updated(make: Any) -> None:
    """PW-4, TN-12: an import never changes the password, the email or its verification."""
    acme = make.organization()
    actor = admin(make, acme)
    ada = make.user(acme, email="ada@a.example", name="Ada")
    text = (
        "email,name,phone_number,roles,password_hash,email_verified\n"
        f"ADA@a.example,Ada Lovelace,+41446681800,member,{BCRYPT},false\n"
    )
    assert counts(bring_in(actor, text)) == ("done", 0, 0, 1, 0)
    assert find_user_by_email(acme.id, ada.email).name == "Ada"
    assert counts(bring_in(actor, text, dry=True, on_existing="update")) == ("checked", 0, 1, 0, 0)
    assert find_user_by_email(acme.id, ada.email).name == "Ada"
    assert counts(bring_in(actor, text, on_existing="update")) == ("done", 0, 1, 0, 0)
    view = find_user_by_email(acme.id, ada.email)
    assert (view.name, view.email, view.email_verified) == ("Ada Lovelace", "ada@a.example", True)
    assert view.profile == {"phone_number": "+41446681800"}
    assert isinstance(sign_in(acme.id, ada.email, PASSWORD), SignedIn)
    assert [event.after for event in events(acme, "user.updated")] == [
        {"name": "Ada Lovelace", "profile": {"phone_number": "+41446681800"}}
    ]
    assert counts(bring_in(actor, text, on_existing="update")) == ("done", 0, 0, 1, 0)


def test_unchanged_rows_cost_no_query_each(make: Any) -> None:
    """A file that is imported again a week later has mostly these."""
    acme = make.organization()
    actor = admin(make, acme)
    bring_in(actor, user_rows(40))
    statements: list[str] = []

    def note(*told: Any) -> None:
        statements.append(told[2])

    counted = []
    event.listen(db.engine, "before_cursor_execute", note)
    try:
        for count in (1, 40):
            assert counts(bring_in(actor, user_rows(count), on_existing="update")) == ("done", 0, 0, count, 0)
            counted.append(len(statements))
            statements.clear()
    finally:
        event.remove(db.engine, "before_cursor_execute", note)
    assert counted[0] == counted[1]


def test_attributes_are_imported_merged_and_checked(make: Any) -> None:
    keys = (("department", "string"), ("grade", "integer"))
    attributes = [{"key": key, "name": key, "type": kind, "required": True} for key, kind in keys]
    acme = make.organization(settings={"user_profile": {"attributes": attributes}})
    actor = admin(make, acme)
    text = 'email,attributes\nada@a.example,"{""department"": ""Fruit"", ""grade"": 3}"\n'
    assert counts(bring_in(actor, text)) == ("done", 1, 0, 0, 0)
    rows = [
        {"email": "ada@a.example", "attributes": {"grade": 4}},
        {"email": "bob@a.example", "attributes": {"grade": "high"}},
        {"email": "cleo@a.example", "attributes": {"shoe_size": 40}},
        {"email": "dan@a.example", "attributes": "Fruit"},
    ]
    ended = bring_in(actor, json.dumps(rows), file_format="json", on_existing="update")
    assert counts(ended) == ("done", 0, 1, 0, 3)
    assert find_user_by_email(acme.id, "ada@a.example").attributes == {"department": "Fruit", "grade": 4}


def test_users_are_imported_into_groups(make: Any) -> None:
    acme = make.organization()
    actor = admin(make, acme)
    drivers, pickers = (
        groups.create_group(actor, acme.slug, {"name": name}) for name in ("Drivers; night", "Pickers")
    )
    make.user(acme, email="bob@a.example")
    register_unverified(acme, "mallory@a.example")
    groups.add_member(actor, acme.slug, pickers.public_id, {"email": "bob@a.example"})
    text = (
        "email,groups\n"
        'ada@a.example,"[""drivers; night"", ""Pickers""]"\n'
        'bob@a.example,"[""Drivers; night"", ""Pickers""]"\n'
        "mallory@a.example,Pickers\n"
        "cleo@a.example,pickers; PICKERS ;\n"
        "dan@a.example,Pickers;Sorters\n"
    )
    for dry in (True, False):
        ended = bring_in(actor, text, dry=dry, on_existing="update")
        assert counts(ended)[1:] == (2, 1, 0, 2), reasons(actor, ended)
        assert reasons(actor, ended) == {
            4: [("groups", "email_unverified")],
            6: [("groups", "unknown_group")],
        }
    assert [
        [member.user.email for member in groups.list_members(actor, acme.slug, group.public_id).items]
        for group in (drivers, pickers)
    ] == [["ada@a.example", "bob@a.example"], ["ada@a.example", "bob@a.example", "cleo@a.example"]]
    assert events(acme, "user.imported")[0].after["groups"] == ["Drivers; night", "Pickers"]
    assert counts(bring_in(actor, text, on_existing="update"))[1:] == (0, 0, 3, 2)


def test_unverified_user_does_not_get_imported_roles(make: Any) -> None:
    """OI-5: as when an administrator is added by email. Default roles are harmless."""
    acme = make.organization()
    squatter = find_user_by_email(acme.id, register_unverified(acme, "ada@a.example"))
    text = "email,roles\nada@a.example,developer\n"
    for dry in (True, False):
        ended = bring_in(admin(make, acme), text, dry=dry, on_existing="update")
        assert reasons(admin(make, acme), ended) == {2: [("roles", "email_unverified")]}
    assert get_user_roles(acme.id, acme.id, squatter.id) == ()
    member = "email,roles\nada@a.example,member\n"
    assert counts(bring_in(admin(make, acme), member, on_existing="update")) == ("done", 0, 1, 0, 0)


def register_unverified(organization: Any, email: str) -> str:
    create_user(organization.id, email=email, made_unproven=True)
    return email


def test_importer_cannot_assign_missing_permissions_or_change_privileged_users(make: Any) -> None:
    """TN-11. Only those who may turn off verification may declare emails verified (OI-5)."""
    acme = make.organization()
    chief = make.user(acme, role="admin")
    weak = admin(make, acme, "users:read", "users:write")
    text = (
        "email,name,roles,email_verified\n"
        "a@a.example,,admin,\n"
        "b@a.example,,,true\n"
        "c@a.example,,member,false\n"
        f"{chief.email},,member,\n"
    )
    ended = bring_in(weak, text, on_existing="update")
    assert counts(ended) == ("done", 1, 0, 0, 3)
    assert reasons(weak, ended) == {
        2: [("roles", "insufficient_scope")],
        3: [("email_verified", "insufficient_scope")],
        5: [("", "insufficient_scope")],
    }
    assert find_user_by_email(acme.id, chief.email).name == "Ada Lovelace"
    for actor in (make.actor(acme, "users:read"), make.actor(acme, "clients:write")):
        with pytest.raises(Forbidden):
            begin(actor, user_rows(1))
        with pytest.raises(Forbidden):
            import_records.list_refused_rows(actor, ended.public_id)


def test_importer_without_admins_write_can_assign_only_default_roles(make: Any) -> None:
    """TN-11: assigning a role requires admins:write, even for an actor with all permissions of the role."""
    role = {"name": "User manager", "description": "", "permissions": ["users:read", "users:write"]}
    acme = make.organization(settings={"user_permissions": {"roles": {"user_manager": role}}})
    user = make.user(acme, role="user_manager")
    clerk = make.actor(acme, "users:read", "users:write", user=user)
    text = "email,roles\nsecond@users.example,user_manager\nthird@users.example,member\n"
    ended = bring_in(clerk, text)
    assert counts(ended) == ("done", 1, 0, 0, 1)
    assert reasons(clerk, ended) == {2: [("roles", "insufficient_scope")]}
    for uploader in (clerk, make.actor(acme, user=user)):  # the second one lost permissions after the upload
        checked = bring_in(uploader, text, dry=True)
        import_uploads.start_import(admin(make, acme), checked.public_id)
        started = import_runner.run_import(clerk, checked.public_id)
        assert started.created_by == clerk.label, "who sent the file, not who started it"
        assert counts(started) == ("done", 0, 0, 1, 1), (
            "what the dry run rejected was not what others started"
        )
    assert counts(bring_in(admin(make, acme), text)) == ("done", 1, 0, 1, 0)


def test_import_checked_by_the_command_line_can_be_started_by_another_actor(make: Any) -> None:
    acme = make.organization()
    record = begin(Actor.system(acme.id, "command line"), user_rows(2), dry=True, is_foreground=True)
    assert import_runner.run_import(Actor.system(acme.id), record.public_id).status == "checked"
    actor = admin(make, acme)
    import_uploads.start_import(actor, record.public_id)
    assert import_runner.process_due_imports(make.system(acme), holder="worker") == 1
    assert counts(import_records.get_import(actor, record.public_id)) == ("done", 2, 0, 0, 0)


def test_report_escapes_and_limits_unknown_columns(make: Any) -> None:
    acme = make.organization()
    actor = admin(make, acme)
    rows = [
        {"email": "x", "errors": "none", "row": 7, "=cmd|' /C calc'!A0": 1},
        *({"email": "x", **{f"k{number}_{column}": "" for column in range(50)}} for number in range(20)),
    ]
    ended = bring_in(actor, json.dumps(rows), file_format="json")
    report = "".join(import_records.refusal_report(actor, ended.public_id)).splitlines()
    assert report[0].startswith("row,errors,email,'=cmd|' /C calc'!A0,k0_0,")
    assert len(report[0].split(",")) == 3 + 20
    assert report[1].startswith("1,") and "There is no such field" in report[1]


def test_parts_of_long_rows_are_limited_in_size(make: Any) -> None:
    acme = make.organization()
    actor = admin(make, acme)
    rows = [{"email": f"p{number}@users.example", "name": "é" * 60_000} for number in range(8)]
    record = begin(
        actor, "\n".join(json.dumps(row, ensure_ascii=False) for row in rows), file_format="ndjson"
    )
    sizes = [len(sealed) for sealed in db.session.scalars(select(UserImportPart.sealed_rows))]
    assert record.parts == len(sizes) == 3 and max(sizes) < 2**20 + 8 * 2**16
    assert counts(import_runner.run_import(actor, record.public_id)) == ("done", 0, 0, 0, 8)


def test_import_cannot_disable_the_last_administrator(make: Any) -> None:
    acme = make.organization()
    chief = make.user(acme, role="admin")
    machine = make.actor(acme, user=chief)
    ended = bring_in(machine, f"email,status\n{chief.email},disabled\n", on_existing="update")
    assert reasons(machine, ended) == {2: [("", "last_administrator")]}


def test_import_of_another_organization_is_not_found(make: Any) -> None:
    """TN-1."""
    acme, globex = make.organization(), make.organization()
    record = begin(admin(make, acme), user_rows(3))
    stranger = admin(make, globex)
    for ask in (
        import_records.get_import,
        import_records.list_refused_rows,
        import_uploads.start_import,
        import_records.cancel_import,
    ):
        with pytest.raises(NotFound):
            ask(stranger, record.public_id)
    assert import_records.list_imports(stranger).items == ()
    with pytest.raises(NotFound):
        import_runner.run_import(stranger, record.public_id)
    assert import_uploads.find_interrupted(stranger, "00" * 32, is_dry_run=False) is None
    assert stored(UserImportPart) == 1
