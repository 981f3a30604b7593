"""The house stands as it was drawn: floors, one committer, actors first, files that are read in one sitting."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOP_LEVEL = {
    *("app", "migrations", "templates", "static", "tests", "wsgi.py", "requirements.txt", "README.md"),
    *("script", "pyproject.toml", "docs", "CHANGELOG.md", ".ci", ".gitignore"),
}
LONGEST_FILE = 300
FACES = ("api", "portal", "account", "oauth", "cli", "web")

# Operations that faces call without an actor, each kind with its reason.
WITHOUT_ACTOR = {
    "they find out who asks": {
        *("client_authentication.authenticate_client", "sessions.find_session", "sign_in.sign_in"),
        *("grants.client_actor", "rights.rights_of_user", "directory.reread"),
        *("management_access.find_token_actor", "dpop_proofs.key_of_request"),
        *("directory.organization_by_id", "directory.organization_by_slug", "directory.root_organization"),
        *("users.get_user", "authorization_requests.find_request"),
        "waiting.find_waiting",
        *("sign_in.is_offered", "sign_in.begin_sign_in", "sign_in.begin_second_factor"),
        "registration.begin_registration_at_sign_in",
        *("authorization_requests.find_asking_client", "requests.read_logout_request"),
        *("asked_requests.read_asked", "asked_requests.read_pushed"),
        *("password_recovery.is_offered", "password_recovery.request_reset"),
        *("registration.what_follows", "own_address.may_prove_addresses"),
        "password_resets.is_mailable",
        *("registration.register_user", "registration.require_open", "interactions.next_interaction"),
    },
    "the client that authenticated is the actor, and the token endpoint makes none beside it": {
        *(
            "codes.redeem_code",
            "device_polls.redeem_device_code",
            "refresh_tokens.refresh",
            "tokens.issue_to_client",
            "introspections.introspect",
        ),
        *("userinfo.claims_of", "usage.note_use", "consents.standing_consent"),
        *("consents.offered_ends", "interactions.must_ask", "interactions.may_allow_client"),
        *("authorization_requests.shown_digest", "audiences.authorized", "token_exchange.exchange"),
        *(
            "introspections.sign",
            "dpop_proofs.is_demanded",
            "proven_clients.recall",
            "proven_clients.remember",
        ),
    },
    "it stands on pages that strangers see": {
        "logos.digest_of_logo",
        "logos.get_picture",
        "organization_logos.get_picture",
    },
    "a link that was handed to a person is all the right there is": {
        *("invitations.find_invitation", "invitations.accept_invitation"),
        *("registrations.find_registration", "registrations.confirm_registration"),
        *("password_resets.find_reset", "password_resets.reset_password"),
        *("setup.is_set_up", "setup.is_setup_token", "setup.issue_setup_token", "setup.complete_setup"),
    },
    "they are about the installation and change nothing of an organization": {
        *(
            "clock.now",
            "clock.offset",
            "keyring.derive",
            "view_changes.follow",
            "back_channel.register",
            "delivery.register",
            "password_recovery.register",
            "registrations.register",
            "logos.register",
            "root_access.register",
            "sending.register",
            "readiness.require_ready",
            "doctor.examine",
            "demo.fill",
        ),
        *("master_key.require_master_key", "master_key.master_key_fits"),
        *("protected_resources.management_metadata", "protected_resources.management_metadata_address"),
        *("doctor.pending_migrations", "signing_keys.published_keys", "signing_keys.active_key"),
        *("passwords.new_password_hash", "dpop_proofs.fresh_nonce"),
    },
}


def files(*patterns: str) -> list[Path]:
    """The files of the repository, those not yet committed included."""
    # The clone may belong to somebody else, as where a container runs the tests.
    command = [
        "git",
        "-c",
        "safe.directory=*",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
        *patterns,
    ]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    return [ROOT / name for name in listed if name and (ROOT / name).exists()]


def called_by_faces() -> Iterator[tuple[str, inspect.Signature]]:
    """Every function of an operation module that a face imports or calls, as ``noun.verb``."""
    for path in files(*(f"app/{face}/*.py" for face in FACES)):
        tree = ast.parse(path.read_text())
        modules: dict[str, str] = {}
        called: set[tuple[str, str]] = set()
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("app.operations"):
                continue
            for alias in node.names:
                if is_package(node.module) and find_spec(f"{node.module}.{alias.name}"):
                    modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                else:
                    called.add((str(node.module), alias.name))
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in modules
            ):
                called.add((modules[node.value.id], node.attr))
        for module, verb in called:
            found = getattr(import_module(module), verb, None)
            if inspect.isfunction(found):
                yield f"{module.rpartition('.')[2]}.{verb}", inspect.signature(found)


def is_package(module: str | None) -> bool:
    return hasattr(import_module(str(module)), "__path__")


def test_nothing_else_stands_at_the_top() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in files()} <= TOP_LEVEL


def test_what_faces_call_takes_the_actor_first() -> None:
    """A face cannot forget who asks: the exceptions are named above, each with its reason."""
    excepted = set().union(*WITHOUT_ACTOR.values())
    called = dict(called_by_faces())
    without = {name for name, signature in called.items() if [*signature.parameters][:1] != ["actor"]}
    assert without - excepted == set()
    assert excepted & (set(called) - without) == set(), "they take an actor by now"


def test_one_file_alone_commits() -> None:
    """By the syntax tree: a commit that a comment mentions is none."""
    committing = {
        path.relative_to(ROOT).as_posix()
        for path in files("app/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "commit"
    }
    assert committing == {"app/operations/transaction.py"}


def test_au2_audit_events_are_never_updated() -> None:
    """By no statement of ours: what is written stays until retention ends it."""
    updating = re.compile(r"\bupdate\(\s*AuditEvent\b|\bUPDATE\s+audit_events\b")
    found = [path.name for path in files("app/*.py", "migrations/*.py") if updating.search(path.read_text())]
    assert found == []


def test_one_module_alone_speaks_http_to_others() -> None:
    """SF-1: what import-linter cannot see, because it looks at the standard library's packages and not within.

    protocol: outgoing requests, one module.
    """
    clients = re.compile(
        r"\b(urllib\.request|http\.client|from http import client|from urllib import request)\b"
    )
    callers = {path.parent.name for path in (ROOT / "app").rglob("*.py") if clients.search(path.read_text())}
    # The isolation check is a visitor of this very service.
    assert callers == {"isolation", "outgoing"}


def test_no_file_needs_a_second_sitting() -> None:
    patterns = ("app/*.py", "tests/*.py", "migrations/*.py", "script/*", "*.html", "static/*.js")
    long = {
        path.relative_to(ROOT).as_posix(): lines
        for path in files(*patterns)
        if (lines := len(path.read_text().splitlines())) > LONGEST_FILE
    }
    assert long == {}


def test_nothing_is_left_open() -> None:
    marks = re.compile(r"\b(TO[D]O|FIX[M]E|X{3}|HAC[K])\b|NotImplementedError\(")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files("app", "tests", "templates", "script", "migrations")
        if path.suffix in {".py", ".html", ".sh", ".js", ".css", ""}
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if marks.search(line)
    ]
    assert found == []


def test_no_test_is_skipped() -> None:
    skips = re.compile(r"pytest\.(mark\.(skip|skipif|xfail)|skip\(|importorskip|xfail\()")
    me = Path(__file__)
    assert [str(path) for path in files("tests/*.py") if path != me and skips.search(path.read_text())] == []


@pytest.mark.parametrize("floor", ["rules", "models", "operations"])
def test_lower_floors_are_fully_annotated(floor: str) -> None:
    """mypy is strict about them; this keeps a wide ignore from switching that off."""
    loose = re.compile(r"#\s*(type: ignore(?!\[)|mypy:|ruff: noqa(?!: [A-Z])|flake8)")
    assert [str(path) for path in files(f"app/{floor}/*.py") if loose.search(path.read_text())] == []


def test_times_come_from_the_database() -> None:
    """Stored state is stamped by clock.now() (CK-1): no operation asks the machine."""
    asking = re.compile(r"datetime\.(now|utcnow)\(|date\.today\(|time\.time\(")
    found = {path.name for path in files("app/operations/*.py") if asking.search(path.read_text())}
    assert found <= {"clock.py"}
