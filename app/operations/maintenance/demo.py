"""Demo: an organization with people, clients and some traffic, made by the operations that everybody uses.

No password stands in the code: each is made at that moment and returned in clear once.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from app.operations.authorization import codes, consents
from app.operations.clients.client_usage import note_use
from app.operations.clients.clients import register_client
from app.operations.clients.credentials import rotate_credential
from app.operations.directory import lookups
from app.operations.directory.lookups import AuthenticatedClient, OrganizationSnapshot
from app.operations.directory.users import create_user, find_user_by_email
from app.operations.organizations.administrators import add_administrator
from app.operations.organizations.organizations import create_organization
from app.operations.organizations.setup import complete_setup, is_set_up
from app.operations.sign_in.passwords import hash_new_password
from app.operations.sign_in.sign_in import sign_in
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.operations.tokens.access_tokens import TokenAnswer
from app.operations.tokens.refresh_tokens import refresh
from app.operations.tokens.tokens import issue_to_client
from app.rules.actor import Actor
from app.rules.authorization import authorization_request
from app.rules.authorization.authorization_request import AuthorizationParameters
from app.rules.errors import NotFound
from app.rules.identifiers import public_id
from app.rules.organizations import settings

SLUG = "acme"
_USER_AGENTS = ("Mozilla/5.0 (X11; Linux x86_64) Firefox/145.0", "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0)")
_PEOPLE = (
    ("ada", "Ada Lovelace", "admin"),
    ("grace", "Grace Hopper", "developer"),
    ("bob", "Bob Martin", None),
)
_CLIENTS: tuple[Mapping[str, Any], ...] = (
    {
        "name": "Acme Web",
        "type": "web",
        "trust": "first_party",
        "redirect_uris": ["http://127.0.0.1:9000/callback"],
        "scopes": ["openid", "profile", "email", "offline_access"],
        "description": "The customers' site.",
    },
    {
        "name": "Calendar Bot",
        "type": "web",
        "redirect_uris": ["https://calendarbot.example/callback"],
        "scopes": ["openid", "email", "offline_access", "calendar:read", "calendar:write"],
        "description": "Another company's app, which asks for consent.",
    },
    {
        "name": "Acme Mobile",
        "type": "native",
        "redirect_uris": ["com.acme.mobile:/callback", "http://127.0.0.1/callback"],
        "scopes": ["openid", "profile", "offline_access"],
    },
    {
        "name": "Nightly Reports",
        "type": "machine",
        "grant_types": ["client_credentials"],
        "scopes": ["reports:read", "clients:read"],
        "description": "A job without users.",
    },
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SignInMade:
    """A person who can sign in; ``password`` is in clear here alone."""

    organization_id: str
    email: str
    password: str
    role: str


@dataclass(frozen=True, slots=True)
class MadeClient:
    """A client with its secret in clear (None for a public one)."""

    name: str
    client_id: str
    client_secret: str | None


@dataclass(frozen=True, slots=True)
class Demo:
    """Everything that may be looked around with."""

    sign_ins: tuple[SignInMade, ...]
    clients: tuple[MadeClient, ...]


def fill() -> Demo:
    """The organization ``acme`` stands, with people, clients and traffic; set-up is done if nobody did it.

    Where it stands already, it gets one more administrator, so that there is a sign-in to print.
    """
    sign_ins, clients = [], []
    if not is_set_up():
        root, management = _set_up()
        sign_ins.append(root)
        clients.append(management)
        created = True
    else:
        created = _create_organization()
    organization = lookups.get_organization_by_slug(SLUG)
    if not created and _person(organization, "ada") is not None:
        number = secrets.randbelow(10_000)
        guest = _make_person(organization, f"guest{number:04d}", "Another Guest", "admin")
        return Demo((*sign_ins, guest), tuple(clients))
    people = [_make_person(organization, *person) for person in _PEOPLE]
    system = Actor.system(organization.id, "demo")
    registered = [register_client(system, fields) for fields in _CLIENTS]
    clients += [MadeClient(made.client.name, made.client.client_id, made.secret) for made in registered]
    _traffic(organization, people, [made.client.client_id for made in registered])
    return Demo((*sign_ins, *people), tuple(clients))


def _set_up() -> tuple[SignInMade, MadeClient]:
    password = _password()
    email = "root@gatehouse.example"
    result = complete_setup(
        None,
        email=email,
        name="Root Administrator",
        password=password,
        organization_name="Acme",
        organization_id=SLUG,
    )
    management = MadeClient("Management (root)", result.client_id, result.client_secret)
    return SignInMade("root", email, password, "administrator of everything"), management


def _create_organization() -> bool:
    """Whether the organization is new."""
    try:
        lookups.get_organization_by_slug(SLUG)
    except NotFound:
        root = lookups.get_root_organization()
        create_organization(Actor.system(root.id, "demo"), {"name": "Acme", "id": SLUG})
        return True
    return False


def _make_person(
    organization: OrganizationSnapshot, local_part: str, name: str, role: str | None
) -> SignInMade:
    password, email = _password(), f"{local_part}@acme.example"
    password_hash = hash_new_password(settings.defaults(), password)
    user_id = create_user(
        organization.id, email=email, name=name, password_hash=password_hash, email_verified=True
    )
    if role is not None:
        add_administrator(
            Actor.system(organization.id, "demo"),
            organization.slug,
            user_id=public_id("usr", user_id),
            role=role,
        )
    return SignInMade(organization.slug, email, password, role or "member")


def _traffic(organization: OrganizationSnapshot, people: list[SignInMade], client_ids: list[str]) -> None:
    web, calendar, mobile, reports = client_ids
    for number, person in enumerate(people):
        agent = _USER_AGENTS[number % len(_USER_AGENTS)]
        sign_in(organization.id, person.email, person.password, address="203.0.113.9", user_agent=agent)
        for client_id in (web, mobile) if number else (web, calendar, mobile):
            answer = _authorize(organization, person, client_id)
            if answer.refresh_token is not None and client_id != calendar:
                refresh(_proven(client_id), answer.refresh_token, (), address="203.0.113.9", request_id=None)
    sign_in(organization.id, people[0].email, "not the password", address="198.51.100.4")
    proven = _proven(reports)
    for _ in range(12):
        issue_to_client(proven, ("reports:read",))
    note_use(proven, "198.51.100.23")
    # One secret is being replaced: the ledger shows which is still in use, and until when it works.
    rotate_credential(Actor.system(organization.id, "demo"), web)


def _authorize(organization: OrganizationSnapshot, person: SignInMade, client_id: str) -> TokenAnswer:
    """The code flow of one person at one client, as a browser and the client would go through it."""
    user_id = _person(organization, person.email.split("@")[0])
    if user_id is None:
        raise NotFound("There is no such user.")
    authenticated = _proven(client_id)
    client = authenticated.client
    verifier = secrets.token_urlsafe(48)
    parameters = AuthorizationParameters(
        redirect_uri=client.document["redirect_uris"][0],
        scopes=tuple(client.document["scopes"]),
        code_challenge=authorization_request.challenge_of(verifier),
    )
    actor = Actor("user", organization.id, organization.id, user_id=user_id, label=person.email)
    code = _allow(actor, authenticated, parameters)
    presented = codes.PresentedCode(code, parameters.redirect_uri, verifier)
    answer = codes.redeem_code(authenticated, presented, address="203.0.113.9", request_id=None)
    note_use(authenticated, "203.0.113.9")
    if not isinstance(answer, TokenAnswer):
        raise RuntimeError("a fresh code was replayed")
    return answer


@transaction
def _allow(actor: Actor, authenticated: AuthenticatedClient, parameters: AuthorizationParameters) -> str:
    client = authenticated.client
    if actor.user_id is None:
        raise RuntimeError("only a person can allow something")
    if client.trust != "first_party":
        consents.remember(actor, client, actor.user_id, parameters.scopes)
    return codes.add_code(
        actor,
        client,
        parameters,
        scopes=parameters.scopes,
        user_id=actor.user_id,
        session_id=None,
        auth_time=clock.now() - timedelta(seconds=20),
        amr="pwd",
        acr=None,
    )


def _proven(client_id: str) -> AuthenticatedClient:
    client = lookups.find_client(client_id, fresh=True)
    if client is None:
        raise NotFound("There is no such client.")
    return AuthenticatedClient(client, client.secrets[0].id if client.secrets else None)


def _person(organization: OrganizationSnapshot, local_part: str) -> UUID | None:
    user = find_user_by_email(organization.id, f"{local_part}@acme.example")
    return None if user is None else user.id


def _password() -> str:
    # 80 random bits in groups of four, to be typed from a terminal.
    alphabet = "abcdefghjkmnpqrstvwxyz23456789"
    return "-".join("".join(secrets.choice(alphabet) for _ in range(4)) for _ in range(4))
