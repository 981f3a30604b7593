"""Settings whose effect needs time: stored times are moved back instead of waiting.

The janitor and the key schedule run here in their own process, and both workers are then checked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import delete, insert, select

from app.extensions import db
from app.models.audit import AuditEvent, FailedRequest, Lease, OutboxMessage
from app.models.client import Client, ClientRegistration
from app.models.grant import AuthorizationCode, Grant
from app.models.organization import Organization
from app.models.session import Attempt
from app.models.token import SigningKey
from app.models.user import User
from app.operations.grants.key_rotation import LEASE_NAME, rotate_due_keys
from app.operations.maintenance.janitor import purge_expired
from app.operations.store.rate_limits import bucket_key
from app.rules.actor import Actor
from app.rules.identifiers import first_id_at, new_id, parse_client_id, public_id
from tests.factories import basic_header, bearer_header
from tests.support.organization_probe import CALLBACK, OrganizationProbe, numbers

HOUR, DAY = 3600, 86_400
Effect = tuple[Callable[[OrganizationProbe], Any], list[tuple[Any, Any]], dict[str, Any]]
_PATIENCE_SECONDS = 20


@contextmanager
def _rows(place: OrganizationProbe) -> Iterator[Any]:
    """Open a transaction on the server's database."""
    with place.make.app.app_context():
        yield db.session
        db.session.commit()


def _age(place: OrganizationProbe, model: Any, ago: timedelta, *columns: str, **of: Any) -> None:
    """Move these times of the organization's rows back."""
    with _rows(place) as rows:
        found = rows.scalars(select(model).filter_by(organization_id=place.organization.id, **of)).all()
        for row in found:
            for name in columns:
                if (moment := getattr(row, name)) is not None:
                    setattr(row, name, moment - ago)


def _late_code(place: OrganizationProbe) -> Any:
    """Redeem a code that was issued half a minute ago."""
    code = place.code()
    _age(place, AuthorizationCode, timedelta(seconds=30), "issued_at", "expires_at", used_at=None)
    # The user must not be newer than the code.
    _age(place, User, timedelta(days=1), "password_changed_at", id=place.ada.id)
    return place.redeem(code).status_code


def _idle_family(place: OrganizationProbe) -> Any:
    """Return whether a refresh token that was idle for two hours is valid, whatever expiry is stored."""
    token = place.flow()["refresh_token"]
    _age(place, Grant, timedelta(hours=2), "created_at", "refreshed_at")
    return place.refresh(token).status_code


def _old_family(place: OrganizationProbe) -> Any:
    """Return whether a refresh token family that started ten days ago is valid."""
    token = place.flow()["refresh_token"]
    _age(place, Grant, timedelta(days=10), "created_at")
    return place.refresh(token).status_code


def _idle_client(place: OrganizationProbe) -> Any:
    """Return whether a self-registered client that was unused for twenty days still exists."""
    body = {"redirect_uris": [CALLBACK], "token_endpoint_auth_method": "none"}
    made = place.ask("POST", f"/organizations/{place.slug}/oauth/register", json=body).json()
    known = parse_client_id(made["client_id"])
    assert known is not None
    _age(place, Client, timedelta(days=20), "created_at", "last_used_at", "updated_at", id=known[1])
    _age(place, ClientRegistration, timedelta(days=20), "idle_check_at", id=known[1])
    with _rows(place) as rows:
        # The client must not be older than the organization.
        rows.get_one(Organization, place.organization.id).updated_at -= timedelta(days=20)
    with _rows(place):
        assert purge_expired(Actor.system("", "janitor"), pause=0) is not None
    return place.manage("GET", f"/clients/{made['client_id']}")["status"]


def _aged_keys(place: OrganizationProbe) -> Any:
    """Return the key states of an organization whose first key has signed for twenty days."""
    if place.token().json()["access_token"].count(".") == 2 and not place.notes:
        _age(place, SigningKey, timedelta(days=20), "activated_at")
        place.notes["aged"] = True
    with _rows(place) as rows:
        rows.execute(delete(Lease).where(Lease.name == LEASE_NAME))
    with _rows(place):
        rotate_due_keys(Actor.system("", "key rotation"))
    keys = place.manage("GET", f"/organizations/{place.slug}/signing-keys")["data"]
    return {key["state"] for key in keys}


def _refused(place: OrganizationProbe) -> str:
    """Send a token request that is rejected and return its request ID."""
    headers = basic_header(place.machine.client_id, "wrong")
    answer = place.ask("POST", "/oauth/token", data={"grant_type": "client_credentials"}, headers=headers)
    assert answer.status_code == 401
    return str(answer.headers["X-Request-Id"])


def _is_kept(place: OrganizationProbe, request_id: str) -> bool:
    found = place.manage("GET", f"/logs/failed-requests?request_id={request_id}")
    return bool(found["data"])


def _keeps_refusals(place: OrganizationProbe) -> Any:
    """Return whether a rejection is logged; a later one on the same worker shows when to look."""
    request_id = _refused(place)
    worker = place.worker
    with OrganizationProbe(place.server, place.make) as other:
        later = _refused(other)
        while other.worker != worker:
            other.leave(other.worker)
            later = _refused(other)
        ends = time.monotonic() + _PATIENCE_SECONDS
        while not _is_kept(other, later):
            assert time.monotonic() < ends, "nothing was written"
            time.sleep(0.1)
    kept = _is_kept(place, request_id)
    place.worker = worker
    return kept


