"""Reports of leaks: anybody may post a string that was found, and what of it is ours is dead before the answer.

Possession is the proof: whoever holds a secret could use it, and here can only end it. The answer is the same for every
string, so that nobody learns by it which ones are alive. Strings that are none of ours cost no look-up: form and
checksum tell (rules/tokens/tokens).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from app.operations import audit
from app.operations.directory import OrganizationView, organization_until_purged, root_organization
from app.operations.leaks.endings import Ended, creator_of, end
from app.operations.mail import letters
from app.operations.mail.to_administrators import addresses_of_administrators
from app.operations.people import attempts
from app.operations.people.attempts import bucket_of, limits_of_networks
from app.operations.people.users import get_user
from app.operations.registration.credential_ends import end_grants_of
from app.operations.tenancy.setup import withdraw_setup_token
from app.operations.tokens import tokens as living_tokens
from app.operations.transaction import transaction
from app.rules.actor import Actor
from app.rules.errors import NotFound
from app.rules.evidence.leak_reports import LeakReport, read_reports
from app.rules.people.lockout import Lockout
from app.rules.tokens.tokens import ACCESS_TOKEN, SETUP, parse_token

LABEL = "leak report"
ACTION = "secret.leak_reported"
MOST_PER_NETWORK = Lockout(120, timedelta(hours=1), timedelta(minutes=1), timedelta(minutes=15))
MOST_LETTERS_AN_HOUR = 20
"""To the people of one organization: a scanner that finds a whole repository must not fill their mailboxes."""


def report_leaks(actor: Actor, sent: Any) -> int:
    """Every string of the reports that is ours is dead, on every worker; returns how many strings were taken.

    ``sent`` is what was posted: an array of objects with ``token`` and, if known, ``url``, ``source`` and ``type``, or
    one such object. ``actor`` is a stranger, of no organization. Repeating is harmless. Raises InvalidInput,
    TooManyRequests. Audit: ``secret.leak_reported`` in the organization whose secret it was, beside the event of its
    revocation.
    """
    reports = read_reports(sent)
    _require_patience(actor)
    for report in {report.token: report for report in reports}.values():
        _act_on(actor, report)
    return len(reports)


def _require_patience(actor: Actor) -> None:
    try:
        root = root_organization().id
    except NotFound:
        return
    limits = limits_of_networks(MOST_PER_NETWORK, actor.address, "leak reports")
    attempts.require_attempt(
        root,
        "Too many reports came from your network. Wait, then send the rest, up to 100 in one request.",
        *limits,
    )


def _act_on(actor: Actor, report: LeakReport) -> None:
    place = _place(report.token)
    if place is None:
        return
    organization_id, kind = place
    if kind == SETUP:
        withdraw_setup_token(report.token)
        return
    try:
        # What leaks while an organization is deleted must not be alive again when it is restored.
        organization = organization_until_purged(organization_id)
    except NotFound:
        return
    system = Actor.system(organization.id, LABEL)
    inside = replace(system, address=actor.address, request_id=actor.request_id)
    ended = _end(inside, organization, kind, report)
    if ended is not None:
        end_grants_of(inside, ended.follow_up)


def _place(token: str) -> tuple[str, str] | None:
    """(organization, kind) that the string names, if it has the form of one of ours."""
    parsed = parse_token(token)
    if parsed is not None:
        return parsed.organization_id, parsed.kind
    owner = living_tokens.owner_of(token) if token.startswith("eyJ") else None
    return None if owner is None else (owner, ACCESS_TOKEN)


@transaction
def _end(inside: Actor, organization: OrganizationView, kind: str, report: LeakReport) -> Ended | None:
    ended = end(inside, kind, report.token)
    if ended is None:
        return None
    after = {"what": ended.words, "url": report.url, "source": report.source, "type": report.type}
    audit.record(
        inside,
        ACTION,
        target_type=ended.target_type,
        target_id=ended.target_id,
        after={**ended.facts, **{name: value for name, value in after.items() if value is not None}},
    )
    _write(organization, ended, report)
    return ended


def _write(organization: OrganizationView, ended: Ended, report: LeakReport) -> None:
    """Its owner and the administrators hear of it. Of the address they get the host alone: it is a stranger's word.

    Of a deleted organization nobody gets mail: its audit log says it to whoever restores it.
    """
    if not letters.is_possible() or not organization.is_standing:
        return
    bucket = bucket_of("leak letters")
    if not attempts.is_within(organization.id, bucket, MOST_LETTERS_AN_HOUR, timedelta(hours=1)):
        return
    values = {
        "what": ended.words,
        "where": (urlsplit(report.url).hostname or "") if report.url else "",
        "of": str(ended.facts.get("client_id", "")),
        "link": f"{organization.base_url}/portal/{organization.slug}/audit?action={ACTION}",
    }
    for address in dict.fromkeys(
        [*_owners(organization.id, ended), *addresses_of_administrators(organization.id)]
    ):
        letters.send(organization, address, "secret_leaked", values)


def _owners(organization_id: str, ended: Ended) -> list[str]:
    owner = ended.user_id
    if owner is None and ended.client_id is not None:
        owner = creator_of(organization_id, ended.client_id)
    if owner is None:
        return []
    try:
        return [get_user(organization_id, owner).email]
    except NotFound:
        return []
