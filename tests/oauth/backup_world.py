"""An organization with everything that can end, and its backup."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from app.extensions import db
from app.models.user import Registration
from app.operations.authorization.connected_apps import list_user_consents, withdraw_user_consent
from app.operations.authorization.consents import store_consent
from app.operations.clients.access_decisions import withdraw_access
from app.operations.clients.access_records import list_client_access
from app.operations.clients.clients import delete_client, update_client
from app.operations.clients.credential_revocation import revoke_credentials
from app.operations.clients.initial_access_tokens import (
    create_registration_token,
    require_usable_token,
    revoke_registration_token,
)
from app.operations.clients.resources import define_resource
from app.operations.directory.lookups import (
    ClientSnapshot,
    find_client,
)
from app.operations.organizations.administrators import list_administrators, remove_administrator
from app.operations.organizations.settings import update_settings
from app.operations.sign_in.identity_providers import (
    get_identity_provider,
    store_identity_provider,
    update_identity_provider,
)
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.second_factors import (
    create_recovery_codes,
    use_recovery_code,
)
from app.operations.sign_in.sessions import find_session
from app.operations.sign_in.sign_in import SignedIn
from app.operations.store import clock
from app.operations.store.checkpoints import advance
from app.operations.store.rows import PageRequest
from app.operations.store.transactions import transaction
from app.operations.users.app_roles import assign_app_role, list_app_role_assignments, remove_app_role
from app.operations.users.deletion import delete_user
from app.operations.users.groups import (
    add_member,
    create_group,
    delete_group,
    list_groups,
    remove_member,
)
from app.operations.users.invitations import accept_invitation, create_invitation, find_invitation
from app.operations.users.password_resets import find_reset, issue_reset_link, reset_password
from app.operations.users.registrations import list_registrations, reject_registration
from app.operations.users.user_changes import end_user_sessions
from app.operations.users.users import disable_user
from app.rules.errors import DomainError
from app.rules.identifiers import digest, new_id
from tests.factories import Factory, MadeClient, MadeUser, bearer_header
from tests.oauth.conftest import SCOPES, Flow, location
from tests.oauth.device import Device
from tests.scim.conftest import FIELDS
from tests.support.applications import forget
from tests.support.databases import Database
from tests.support.registering import own, register

NEW_PASSWORD = "an entirely new long sentence"


@dataclass(frozen=True, slots=True)
class Case:
    """Something that is alive in the backup: how it ends, and whether it is alive."""

    end: Callable[[], object]
    is_alive: Callable[[], bool]


class World:
    """An organization with everything that can end, alive when its backup is made."""

    def __init__(self, flow: Flow, make: Factory, database: Database, folder: Path) -> None:
        self.flow, self.make, self.database, self.folder = flow, make, database, folder
        self.app, self.organization = flow.app, flow.organization
        self.system = make.system(self.organization)
        self.reader = make.bearer(self.organization, "audit:read")
        self.cases = dict(self._make_cases())
        self.back_up()

    def back_up(self) -> None:
        """Make a backup, and let time pass, so that this host sees a later checkpoint."""
        with self.app.app_context():
            advance()
        self.database.back_up(self.folder / "backup")
        self.database.query("UPDATE instance_facts SET updated_at = '2020-01-01 00:00:00.000000'")
        with self.app.app_context():
            advance()

    def end_all(self) -> Path:
        """End everything, and return an export of the audit log."""
        with self.app.app_context():
            for case in self.cases.values():
                case.end()
        answer = self.app.test_client().get("/audit-events/export", headers=bearer_header(self.reader))
        assert answer.status_code == 200, answer.text
        (self.folder / "export.ndjson").write_bytes(answer.data)
        return self.folder / "export.ndjson"

    def restore(self) -> None:
        """Put the backup back, as in new processes."""
        self.database.restore(self.folder / "backup")
        forget(self.app)

    def alive(self) -> set[str]:
        """Return the names of what is alive."""
        found = set()
        for name, case in self.cases.items():
            with self.app.app_context():
                if case.is_alive():
                    found.add(name)
        return found

    def _make_cases(self) -> Iterator[tuple[str, Case]]:
        yield from self._client_cases()
        yield from self._token_cases()
        yield from self._flow_cases()
        with self.app.app_context():
            yield from self._user_cases()

    def _client_cases(self) -> Iterator[tuple[str, Case]]:
        make, http, system = self.make, self.flow.http, self.system
        machine, disabled, deleted = (make.machine(self.organization, "clients:read") for _ in range(3))

        def mints(client: MadeClient) -> bool:
            form = {"grant_type": "client_credentials"}
            return http.post("/oauth/token", data=form, headers=client.basic).status_code == 200

        yield "secret", Case(lambda: revoke_credentials(system, machine.client_id), lambda: mints(machine))
        yield (
            "disabled client",
            Case(
                lambda: update_client(system, disabled.client_id, {"status": "disabled"}),
                lambda: mints(disabled),
            ),
        )
        yield (
            "deleted client",
            Case(lambda: delete_client(system, deleted.client_id), lambda: mints(deleted)),
        )

        fields = {"identifier": "urn:payroll", "name": "Payroll", "scopes": [{"name": "payroll:read"}]}
        with self.app.app_context():
            define_resource(system, fields)
        paid = make.machine(self.organization, "payroll:read")

        def access() -> str:
            given = list_client_access(system, filters={"client_id": paid.client_id})
            return given.items[0].public_id

        yield from self._registration_cases()
        yield "client access", Case(lambda: withdraw_access(system, access()), lambda: mints(paid))

    def _registration_cases(self) -> Iterator[tuple[str, Case]]:
        """A client that manages itself, a user who waits for an administrator, and an identity provider."""
        http, system, organization = self.flow.http, self.system, self.organization
        with self.app.app_context():
            update_settings(system, organization.slug, {"oauth": {"dynamic_registration": {"mode": "open"}}})
            store_registration(organization.id)
            provider = store_identity_provider(system, FIELDS).public_id
        own_client = register(http, organization).get_json()
        leak = [{"token": own_client["registration_access_token"]}]
        yield (
            "registration access token",
            Case(
                lambda: http.post("/leak-reports", json=leak),
                lambda: own(http, own_client, "GET").status_code == 200,
            ),
        )

        def waiting() -> list[str]:
            return [each.public_id for each in list_registrations(system).items]

        yield "registration", Case(lambda: reject_registration(system, waiting()[0]), lambda: bool(waiting()))
        yield (
            "identity provider",
            Case(
                lambda: update_identity_provider(system, provider, {"status": "disabled"}),
                lambda: get_identity_provider(system, provider).is_enabled,
            ),
        )

    def _token_cases(self) -> Iterator[tuple[str, Case]]:
        flow, make = self.flow, self.make
        tokens = flow.tokens(scope=" ".join(SCOPES))
        access, refresh = tokens["access_token"], tokens["refresh_token"]
        other = flow.tokens(scope="openid")["access_token"]

        def reads(token: str) -> bool:
            return flow.http.get("/oauth/userinfo", headers=bearer_header(token)).status_code == 200

        yield (
            "access token",
            Case(lambda: flow.token(path="/oauth/revoke", token=other), lambda: reads(other)),
        )
        yield "family", Case(lambda: flow.token(path="/oauth/revoke", token=refresh), lambda: reads(access))
        yield "refresh token", Case(lambda: None, lambda: flow.refresh(refresh).status_code == 200)
        user = make.user(self.organization)
        session = make.sign_in(user).token
        yield (
            "session",
            Case(
                lambda: end_user_sessions(self.system, user.public_id),
                lambda: find_session(session) is not None,
            ),
        )

    def _flow_cases(self) -> Iterator[tuple[str, Case]]:
        flow, make = self.flow, self.make
        code = flow.code()
        yield "code", once(lambda: flow.redeem(code).status_code == 200)
        device = Device(flow.http, make, flow.user)
        asked = device.code()
        device.allow(asked["user_code"])
        yield "device code", once(lambda: device.poll(asked["device_code"]).status_code == 200)
        pushed = flow.http.post("/oauth/par", data=flow.parameters(), headers=flow.client.basic).get_json()
        sent = {"client_id": flow.client.client_id, "request_uri": pushed["request_uri"]}
        yield (
            "pushed request",
            once(lambda: flow.http.get("/oauth/authorize", query_string=sent).status_code == 303),
        )
        asking = flow.other_client(redirect_uris=["https://pear.example/cb"])
        waiting = location(asking.authorize())

        def allows() -> bool:
            page = flow.http.get(waiting)
            return "consent-allow" in page.text and asking.decide(page).status_code == 303

        yield "pending request", once(allows)

    def _user_cases(self) -> Iterator[tuple[str, Case]]:
        make, system, organization = self.make, self.system, self.organization
        link = create_invitation(system, organization.slug, email="new@example.com").link
        invitation = str(link).rpartition("/")[2]
        yield (
            "invitation",
            Case(
                lambda: accept_invitation(invitation, name="New", password_hash=None),
                lambda: find_invitation(invitation) is not None,
            ),
        )
        forgetful, off, gone = (make.user(organization) for _ in range(3))
        reset = str(issue_reset_link(system, forgetful.id).link).rpartition("/")[2]
        yield (
            "reset link",
            Case(
                lambda: reset_password(organization, reset, NEW_PASSWORD),
                lambda: find_reset(organization, reset) is not None,
            ),
        )

        def signs_in(user: MadeUser) -> bool:
            return isinstance(sign_in(organization.id, user.email, user.password), SignedIn)

        yield "password", Case(lambda: None, lambda: signs_in(forgetful))
        yield "disabled user", Case(lambda: disable_user(system, off.id), lambda: signs_in(off))
        yield "deleted user", Case(lambda: delete_user(system, gone.public_id), lambda: signs_in(gone))
        initial = create_registration_token(system, {"name": "CI"})
        yield (
            "initial access token",
            Case(
                lambda: revoke_registration_token(system, initial.record.public_id),
                lambda: succeeds(lambda: require_usable_token(organization.id, initial.token)),
            ),
        )
        factors = make.user(organization)
        recovery = create_recovery_codes(organization, factors.id)[0]
        yield "recovery code", once(lambda: use_recovery_code(organization.id, factors.id, recovery))
        client, allowing = client_of(self.flow), [make.user(organization), make.user(organization)]
        for user in allowing:
            store = partial(store_consent, system, client, user.id, ("openid",), None, requested=("openid",))
            transaction(store)()

        def consents() -> list[str]:
            found = [list_user_consents(system, filters={"user_id": user.public_id}) for user in allowing]
            return [consent.public_id for page in found for consent in page.items]

        def withdraw_all() -> None:
            for consent_id in consents():
                withdraw_user_consent(system, consent_id)

        yield "consent", Case(withdraw_all, lambda: bool(consents()))
        helper = make.user(organization, role="developer")

        def roles() -> list[str]:
            listed = list_administrators(system, organization.slug, PageRequest(100)).items
            return [each.public_id for each in listed if each.user_id == helper.id]

        yield (
            "role",
            Case(lambda: remove_administrator(system, organization.slug, roles()[0]), lambda: bool(roles())),
        )
        yield from self._membership_cases(helper)

    def _membership_cases(self, user: MadeUser) -> Iterator[tuple[str, Case]]:
        system, slug, who = self.system, self.organization.slug, {"user_id": user.public_id}
        kept, dissolved = (create_group(system, slug, {"name": name}).public_id for name in ("Kept", "Gone"))
        add_member(system, slug, kept, who)
        app = self.make.client(self.organization, app_roles=[{"key": "editor"}])
        given = assign_app_role(system, app.client_id, {"role": "editor", **who}).public_id

        def is_assigned() -> bool:
            return bool(list_app_role_assignments(system, app.client_id).items)

        def groups() -> dict[str, int]:
            return {group.public_id: group.members for group in list_groups(system, slug).items}

        yield (
            "membership",
            Case(lambda: remove_member(system, slug, kept, user.public_id), lambda: groups()[kept] == 1),
        )
        yield "group", Case(lambda: delete_group(system, slug, dissolved), lambda: dissolved in groups())
        yield "app role", Case(lambda: remove_app_role(system, app.client_id, given), is_assigned)


@transaction
def store_registration(organization_id: str) -> None:
    """Let a user wait for an administrator who approves the registration."""
    now = clock.now()
    row = Registration(
        organization_id=organization_id,
        id=new_id(),
        digest=digest("link"),
        email="waiting@acme.example",
        email_canonical="waiting@acme.example",
        name="Waiting",
        password_hash="hash",
        is_mailed=False,
        created_at=now,
        expires_at=now + timedelta(days=7),
    )
    db.session.add(row)


def once(use: Callable[[], bool]) -> Case:
    """Return the case of something that can be used once: using it ends it, and is the probe."""
    return Case(use, use)


def succeeds(act: Callable[[], object]) -> bool:
    """Return whether the operation raises no error."""
    try:
        act()
    except DomainError:
        return False
    return True


def client_of(flow: Flow) -> ClientSnapshot:
    """Return the snapshot of the flow's client."""
    client = find_client(flow.client.client_id)
    assert client is not None
    return client
