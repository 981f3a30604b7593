"""``users``: list, create with a password link, disable, enable and delete."""

from __future__ import annotations

from flask import Flask

from app.operations.directory.users import create_user
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.sign_in import SignedIn
from app.operations.store.rows import MAX_LIMIT
from app.operations.users.password_resets import reset_password
from tests.cli.test_commands import run
from tests.factories import PASSWORD, Factory


def test_user_is_created_and_the_password_link_printed(app: Flask, make: Factory) -> None:
    """PW-4: no command accepts a password for another user."""
    acme = make.organization("acme")
    result = run(app, "users", "create", "--organization", "acme", "ada@acme.example", "--name", "Ada")
    assert result.exit_code == 0, result.output
    user, link = result.stdout.splitlines()
    assert user.endswith("active ada@acme.example") and "/organizations/acme/reset/" in link
    with app.app_context():
        reset_password(acme, link.rsplit("/", 1)[1], "four quiet otters sing")
        assert isinstance(sign_in(acme.id, "ada@acme.example", "four quiet otters sing"), SignedIn)


def test_user_who_signs_in_without_a_password_gets_no_link(app: Flask, make: Factory) -> None:
    make.organization("acme", settings={"authentication": {"password": {"enabled": False}}})
    result = run(app, "users", "create", "--organization", "acme", "ada@acme.example")
    assert result.exit_code == 0 and result.stdout.endswith("active ada@acme.example\n"), result.output
    assert "The user gets no link." in result.stderr


def test_administrator_is_appointed_after_the_last_one_has_left(app: Flask, make: Factory) -> None:
    acme = make.organization("acme")
    member = make.user(acme, email="ada@acme.example")
    invited = run(app, "users", "give-role", "--organization", "acme", "new@acme.example")
    assert "/organizations/acme/invite/gth_iv_" in invited.stdout, invited.output
    for user, role in ((member.email, ()), (member.public_id, ("auditor",))):
        given = run(app, "users", "give-role", "--organization", "acme", user, *role)
        assert given.stdout == f"{member.public_id} ada@acme.example {(*role, 'admin')[0]}\n", given.output
    other = make.user(acme)
    for action, role, warning in (("disable", "developer", "users enable"), ("enable", "auditor", "")):
        run(app, "users", action, "--organization", "acme", other.email)
        given = run(app, "users", "give-role", "--organization", "acme", other.email, role)
        assert warning in given.stderr and bool(given.stderr) is bool(warning), given.output
    link = run(app, "users", "reset-password", "--organization", "acme", member.email).stdout.strip()
    with app.app_context():
        reset_password(acme, link.rsplit("/", 1)[1], "four quiet otters sing")
        assert isinstance(sign_in(acme.id, member.email, "four quiet otters sing"), SignedIn)


def test_every_page_of_users_is_printed(app: Flask, make: Factory) -> None:
    acme = make.organization("acme")
    names = [f"user{number:03}@acme.example" for number in range(MAX_LIMIT + 5)]
    for name in names:
        with app.app_context():
            create_user(acme.id, email=name)
    make.user(make.organization(), email="elsewhere@globex.example")
    result = run(app, "users", "list", "--organization", "acme")
    assert [line.split()[2] for line in result.stdout.splitlines()] == names
    found = run(app, "users", "list", "--organization", "acme", "--search", "user004", "--status", "active")
    assert len(found.stdout.splitlines()) == 1


def test_user_is_disabled_by_email_and_enabled_and_deleted_by_id(app: Flask, make: Factory) -> None:
    acme = make.organization("acme")
    user = make.user(acme, email="ada@acme.example")
    result = run(app, "users", "disable", "--organization", "acme", "ADA@acme.example")
    assert result.exit_code == 0 and "disabled ada@acme.example" in result.stdout
    with app.app_context():
        assert not isinstance(sign_in(acme.id, user.email, PASSWORD), SignedIn)
    assert run(app, "users", "enable", "--organization", "acme", user.public_id).exit_code == 0
    with app.app_context():
        assert isinstance(sign_in(acme.id, user.email, PASSWORD), SignedIn)
    delete = ("users", "delete", "--organization", "acme", user.public_id)
    assert run(app, *delete).exit_code == 1  # Nobody confirmed it.
    assert f"{user.public_id} deleted, with sessions: 1" in run(app, *delete, "--yes").stdout
    assert run(app, "users", "list", "--organization", "acme").stdout == ""


def test_errors_are_explained_with_exit_status_1(app: Flask, make: Factory) -> None:
    acme = make.organization("acme")
    admin = make.user(acme, role="admin")
    for arguments, words in (
        (("disable", "--organization", "acme", "nobody@acme.example"), "no such user"),
        (("disable", "--organization", "acme", admin.email), "last administrator"),
        (("create", "--organization", "acme", "nobody"), "email: Enter a valid email address."),
        (("list", "--organization", "never-was"), "organization"),
    ):
        result = run(app, "users", *arguments)
        assert result.exit_code == 1 and words in result.stderr, arguments
