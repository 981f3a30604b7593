"""Demo data: an organization with users, clients and some traffic, created with the regular operations.

The code contains no passwords. They are derived from the instance's secret key, so that each start prints the same.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct

from app.config import current
from app.operations.audit.failed_requests import RejectedRequest, store_rejected_requests
from app.operations.authorization import consents
from app.operations.clients.client_records import ClientRecord, list_clients
from app.operations.clients.client_usage import record_client_use
from app.operations.clients.clients import register_client, update_client
from app.operations.clients.credentials import (
    NotRevealable,
    create_credential,
    list_credentials,
    reveal_credential,
    rotate_credential,
)
from app.operations.clients.resources import define_resource
from app.operations.clients.scopes import update_scope
from app.operations.directory import lookups
from app.operations.directory.snapshots import AuthenticatedClient, OrganizationSnapshot
from app.operations.directory.users import create_user, find_user_by_email
from app.operations.grants import grants
from app.operations.organizations.administrators import add_administrator
from app.operations.organizations.organizations import create_organization
from app.operations.organizations.setup import complete_setup, is_set_up
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.passwords import hash_new_password
from app.operations.sign_in.sign_in import Browser
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.operations.store.usage_counters import (
    ACTIVE_USER,
    FAILED,
    FAILED_USERS,
    REQUESTS,
    SIGN_INS,
    TOKENS,
    Fact,
    Metrics,
    add_past,
)
from app.operations.tokens import issuance, refresh_tokens
from app.operations.tokens.access_tokens import TokenResponse
from app.operations.tokens.tokens import issue_to_client
from app.rules.actor import Actor
from app.rules.audit.failed_requests import CAUSES, redact_parameters
from app.rules.audit.usage import AUTHORIZATION_CODE, CLIENT_CREDENTIALS, REFRESH_TOKEN, SUCCEEDED
from app.rules.clients.client_types import BASIC
from app.rules.errors import Cause, Conflict, NotFound
from app.rules.identifiers import new_id, new_public_id, public_id
from app.rules.organizations import settings

SLUG = "acme"
ROOT_EMAIL = "root@gatehouse.example"
APP_URL = "http://127.0.0.1:9000"
_ADDRESS = "203.0.113.9"
_APP_NAME = "Acme Web"
_USER_AGENTS = ("Mozilla/5.0 (X11; Linux x86_64) Firefox/145.0", "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0)")
_USERS = (
    ("ada", "Ada Lovelace", "admin"),
    ("grace", "Grace Hopper", "developer"),
    ("bob", "Bob Martin", None),
)
_CLIENTS: tuple[Mapping[str, Any], ...] = (
    {
        "name": _APP_NAME,
        "type": "web",
        "redirect_uris": [f"{APP_URL}/callback"],
        "scopes": ["openid", "profile", "email", "offline_access"],
        "description": "The app that script/server --demo starts.",
    },
    {
        "name": "Calendar Bot",
        "type": "web",
        "redirect_uris": ["https://calendarbot.example/callback"],
        "scopes": ["openid", "email", "offline_access", "calendar:read", "calendar:write"],
        "description": "A third-party app, which asks for consent.",
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
        "description": "A job without a user.",
    },
)  # fmt: skip


_API = {
    "identifier": "https://reports.acme.example",
    "name": "Reports",
    "description": "The API of Nightly Reports, which has access to it.",
    "scopes": [
        {"name": "reports:read", "title": "Read reports"},
        {"name": "reports:write", "title": "Publish reports"},
    ],
}


_SCOPES = {
    "calendar:read": {"title": "See your events", "description": "Titles, times and places"},
    "calendar:write": {
        "title": "Change and delete your events",
        "description": "Deleted events can't be restored.",
    },
}


_HISTORY_DAYS = 60
# Tokens of each client in a busy hour.
_HOURLY_TOKENS: tuple[Mapping[str, int], ...] = (
    {AUTHORIZATION_CODE: 4, REFRESH_TOKEN: 9},
    {AUTHORIZATION_CODE: 1, REFRESH_TOKEN: 5},
    {AUTHORIZATION_CODE: 2, REFRESH_TOKEN: 7},
    {CLIENT_CREDENTIALS: 3},
)
# What codes, verifiers and the like are replaced by: the log describes such values, without showing them.
_HIDDEN = "0" * 43
# The example of RFC 7636.
_CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
_CODE = {"grant_type": AUTHORIZATION_CODE, "code": _HIDDEN, "code_verifier": _HIDDEN}
_HOURS_OF_FAILURES = (1, 1, 2, 9, 27, 28, 50, 75, 75, 76, 120, 150, 220, 300, 301, 420, 530)


class DemoUser(Struct, frozen=True):
    """A user who can sign in; ``password`` is in clear text only here."""

    organization_id: str
    email: str
    password: str
    role: str


class DemoClient(Struct, frozen=True):
    """A client with its secret in clear text, or None for a public client."""

    name: str
    client_id: str
    client_secret: str | None


class DemoData(Struct, frozen=True):
    """The users, the clients that were created now, and the client of the demo app in the issuer's organization."""

    sign_ins: tuple[DemoUser, ...]
    clients: tuple[DemoClient, ...]
    issuer: str
    app: DemoClient


