"""``flask --app wsgi isolation-check``: check on this installation that organizations cannot reach each other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlsplit

import click
from flask import current_app
from flask.cli import with_appcontext

from app.cli.isolation.attacks import Finding, on_oauth_endpoints, on_the_api, on_the_pages
from app.cli.isolation.visitor import Visitor
from app.cli.isolation.world import Side
from app.cli.operator import OperatorCommand
from app.config import current
from app.operations.directory.lookups import get_root_organization
from app.operations.maintenance.isolation import (
    create_isolation_organization,
    delete_isolation_organization,
    table_digests,
)
from app.rules.actor import Actor

_PARAMETER = re.compile(r"<(?:[a-z]+:)?([a-z_]+)>")
# Path parameters whose names differ between pages and API.
_ALIASES = {
    "api_id": "resourceId",
    "event_id": "auditEventId",
    "token_id": "registrationTokenId",
    "slug": "id",
    "request_id": "clientRequestId",
    "access_id": "clientAccessId",
    "access_token_id": "tokenId",
}
_WORDS = {"role": "developer", "topic": "sessions", "algorithm": "ES256", "form": "csv"}


@click.command("isolation-check", cls=OperatorCommand)
@click.option("--url", help="Where the service answers; its base URL when left out.")
@click.option("--verbose", is_flag=True, help="Print the good findings too.")
@with_appcontext
def isolation_check_command(url: str | None, verbose: bool) -> None:
    """Create two organizations, let one attack the other over HTTP, delete both, and report.

    Exit status 0: no attack succeeded. 1: an attack succeeded, or the check failed. The organizations are named
    isolation-… and are purged by the janitor's next run; the slugs stay tombstones.
    """
    config = current()
    visitor = Visitor(url or config.base_url, urlsplit(config.base_url).netloc)
    counted: Counter[str] = Counter()
    breaches = 0
    for finding in _findings(visitor):
        counted[finding.group] += 1
        breaches += bool(finding.breach)
        if finding.breach:
            click.echo(f"BREACH  {finding.attack}: {finding.breach}")
        elif finding.group == "not tried":
            click.echo(f"        not tried: {finding.attack}", err=True)
        elif verbose:
            click.echo(f"ok      {finding.attack}")
    tried = ", ".join(f"{count} on {group}" for group, count in counted.items() if group != "not tried")
    click.echo(f"{tried}: {breaches or 'none'} went through")
    if breaches:
        raise SystemExit(1)


def _findings(visitor: Visitor) -> Iterator[Finding]:
    actor = Actor.system(get_root_organization().id, "isolation check")
    corners = []
    try:
        corners.append(create_isolation_organization(actor))
        corners.append(create_isolation_organization(actor))
        document = _document(visitor)
        attacker, victim = (Side(corner, visitor) for corner in corners)
        for side in (attacker, victim):
            side.prepare(document)
        victim_id = victim.corner.organization.id
        before = table_digests(actor, victim_id)
        yield from on_the_api(attacker, victim, document)
        yield from on_the_pages(attacker, victim, _pages(), lambda rule: _filled(rule, victim))
        after = table_digests(actor, victim_id)
        for table, digest in before.items():
            breach = "" if after[table] == digest else "rows of the other organization were changed"
            yield Finding("tables", f"rows in {table}", breach)
        yield from on_oauth_endpoints(attacker, victim)
    except OSError as error:
        raise click.ClickException(
            f"The service does not answer: {error}. Name its address with --url."
        ) from error
    finally:
        for corner in corners:
            delete_isolation_organization(actor, corner)


def _document(visitor: Visitor) -> dict[str, object]:
    document = visitor.send("GET", "/openapi.json").document
    if not isinstance(document, dict):
        raise click.ClickException("That is not this service: it gives no /openapi.json.")
    return document


def _pages() -> list[tuple[str, str]]:
    """Return (method, rule) of every page of an organization."""
    return sorted(
        (method, rule.rule)
        for rule in current_app.url_map.iter_rules()
        if "<organization>" in rule.rule and rule.endpoint.split(".")[0] in {"portal", "account"}
        for method in (rule.methods or set()) & {"GET", "POST"}
    )


def _filled(rule: str, victim: Side) -> str:
    ids = {
        re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name): id_ for name, id_ in victim.ids.items()
    }
    known = {**_WORDS, **ids, **{alias: victim.ids.get(name, "x") for alias, name in _ALIASES.items()}}
    known["organization"] = victim.slug
    return _PARAMETER.sub(lambda found: known.get(found[1], "x"), rule)
