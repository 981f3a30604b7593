"""Every public operation takes its actor first: nobody has to be guessed, and nobody can be made up half way down."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from tests.architecture.test_house import FACES, ROOT, files

# Functions of operations that have no actor, each kind with its reason.
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
        "importers.importer_of",
    },
    "the client that authenticated is the actor, and the token endpoint makes none beside it": {
        *("codes.redeem_code", "device_polls.redeem_device_code", "refresh_tokens.refresh"),
        *("tokens.issue_to_client", "introspections.introspect", "introspections.sign"),
        *("userinfo.claims_of", "usage.note_use", "consents.standing_consent", "consents.offered_ends"),
        *("interactions.must_ask", "interactions.scopes_without_page", "interactions.may_allow_client"),
        *("authorization_requests.shown_digest", "audiences.authorized", "token_exchange.exchange"),
        *("dpop_proofs.is_demanded", "proven_clients.recall", "proven_clients.remember"),
    },
    "it stands on pages that strangers see": {
        *("logos.digest_of_logo", "logos.get_picture", "organization_logos.get_picture"),
    },
    "a link that was handed to a person is all the right there is": {
        *("invitations.find_invitation", "invitations.accept_invitation"),
        *("registrations.find_registration", "registrations.confirm_registration"),
        *("password_resets.find_reset", "password_resets.reset_password"),
        *("setup.is_set_up", "setup.is_setup_token", "setup.issue_setup_token", "setup.complete_setup"),
    },
    "the outbox hands them what an operation with an actor has left": {
        *("registrations.answer", "password_recovery.answer", "delivery.deliver", "outbox.deliver"),
        *("sending.deliver", "credential_ends.finish"),
    },
    "the job that they go on with names who sent the file": {"batches.work_on_part"},
    "the service does it for itself at the first request that needs it, whoever asks": {
        *("signing_keys.active_key", "documents.client_at"),
    },
    "they are about the installation and change nothing of an organization": {
        *("clock.offset", "keyring.derive", "view_changes.follow"),
        *(
            "back_channel.register",
            "credential_ends.register",
            "delivery.register",
            "password_recovery.register",
            "registrations.register",
        ),
        *("logos.register", "root_access.register", "sending.register"),
        *("readiness.require_ready", "doctor.examine", "doctor.pending_migrations", "demo.fill"),
        "master_key.require_master_key",
        *("protected_resources.management_metadata", "protected_resources.management_metadata_address"),
        *("signing_keys.published_keys", "passwords.new_password_hash", "dpop_proofs.fresh_nonce"),
    },
}
EXCEPTED: set[str] = set().union(*WITHOUT_ACTOR.values())
_ACTING = {"audit.record", "Actor", "Actor.system", "Actor.anonymous", "client_actor", "grants.client_actor"}


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


def parameters(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def functions() -> Iterator[tuple[str, ast.FunctionDef, dict[str, ast.FunctionDef]]]:
    """(``noun.verb``, the function, all of its module) of every function of the operations."""
    for path in sorted((ROOT / "app/operations").rglob("*.py")):
        body = ast.parse(path.read_text()).body
        own = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
        for name, function in own.items():
            yield f"{Path(path).stem}.{name}", function, own


def acts(function: ast.FunctionDef, own: dict[str, ast.FunctionDef]) -> bool:
    """Whether it, or a private function of its module that it names, writes evidence or makes up an actor."""
    seen: set[str] = set()
    waiting = [function]
    while waiting:
        node = waiting.pop()
        seen.add(node.name)
        for part in ast.walk(node):
            if isinstance(part, ast.Call) and ast.unparse(part.func) in _ACTING:
                return True
            if isinstance(part, ast.Name) and part.id.startswith("_") and part.id in own.keys() - seen:
                waiting.append(own[part.id])
    return False


def test_what_faces_call_takes_the_actor_first() -> None:
    """A face cannot forget who asks: the exceptions are named above, each with its reason."""
    called = dict(called_by_faces())
    without = {name for name, signature in called.items() if [*signature.parameters][:1] != ["actor"]}
    assert without - EXCEPTED == set()


def test_what_acts_takes_the_actor_first() -> None:
    """Every public function of the operations, those that only operations call included.

    One needs no actor by itself, without being named above, if no face calls it, it leaves no audit event and it makes
    up nobody who acts: a look-up or a value, or a step of a unit whose operation has asked the actor's permission and
    audits the whole. Whatever writes evidence does so in the name of the actor that it was given.
    """
    public = [(name, node, own) for name, node, own in functions() if not node.name.startswith("_")]
    assert len(public) > 300
    without = {
        name
        for name, node, own in public
        if [one.arg for one in parameters(node)][:1] != ["actor"] and acts(node, own)
    }
    assert without - EXCEPTED == set()
    called = dict(called_by_faces())
    faces = {name for name, signature in called.items() if [*signature.parameters][:1] != ["actor"]}
    assert EXCEPTED - without - faces == set(), "they take an actor by now, or need none"


def test_an_actor_is_called_so_and_comes_first() -> None:
    """Of public functions: a permission is asked of one place in every signature."""
    elsewhere = {
        f"{name}({one.arg})"
        for name, node, _ in functions()
        for position, one in enumerate(parameters(node))
        if not node.name.startswith("_")
        and one.annotation is not None
        and ast.unparse(one.annotation) in {"Actor", "Actor | None"}
        and (position, one.arg) != (0, "actor")
    }
    assert elsewhere == set()