def has_demo() -> bool:
    """Return whether the demo data was created."""
    try:
        return _find_user_id(lookups.get_organization_by_slug(SLUG), "ada") is not None
    except NotFound:
        return False


def create_demo(app_url: str = APP_URL) -> DemoData:
    """Create the organization ``acme`` with users, clients and traffic, and complete setup if necessary.

    If the demo exists already, only return how to sign in. ``app_url`` is the URL of the demo app.
    """
    clients = []
    if not is_set_up():
        clients.append(_set_up())
    elif not has_demo():
        _create_organization()
    organization = lookups.get_organization_by_slug(SLUG)
    system = Actor.system(organization.id, "demo")
    if not has_demo():
        users = [_create_user(organization, *user) for user in _USERS]
        define_resource(system, _API)
        registered = [register_client(system, fields) for fields in _CLIENTS]
        for scope, texts in _SCOPES.items():
            update_scope(system, scope, texts)
        clients += [
            DemoClient(registration.client.name, registration.client.client_id, registration.secret)
            for registration in registered
        ]
        client_ids = [registration.client.client_id for registration in registered]
        _create_traffic(organization, users, client_ids)
        _create_history(organization, users, client_ids, f"{app_url}/callback")
    known = [_demo_user(organization, local_part, role) for local_part, _, role in _USERS]
    root = lookups.get_root_organization()
    if find_user_by_email(root.id, ROOT_EMAIL) is not None:
        role = f"administrator of the instance and of {SLUG}"
        known.insert(0, DemoUser(root.slug, ROOT_EMAIL, _password(ROOT_EMAIL), role))
    return DemoData(tuple(known), tuple(clients), organization.issuer, _prepare_app(system, app_url))


def _set_up() -> DemoClient:
    result = complete_setup(
        None,
        email=ROOT_EMAIL,
        name="Root Administrator",
        password=_password(ROOT_EMAIL),
        organization_name="Acme",
        organization_id=SLUG,
    )
    return DemoClient("Management (root)", result.client_id, result.client_secret)


def _prepare_app(actor: Actor, app_url: str) -> DemoClient:
    """Return the demo app's client with a working secret; its redirect URI follows the port of this start."""
    redirect_uri = f"{app_url}/callback"
    clients = [client for client in list_clients(actor, query=_APP_NAME).items if _is_of_app(client)]
    client = clients[0] if clients else register_client(actor, _CLIENTS[0]).client
    if redirect_uri not in client.redirect_uris:
        update_client(actor, client.client_id, {"redirect_uris": [redirect_uri]})
    for credential in list_credentials(actor, client.client_id).items:
        with suppress(NotFound, NotRevealable):
            secret = reveal_credential(actor, client.client_id, credential.public_id)
            return DemoClient(client.name, client.client_id, secret)
    secret = create_credential(actor, client.client_id, {"retire_others_in_seconds": 0}).secret
    return DemoClient(client.name, client.client_id, secret)


def _is_of_app(client: ClientRecord) -> bool:
    """Return whether the demo app can be this client. An administrator may have changed it."""
    is_usable = client.status == "active" and client.token_endpoint_auth_method == BASIC
    return client.name == _APP_NAME and is_usable and AUTHORIZATION_CODE in client.grant_types


def _create_organization() -> None:
    root = lookups.get_root_organization()
    try:
        create_organization(Actor.system(root.id, "demo"), {"name": "Acme", "id": SLUG})
    except Conflict:
        raise Conflict(
            f"There is already an organization {SLUG} that is not the demo's. Use an instance of its own: "
            "GATEHOUSE_INSTANCE=demo script/server --demo"
        ) from None


