"""Quickstarts: code with a client's own values, in the languages that fit the client."""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from flask import abort, jsonify, request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from msgspec import Struct
from msgspec.structs import asdict

from app.config import ROOT
from app.operations.audit.usage import get_clients_traffic
from app.operations.clients.client_records import ClientRecord
from app.operations.clients.clients import get_client
from app.operations.directory.snapshots import OrganizationSnapshot
from app.portal.clients import client_page
from app.portal.context import PageResponse, PortalContext, portal_page
from app.portal.markdown import code_blocks, highlight, to_html
from app.rules.actor import Actor
from app.rules.clients.client_coherence import (
    accepted_algorithms,
    requires_dpop,
    requires_par,
    signing_algorithm_for,
)
from app.rules.clients.client_types import (
    AUTHORIZATION_CODE,
    BASIC,
    CLIENT_CREDENTIALS,
    DEVICE_CODE,
    NONE,
    POST,
    PRIVATE_KEY_JWT,
    TOKEN_EXCHANGE,
)
from app.rules.clients.redirect_uris import is_loopback
from app.rules.scopes import OPENID_SCOPES
from app.web.languages import gettext, lazy_gettext, ngettext, page_language

FOLDER = ROOT / "templates" / "portal" / "quickstart"
LANGUAGES: Mapping[str, str] = {
    "python": "Python",
    "node": "Node",
    "nextjs": "Next.js",
    "browser": lazy_gettext("Browser"),
    "go": "Go",
    "java": "Java",
    "php": "PHP",
    "dotnet": ".NET",
    "curl": "curl",
    "mcp": lazy_gettext("MCP server"),
    "apache": "Apache",
}
# What the code is for; templates are named after task and language.
TASKS: Mapping[str, str] = {
    "web": lazy_gettext("Sign users in"),
    "spa": lazy_gettext("Sign users in"),
    "service": lazy_gettext("Get a token"),
    "device": lazy_gettext("Sign in on a device"),
    "api": lazy_gettext("Protect an API"),
}
_PORT = 8080
# How far back a token counts as received.
_DAYS = 30
_AUTHJS_CALLBACK = re.compile(r"/api/auth/callback/([\w-]+)")


class Snippet(Struct, frozen=True):
    """The central file of a quickstart: its highlighted code, and the languages to choose from (key, label)."""

    language: str
    title: str
    code: str
    html: Markup
    languages: tuple[tuple[str, str], ...]


def quickstart_snippet(
    client: ClientRecord, language: str, *, organization: OrganizationSnapshot
) -> Snippet | None:
    """Return the central code of the client's first quickstart, or None if no quickstart fits the client.

    An unknown language becomes the first one.
    """
    tasks = tasks_of(client, organization)
    if not tasks:
        return None
    task = tasks[0]
    languages = languages_of(client, task, organization)
    language = language if language in languages else languages[0]
    blocks = code_blocks(quickstart_text(client, task, language, organization=organization))
    # Commands come first, then files, of which the first one matters most. Parts of a file have no title.
    lexer, title, code = next(
        (block for block in blocks if block[1]), max(blocks, key=lambda block: len(block[2]))
    )
    return Snippet(
        language, title, code, highlight(code, lexer), tuple((name, LANGUAGES[name]) for name in languages)
    )


def tasks_of(client: ClientRecord, organization: OrganizationSnapshot) -> tuple[str, ...]:
    """Return the tasks that the client's grant types and APIs allow, the most likely one first."""
    grants = set(client.grant_types) & set(organization.settings["oauth"]["grant_types"])
    tasks = []
    if AUTHORIZATION_CODE in grants:
        tasks.append("spa" if client.type == "spa" else "web")
    if DEVICE_CODE in grants:
        tasks.append("device")
    can_be_api = client.type == "machine" and languages_of(client, "api", organization)
    if can_be_api and client.resources and not client.scopes:
        # It only stands for its APIs: a token of its own would have no scopes.
        tasks.append("api")
    elif CLIENT_CREDENTIALS in grants:
        tasks.append("service")
    if can_be_api and "api" not in tasks and (client.resources or TOKEN_EXCHANGE in grants):
        tasks.append("api")
    return tuple(task for task in tasks if languages_of(client, task, organization))