def _shows_old_refusal(place: OrganizationProbe) -> Any:
    """Return whether a rejection from five days ago is still listed."""
    if "refused" not in place.notes:
        place.notes["refused"] = request_id = _refused(place)
        ends = time.monotonic() + _PATIENCE_SECONDS
        while not _is_kept(place, request_id):
            assert time.monotonic() < ends, "nothing was written"
            time.sleep(0.1)
        _age(place, FailedRequest, timedelta(days=5), "at", "expires_at")
    return _is_kept(place, place.notes["refused"])


def _shows_old_event(place: OrganizationProbe) -> Any:
    """Return whether an audit event from forty days ago is still listed."""
    if "event" not in place.notes:
        at = datetime.now(UTC) - timedelta(days=40)
        event: UUID = first_id_at(at)
        values = {"action": "client.registered", "actor_kind": "system", "actor_label": "tests"}
        of = {"organization_id": place.organization.id, "actor_organization": place.organization.id}
        with _rows(place) as rows:
            rows.execute(insert(AuditEvent).values(id=event, at=at, **values, **of))
        place.notes["event"] = public_id("evt", event)
    return place.manage("GET", f"/audit-events/{place.notes['event']}")["status"]


def _sends_an_email(place: OrganizationProbe) -> Any:
    """Return whether an invitation is sent although eleven emails were, or else waits."""
    now = datetime.now(UTC)
    if "counted" not in place.notes:
        place.notes["counted"] = True
        sent = {"organization_id": place.organization.id, "bucket": bucket_key("emails")}
        times = {"at": now, "expires_at": now + timedelta(hours=1)}
        with _rows(place) as rows:
            rows.execute(insert(Attempt), [{"id": new_id(), **sent, **times} for _ in range(11)])
    email = f"guest{next(numbers)}@example.com"
    place.manage("POST", f"/organizations/{place.slug}/admins", {"email": email})
    delayed = select(AuditEvent.id).filter_by(organization_id=place.organization.id, action="mail.delayed")
    ends = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < ends:
        if any(mail["To"] == email for mail in place.box.mails):
            return True
        with _rows(place) as rows:
            if rows.scalars(delayed).first() is not None:
                return False
        time.sleep(0.1)
    raise AssertionError("neither sent nor delayed")


def _tells_of_root(place: OrganizationProbe) -> Any:
    """Return whether the administrator gets an email when a root user renames the organization."""
    if "ada" not in place.notes:
        place.notes["ada"] = place.make.user(place.organization, role="admin")
    root = bearer_header(place.make.bearer(place.make.root(), "organization:write", "organizations:write"))
    told, told_of = len(place.box.mails), _announced(place)
    body = {"name": f"Orchard {next(numbers)}"}
    answer = place.ask("PUT", f"/organizations/{place.slug}", headers=root, json=body)
    assert answer.status_code == 200, answer.text
    if _announced(place) == told_of:
        return False
    ends = time.monotonic() + _PATIENCE_SECONDS
    while place.notes["ada"].email not in [mail["To"] for mail in place.box.mails[told:]]:
        assert time.monotonic() < ends, "no email arrived"
        time.sleep(0.1)
    return True


def _announced(place: OrganizationProbe) -> int:
    with _rows(place) as rows:
        of = {"organization_id": place.organization.id, "kind": "root_access"}
        return len(rows.execute(select(OutboxMessage.id).filter_by(**of)).all())


EFFECTS: dict[str, Effect] = {
    "oauth.authorization_code_ttl_seconds": (_late_code, [(60, 200), (20, 400)], {}),
    "oauth.refresh_token.idle_ttl_seconds": (_idle_family, [(4 * HOUR, 200), (HOUR, 400)], {}),
    "oauth.refresh_token.ttl_seconds": (
        _old_family, [(20 * DAY, 200), (5 * DAY, 400)], {"oauth.refresh_token.idle_ttl_seconds": DAY},
    ),
    "oauth.dynamic_registration.idle_ttl_seconds": (
        _idle_client, [(30 * DAY, 200), (10 * DAY, 404)], {"oauth.dynamic_registration.mode": "open"},
    ),
    "oauth.signing.rotation_seconds": (
        _aged_keys,
        [(30 * DAY, {"active"}), (10 * DAY, {"active", "next"})],
        {"oauth.access_token.format": "jwt", "oauth.signing.algorithm": "ES256"},
    ),
    "limits.emails_per_hour": (_sends_an_email, [(1000, True), (10, False)], {}),
    "audit.retention_days": (_shows_old_event, [(60, 200), (30, 404)], {}),
    "audit.failed_requests": (_keeps_refusals, [(False, False), (True, True)], {}),
    "audit.log_retention_days": (_shows_old_refusal, [(10, True), (3, False)], {}),
    "audit.notify_root_access": (_tells_of_root, [(False, False), (True, True)], {}),
}  # fmt: skip