def _create_user(
    organization: OrganizationSnapshot, local_part: str, name: str, role: str | None
) -> DemoUser:
    user = _demo_user(organization, local_part, role)
    password_hash = hash_new_password(settings.default_settings(), user.password)
    user_id = create_user(
        organization.id, email=user.email, name=name, password_hash=password_hash, email_verified=True
    )
    if role is not None:
        add_administrator(
            Actor.system(organization.id, "demo"),
            organization.slug,
            user_id=public_id("usr", user_id),
            role=role,
        )
    return user


def _demo_user(organization: OrganizationSnapshot, local_part: str, role: str | None) -> DemoUser:
    email = f"{local_part}@acme.example"
    return DemoUser(organization.slug, email, _password(email), role or "member")


def _create_traffic(organization: OrganizationSnapshot, users: list[DemoUser], client_ids: list[str]) -> None:
    web, calendar, mobile, reports = client_ids
    for number, user in enumerate(users):
        agent = _USER_AGENTS[number % len(_USER_AGENTS)]
        browser = Browser(user_agent=agent)
        sign_in(organization.id, user.email, user.password, ip_address=_ADDRESS, browser=browser)
        # Ada has not used the demo app yet, so it asks her for consent.
        for client_id in (web, mobile) if number else (calendar, mobile):
            answer = _authorize(organization, user, client_id)
            if answer.refresh_token is not None and client_id != calendar:
                _refresh(_authenticate(client_id), answer.refresh_token)
    sign_in(organization.id, users[0].email, "not the password", ip_address="198.51.100.4")
    reports_client = _authenticate(reports)
    for _ in range(12):
        issue_to_client(reports_client, ("reports:read",))
    record_client_use(reports_client, "198.51.100.23", "token")
    # Start a secret rotation, so that the Credentials page shows one in progress.
    rotate_credential(Actor.system(organization.id, "demo"), web)