def languages_of(client: ClientRecord, task: str, organization: OrganizationSnapshot) -> tuple[str, ...]:
    """Return the languages of the task's quickstarts that can send and authenticate requests as the client must.

    Those whose library demands an ID token are for clients with the scope ``openid`` and an algorithm that it knows.
    """
    found = _languages_of_task(task)
    if task == "web" and "openid" not in client.scopes:
        found = tuple(language for language in found if language in _WITHOUT_ID_TOKEN)
    elif task == "web":
        algorithm = signing_algorithm_for(
            asdict(client), organization.settings, client.id_token_signed_response_alg
        )
        found = tuple(language for language in found if algorithm in _ALGORITHMS.get(language, (algorithm,)))
    if task in _SIGN_INS and client.require_signed_request_object:
        return ()
    if _requires_par_or_dpop(client, task, organization):
        found = tuple(language for language in found if language in _WITH_PAR_AND_DPOP)
    method = client.token_endpoint_auth_method
    if method == PRIVATE_KEY_JWT:
        return tuple(language for language in found if language in _WITH_KEYS.get(task, ()))
    if method == NONE:
        return tuple(language for language in found if language not in _ON_SERVERS)
    refused = frozenset() if client.any_secret_method else _REFUSED_SECRETS.get((task, method), frozenset())
    return tuple(language for language in found if language not in refused)


def _requires_par_or_dpop(client: ClientRecord, task: str, organization: OrganizationSnapshot) -> bool:
    """Return whether authorization requests must be pushed, or tokens bound to a key."""
    document, settings = asdict(client), organization.settings
    return (task in _SIGN_INS and requires_par(document, settings)) or (
        task != "api" and requires_dpop(document, settings)
    )


@functools.cache
def _languages_of_task(task: str) -> tuple[str, ...]:
    return tuple(language for language in LANGUAGES if (FOLDER / f"{task}.{language}.md").exists())


# Quickstarts that know how to sign a client assertion.
_WITH_KEYS: Mapping[str, tuple[str, ...]] = {"web": ("node",), "service": ("node",)}
_WITHOUT_ID_TOKEN = frozenset({"python", "node", "curl"})
# Frameworks for servers, which have a secret.
_ON_SERVERS = frozenset({"nextjs", "java", "php", "dotnet"})
_SIGN_INS = frozenset({"web", "spa"})
# Quickstarts that can push authorization requests (RFC 9126) and bind tokens to a key (RFC 9449).
_WITH_PAR_AND_DPOP = frozenset({"node"})
# What libraries verify that do not know every algorithm of ID tokens. Spring Security expects RS256.
_ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    "java": ("RS256",),
    "php": ("RS256", "PS256"),
    "dotnet": ("RS256", "PS256", "ES256"),
}
# Quickstarts that send the secret in another way than the client must. Those of APIs send it in the header, except one
# that verifies signatures only.
_REFUSED_SECRETS: Mapping[tuple[str, str], frozenset[str]] = {
    ("web", BASIC): frozenset({"dotnet"}),
    ("api", POST): frozenset(LANGUAGES) - {"dotnet"},
}


def quickstart_text(
    client: ClientRecord, task: str, language: str, *, organization: OrganizationSnapshot
) -> str:
    """Return the quickstart as Markdown with the client's values."""
    return _TEMPLATES.get_template(f"{task}.{language}.md").render(_values(client, language, organization))


def _values(client: ClientRecord, language: str, organization: OrganizationSnapshot) -> dict[str, Any]:
    redirect_uri = _local_redirect_uri(client, language)
    is_local = is_loopback(redirect_uri)
    url = urlsplit(redirect_uri)
    if is_local and url.port is None and client.type == "native":
        # Any port matches (RFC 8252 section 7.3).
        redirect_uri = redirect_uri.replace(url.netloc, f"{url.netloc}:{_PORT}", 1)
        url = urlsplit(redirect_uri)
    host = (url.hostname or "localhost") if is_local else "localhost"
    port = (url.port or 80) if is_local else _PORT
    authjs = _AUTHJS_CALLBACK.fullmatch(url.path)
    own_scopes = [scope for scope in client.scopes if scope not in OPENID_SCOPES]
    document, issuer = asdict(client), organization.issuer
    method = client.token_endpoint_auth_method
    return {
        "issuer": issuer,
        "client_id": client.metadata_document_uri or client.client_id,
        "redirect_uri": redirect_uri,
        "is_local": is_local,
        "callback": url.path or "/",
        "login": "/login" if url.path != "/login" else "/sign-in",
        "host": host,
        "port": port,
        "authority": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        "page_file": f"{url.path.strip('/')}/index.html".lstrip("/"),
        "provider": authjs[1] if authjs else "gatehouse",
        "is_authjs_callback": bool(authjs),
        "scopes": client.scopes,
        "own_scopes": own_scopes,
        "client_scope": " ".join(client.scopes),
        "own_scope": " ".join(own_scopes),
        "has_openid": "openid" in client.scopes,
        "is_offline": "offline_access" in client.scopes,
        "audience": client.resources[0] if client.resources else "https://api.example.com",
        "is_public": method == NONE,
        "auth_method": method,
        "is_basic": method == BASIC,
        "has_key": method == PRIVATE_KEY_JWT,
        "rsa_algorithm": accepted_algorithms(document, client.token_endpoint_auth_signing_alg)[0],
        "is_pushed": requires_par(document, organization.settings),
        "is_bound": requires_dpop(document, organization.settings),
    }


