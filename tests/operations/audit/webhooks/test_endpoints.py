"""Webhooks of an organization: validation, permissions, secrets and limits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.models.audit import Webhook, WebhookDelivery
from app.operations.audit.audit_events import list_audit_events
from app.operations.audit.webhook_deliveries import list_deliveries, send_test
from app.operations.audit.webhooks import (
    create_webhook,
    delete_webhook,
    get_webhook,
    list_webhooks,
    rotate_webhook_secret,
    update_webhook,
)
from app.operations.maintenance.janitor import purge_expired
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.store import clock
from app.rules.actor import Actor
from app.rules.errors import Conflict, Forbidden, InvalidInput, NotFound, PreconditionFailed
from tests.operations.audit.webhooks.conftest import ago, change
from tests.support.cases import each
from tests.support.databases import Database

pytestmark = pytest.mark.usefixtures("context")
GOOD = {"url": "https://hooks.example/in?key=hidden", "event_types": ["user.*", "client.deleted"]}


def test_webhook_secret_is_stored_sealed(ada: Any, database: Database) -> None:
    """The secret is only in the response. Neither the table nor the audit log has it in clear text."""
    made = create_webhook(ada, GOOD | {"description": "CRM"})
    assert made.secret.startswith("whsec_")
    record = get_webhook(ada, made.record.public_id)
    assert (record.url, record.description, record.status) == (GOOD["url"], "CRM", "enabled")
    assert record.event_types == ("user.*", "client.deleted")
    dump = database.dump()
    assert made.secret.encode() not in dump and made.secret.removeprefix("whsec_").encode() not in dump
    [event] = list_audit_events(ada, filters={"action": "webhook.created"}).items
    assert event.target_id == record.public_id
    assert event.after is not None and event.after["url"] == "https://hooks.example/in", (
        "keys of a receiver stay out"
    )


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "no url": ({"url": None}, "url", "required"),
    "plain http": ({"url": "http://hooks.example/in"}, "url", "address_not_allowed"),
    "a user in it": ({"url": "https://ada@hooks.example/"}, "url", "address_not_allowed"),
    "our own network": ({"url": "https://127.0.0.1/in"}, "url", "address_not_allowed"),
    "this machine by name": ({"url": "https://LocalHost/in"}, "url", "address_not_allowed"),
    "a name below it": ({"url": "https://admin.localhost/"}, "url", "address_not_allowed"),
    "the metadata service": ({"url": "https://169.254.169.254/"}, "url", "address_not_allowed"),
    "a disguised address": ({"url": "https://0x7f.1/"}, "url", "address_not_allowed"),
    "mapped IPv6": ({"url": "https://[::ffff:127.0.0.1]/"}, "url", "address_not_allowed"),
    "too long": ({"url": "https://hooks.example/" + "x" * 2048}, "url", "address_not_allowed"),
    "no text": ({"url": 7}, "url", "wrong_type"),
    "no events": ({"event_types": []}, "event_types", "too_few"),
    "no list": ({"event_types": "*"}, "event_types", "wrong_type"),
    "an unknown event": ({"event_types": ["user.exploded"]}, "event_types[0]", "unknown_event_type"),
    "the test event": ({"event_types": ["webhook.test"]}, "event_types[0]", "unknown_event_type"),
    "a half wildcard": ({"event_types": ["user*"]}, "event_types[0]", "unknown_event_type"),
    "an unknown status": ({"status": "asleep"}, "status", "not_allowed"),
    "an own secret": ({"signing_secret": "whsec_x"}, "signing_secret", "read_only"),
    "an unknown field": ({"event": ["*"]}, "event", "unknown_field"),
    "a hidden character": ({"description": "CRM\u202e"}, "description", "forbidden_character"),
}


@each("case", WRONG)
def test_invalid_field_is_named_and_nothing_is_stored(ada: Any, database: Database, case: str) -> None:
    """SF-2: private addresses are rejected in every notation."""
    fields, field, code = WRONG[case]
    with pytest.raises(InvalidInput) as refused:
        create_webhook(ada, GOOD | fields)
    assert [(wrong.field, wrong.code) for wrong in refused.value.errors] == [(field, code)]
    assert database.count("webhooks") == 0
    assert not list_audit_events(ada, filters={"action": "webhook"}).items


def test_all_invalid_fields_are_named(ada: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        create_webhook(ada, {"url": "ftp://x", "event_types": ["x"], "status": "x"})
    assert len(refused.value.errors) == 3


def test_webhooks_per_organization_are_limited(ada: Any) -> None:
    for _ in range(20):
        create_webhook(ada, GOOD)
    with pytest.raises(Conflict):
        create_webhook(ada, GOOD)
    delete_webhook(ada, list_webhooks(ada).items[0].public_id)
    create_webhook(ada, GOOD)


def test_update_returns_changed_fields_and_rejects_stale_version(ada: Any) -> None:
    made = create_webhook(ada, GOOD).record
    changed = {"event_types": ["*"], "description": None, "url": GOOD["url"]}
    record, fields = update_webhook(ada, made.public_id, changed, expected_version=made.version)
    assert fields == ("event_types",) and record.event_types == ("*",)
    with pytest.raises(PreconditionFailed):
        update_webhook(ada, made.public_id, {"description": "x"}, expected_version=made.version)
    assert update_webhook(ada, made.public_id, {"event_types": ["*"]})[1] == ()
    [event] = list_audit_events(ada, filters={"action": "webhook.updated"}).items
    assert event.before is not None and sorted(event.before["event_types"]) == ["client.deleted", "user.*"]
    assert event.after == {"event_types": ["*"]}


def test_change_of_the_query_of_a_url_is_audited_without_it(ada: Any) -> None:
    """The query may contain a key."""
    made = create_webhook(ada, GOOD).record
    update_webhook(ada, made.public_id, {"url": "https://hooks.example/in?key=another"})
    update_webhook(ada, made.public_id, {"url": "https://other.example/"})
    other, query = list_audit_events(ada, filters={"action": "webhook.updated"}).items
    assert (query.before, query.after) == ({}, {"url_query": "changed"})
    assert (other.before, other.after) == (
        {"url": "https://hooks.example/in"}, {"url": "https://other.example/"}
    )  # fmt: skip


def test_enabling_and_another_url_reset_failures(ada: Any) -> None:
    made = create_webhook(ada, GOOD).record
    update_webhook(ada, made.public_id, {"status": "disabled"})
    assert get_webhook(ada, made.public_id).disabled_because == "person"
    change(Webhook, failing_since=ago(days=9))
    record, _ = update_webhook(ada, made.public_id, {"status": "enabled"})
    assert (record.disabled_because, record.failing_since) == (None, None)
    change(Webhook, failing_since=ago(days=9))
    assert update_webhook(ada, made.public_id, {"description": "x"})[0].failing_since is not None
    record, _ = update_webhook(ada, made.public_id, {"url": "https://other.example/"})
    assert record.failing_since is None, "another endpoint"


def test_deleted_webhook_is_purged_with_its_deliveries(ada: Any, acme: Any, database: Database) -> None:
    made = create_webhook(ada, GOOD).record
    send_test(ada, made.public_id)
    delete_webhook(ada, made.public_id)
    for look in (get_webhook, list_deliveries, delete_webhook):
        with pytest.raises(NotFound):
            look(ada, made.public_id)
    assert not list_webhooks(ada).items
    system = Actor.system("", "janitor")
    change(Webhook, deleted_at=ago(days=1))
    purge_expired(system, pause=0)
    assert database.count("webhooks") == 1, "its deliveries still name it"
    [(row,)] = database.query("SELECT sealed_secret FROM webhooks")
    assert row is None, "its secret went at once"
    change(WebhookDelivery, expires_at=ago(minutes=1))
    change(Webhook, deleted_at=ago(minutes=11))
    purge_expired(system, pause=0)
    assert database.count("webhooks") == 1, (
        "a worker may have seen it ten minutes ago, and tell it of something"
    )
    change(Webhook, deleted_at=ago(minutes=16))
    purge_expired(system, pause=0)
    assert (database.count("webhook_deliveries"), database.count("webhooks")) == (0, 0)


@pytest.mark.parametrize(
    ("held", "missing"),
    [
        (("webhooks:read",), "webhooks:write"),
        (("webhooks:write",), "audit:read"),
        (("audit:read",), "webhooks:write"),
    ],
)
def test_webhooks_require_audit_read(make: Any, acme: Any, held: tuple[str, ...], missing: str) -> None:
    """TN-11: a webhook sends what the audit log contains."""
    with pytest.raises(Forbidden) as refused:
        create_webhook(make.actor(acme, *held), GOOD)
    assert refused.value.permission == missing


def test_webhook_of_another_organization_is_not_found(make: Any, ada: Any) -> None:
    made = create_webhook(ada, GOOD).record
    stranger = make.actor(make.organization(name="Globex"))
    assert not list_webhooks(stranger).items
    for act in (get_webhook, delete_webhook, send_test, list_deliveries):
        with pytest.raises(NotFound):
            act(stranger, made.public_id)
    with pytest.raises(NotFound):
        update_webhook(stranger, made.public_id, {"url": "https://evil.example/"})
    with pytest.raises(NotFound):
        rotate_webhook_secret(stranger, made.public_id, {})


@each("value", [-1, 604_801, True, "1", 1.5])
def test_overlap_is_limited(ada: Any, value: Any) -> None:
    made = create_webhook(ada, GOOD).record
    with pytest.raises(InvalidInput) as refused:
        rotate_webhook_secret(ada, made.public_id, {"overlap_seconds": value})
    assert refused.value.errors[0].field == "overlap_seconds"


def test_rotation_without_overlap_deletes_the_previous_secret(ada: Any, database: Database) -> None:
    made = create_webhook(ada, GOOD)
    rotated = rotate_webhook_secret(ada, made.record.public_id, {"overlap_seconds": 0})
    assert rotated.secret != made.secret and rotated.record.previous_secret_until is None
    assert database.query("SELECT sealed_previous_secret FROM webhooks") == [(None,)]
    kept = rotate_webhook_secret(ada, made.record.public_id, {}).record.previous_secret_until
    assert kept is not None and kept > clock.now()


def test_webhook_changes_require_a_recent_sign_in(ada: Any, acme: Any, make: Any, database: Database) -> None:
    """SE-3: the URL of a webhook is as sensitive as a secret. A client has no sign-in that could be too old."""
    made = create_webhook(ada, GOOD).record
    late = replace(ada, authenticated_at=clock.now() - timedelta(hours=1))
    before = database.count("audit_events")
    for act in (
        lambda: create_webhook(late, GOOD),
        lambda: update_webhook(late, made.public_id, {"url": "https://elsewhere.example/"}),
        lambda: rotate_webhook_secret(late, made.public_id, {}),
    ):
        with pytest.raises(FreshSignInRequired):
            act()
    assert (database.count("webhooks"), database.count("audit_events")) == (1, before)
    assert get_webhook(ada, made.public_id).url == GOOD["url"]
    update_webhook(late, made.public_id, {"url": GOOD["url"], "description": "The same address"})
    assert create_webhook(make.system(acme), GOOD).secret