def _create_history(
    organization: OrganizationSnapshot, users: list[DemoUser], client_ids: list[str], redirect_uri: str
) -> None:
    """Fill the counters of the last weeks and the log of failed requests, so that charts have something to show."""
    now = clock.now()
    clients = [_authenticate(client_id) for client_id in client_ids]
    user_ids = [_find_user_id(organization, user.email.split("@")[0]) for user in users]
    facts: list[tuple[datetime, Fact, int]] = []
    for hours in range(_HISTORY_DAYS * 24):
        at = now - timedelta(hours=hours)
        # More by day than by night, and less at weekends; no two hours alike.
        busy = max(0.1, math.sin((at.hour - 5) / 16 * math.pi)) * (0.3 if at.weekday() > 4 else 1)
        busy *= 0.7 + 0.6 * (hours * 7919 % 13) / 12
        for authenticated, hourly in zip(clients, _HOURLY_TOKENS, strict=True):
            for grant, most in hourly.items():
                if count := round(most * busy):
                    metrics = ((REQUESTS, f"token{SUCCEEDED}"), (TOKENS, grant))
                    facts.append((at, _fact(authenticated, metrics), count))
        for number, user_id in enumerate(user_ids):
            if at.hour == 8 + number and (hours // 24 + number) % 4:
                facts.append((at, (organization.id, ((SIGN_INS, "pwd"),), None, None), 1))
                facts.append((at, (organization.id, ACTIVE_USER, None, user_id), 1))
    rejected = []
    failures = _failures(redirect_uri)
    for number, hours in enumerate(_HOURS_OF_FAILURES):
        place, endpoint, error, cause, parameters = failures[number % len(failures)]
        at, client = now - timedelta(hours=hours), clients[place].client
        facts.append((at, (organization.id, ((FAILED, cause.code),), client.id, None), 1))
        user_id = user_ids[number // len(failures) % len(user_ids)]
        facts.append((at, (organization.id, ((FAILED_USERS, cause.code),), client.id, user_id), 1))
        rejected.append(
            RejectedRequest(
                client=(organization.id, client.id),
                at=at,
                request_id=new_public_id("req"),
                endpoint=endpoint,
                method="GET" if endpoint == "authorize" else "POST",
                status=400,
                error=error,
                description=CAUSES[cause.code].what,
                cause=cause,
                parameters=redact_parameters({"client_id": client.client_id, **parameters}),
                address=_ADDRESS,
                path_organization=None,
            )
        )
    store_rejected_requests(Actor.system(organization.id, "demo"), reversed(rejected))
    add_past(facts)


def _failures(redirect_uri: str) -> tuple[tuple[int, str, str, Cause, Mapping[str, str]], ...]:
    """Return the client, endpoint, error, cause and parameters of requests that fail."""
    sent = f"{redirect_uri}/"
    authorization = {
        "response_type": "code",
        "redirect_uri": sent,
        "scope": "openid profile email offline_access",
        "state": _HIDDEN,
        "code_challenge": _CHALLENGE,
        "code_challenge_method": "S256",
    }
    return (
        (
            0,
            "authorize",
            "invalid_request",
            Cause("redirect_uri_not_registered", sent, (redirect_uri,)),
            authorization,
        ),
        (1, "token", "invalid_grant", Cause("code_expired"), _CODE),
        (2, "token", "invalid_grant", Cause("verifier_mismatch"), _CODE),
        (
            0,
            "token",
            "invalid_grant",
            Cause("refresh_expired"),
            {"grant_type": REFRESH_TOKEN, "refresh_token": _HIDDEN},
        ),
    )


def _fact(authenticated: AuthenticatedClient, metrics: Metrics) -> Fact:
    client = authenticated.client
    return client.organization.id, metrics, client.id, authenticated.credential_id


def _authorize(organization: OrganizationSnapshot, user: DemoUser, client_id: str) -> TokenResponse:
    """Give a client its first tokens of a user, as if the user had just signed in and allowed all scopes."""
    user_id = _find_user_id(organization, user.email.split("@")[0])
    if user_id is None:
        raise NotFound("There is no such user.")
    authenticated = _authenticate(client_id)
    now = clock.now()
    grant = grants.NewGrant(
        id=new_id(),
        user_id=user_id,
        session_id=None,
        scopes=tuple(authenticated.client.document["scopes"]),
        auth_time=now - timedelta(seconds=20),
        amr="pwd",
        allowed_at=now,
    )
    issuance.ensure_signing_keys(authenticated.client)
    answer = _issue(authenticated, grant, user.email)
    record_client_use(authenticated, _ADDRESS, "token")
    return answer


@transaction
def _issue(authenticated: AuthenticatedClient, grant: grants.NewGrant, email: str) -> TokenResponse:
    client = authenticated.client
    here = client.organization.id
    if client.trust != "first_party":
        user = Actor("user", here, here, user_id=grant.user_id, label=email)
        consents.store_consent(user, client, grant.user_id, grant.scopes)
    prepared = issuance.prepare_grant_tokens(authenticated, grant)
    actor = grants.client_actor(client, _ADDRESS, None)
    issuance.store_grant_tokens(actor, authenticated, grant, prepared)
    return prepared.answer


@transaction
def _refresh(authenticated: AuthenticatedClient, refresh_token: str) -> None:
    actor = grants.client_actor(authenticated.client, _ADDRESS, None)
    found = refresh_tokens.find_refresh_token(actor, authenticated, refresh_token, (), ())
    if isinstance(found, refresh_tokens.Reused):
        raise RuntimeError("a new refresh token was reported as used")
    prepared = refresh_tokens.prepare_refresh(authenticated, found, found.scopes)
    refresh_tokens.rotate(authenticated, found, prepared)


def _authenticate(client_id: str) -> AuthenticatedClient:
    client = lookups.find_client(client_id, fresh=True)
    if client is None:
        raise NotFound("There is no such client.")
    return AuthenticatedClient(client, client.secrets[0].id if client.secrets else None)


def _find_user_id(organization: OrganizationSnapshot, local_part: str) -> UUID | None:
    user = find_user_by_email(organization.id, f"{local_part}@acme.example")
    return None if user is None else user.id


def _password(email: str) -> str:
    """Return about 80 secret bits in groups of four characters, easy to type from a terminal."""
    alphabet = "abcdefghjkmnpqrstvwxyz23456789"
    digest = hmac.digest(current().secret_key, f"demo password of {email}".encode(), hashlib.sha256)
    number, characters = int.from_bytes(digest), ""
    for _ in range(16):
        number, index = divmod(number, len(alphabet))
        characters += alphabet[index]
    return "-".join(characters[start : start + 4] for start in range(0, 16, 4))