def _local_redirect_uri(client: ClientRecord, language: str) -> str:
    """Return the redirect URI to try the code with: one on the developer's own machine if there is one.

    Auth.js has a fixed callback path.
    """
    uris = client.redirect_uris
    if language == "nextjs":
        uris = tuple(uri for uri in uris if _AUTHJS_CALLBACK.fullmatch(urlsplit(uri).path)) or uris
    return next((uri for uri in uris if is_loopback(uri)), uris[0] if uris else "")


@portal_page("/clients/<client_id>/quickstart", "GET")
def client_quickstart(context: PortalContext, client_id: str) -> PageResponse:
    """Show the quickstart of the chosen ``task`` and ``lang``, and whether the client got its first token."""
    client = get_client(context.actor, client_id)
    organization = context.organization
    tasks = tasks_of(client, organization)
    task = _chosen("task", tasks)
    languages = languages_of(client, task, organization) if task else ()
    language = _chosen("lang", languages)
    return client_page(
        context,
        client,
        "quickstart",
        task=task,
        tasks={name: TASKS[name] for name in tasks},
        language=language,
        languages={name: LANGUAGES[name] for name in languages},
        text=_html(quickstart_text(client, task, language, organization=organization), page_language())
        if language
        else None,
        redirect_uri=_local_redirect_uri(client, language),
        has_token=has_token(context.actor, client),
    )


@portal_page("/clients/<client_id>/quickstart/state", "GET")
def client_quickstart_state(context: PortalContext, client_id: str) -> PageResponse:
    """Return, for the page's script, whether the client got a token."""
    return jsonify(has_token=has_token(context.actor, get_client(context.actor, client_id)))


def has_token(actor: Actor, client: ClientRecord) -> bool:
    """Return whether the client received a token lately. Requests that failed count as uses only."""
    if client.last_used_at is None:
        return False
    if client.pkce_used_at or client.pkce_omitted_at:
        return True
    traffic = get_clients_traffic(actor, [client.client_id], days=_DAYS).get(client.client_id)
    return traffic is not None and traffic.totals.tokens > 0


def _chosen(parameter: str, names: tuple[str, ...]) -> str:
    """Return the name that the query chooses, the first one without a choice, or "" if there is none."""
    chosen = request.args.get(parameter, names[0] if names else "")
    if names and chosen not in names:
        abort(404)
    return chosen


@functools.lru_cache(maxsize=256)
def _html(text: str, _language: str) -> Markup:
    """Render the text. Its buttons are in the page's language, which is part of the cache's key."""
    return to_html(text)


def _json_string(value: str) -> str:
    """Return a string literal of Python, JavaScript, Go, Java and C#."""
    return json.dumps(value, ensure_ascii=False).replace("</", "<\\u002f")


def _php_string(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _section(heading: str) -> str:
    """Return a section of the guide about protecting an API, whose examples the tests run."""
    text = (ROOT / "docs" / "guides" / "protect-an-api.md").read_text(encoding="utf-8")
    return f"## {heading}\n" + text.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def _example(name: str) -> str:
    return (ROOT / "docs" / "examples" / name).read_text(encoding="utf-8")


_TEMPLATES = Environment(
    loader=FileSystemLoader(FOLDER),
    extensions=["jinja2.ext.i18n"],
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    autoescape=False,  # noqa: S701 - the result is Markdown, which the renderer escapes
)
_TEMPLATES.install_gettext_callables(gettext, ngettext, newstyle=True)  # type: ignore[attr-defined]
_TEMPLATES.filters.update(
    ljust=str.ljust,
    string=_json_string,
    php=_php_string,
    shell=shlex.quote,
    parameter=lambda value: quote(value, safe=""),
)
_TEMPLATES.globals.update(section=_section, example=_example)
