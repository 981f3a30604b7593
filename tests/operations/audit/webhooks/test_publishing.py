"""Publishing of audit events to webhooks: subscriptions, transactions and redaction."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event as sqlalchemy_event

from app.database import engines
from app.operations.audit import webhook_publishing
from app.operations.audit.webhook_deliveries import list_deliveries
from app.operations.audit.webhooks import SignedWebhook, create_webhook, update_webhook
from app.operations.clients.credentials import create_credential
from app.operations.organizations.settings import update_settings
from app.operations.sign_in.passwords import change_password
from app.operations.store import audit
from app.operations.store.transactions import transaction
from app.operations.users.users import disable_user
from app.rules.actor import Actor
from app.rules.audit.events import EVENT_TYPES, SUBSCRIPTION_CHOICES, action_for_event_type, is_subscribed
from app.rules.audit.webhooks import MAX_BODY_BYTES, build_body
from tests.factories import PASSWORD
from tests.support.caches import clear_cached_subscriptions
from tests.support.databases import Database
from tests.support.webhook_receiver import Receiver

pytestmark = pytest.mark.usefixtures("context")
Deliver = Callable[[], int]
ROOT = Path(__file__).resolve().parents[4]
OPERATIONS = ROOT / "app" / "operations"


def types_told(actor: Any, hook: SignedWebhook) -> list[str]:
    return [one.event_type for one in list_deliveries(actor, hook.record.public_id).items]


def fields_of(value: Any) -> Any:
    """Return the fields of an object, in their order, without the values."""
    return [(name, fields_of(each)) for name, each in value.items()] if isinstance(value, dict) else None


def test_subscription_to_user_events_receives_only_these(
    make: Any, acme: Any, ada: Any, hook: SignedWebhook, receiver: Receiver, deliver: Deliver
) -> None:
    user = make.user(acme)
    make.client(acme)
    disable_user(ada, user.id)
    deliver()
    told = receiver.events(hook.secret)
    assert [event["type"] for event in told] == ["user.disabled"]
    data = told[0]["data"]
    assert data["organization_id"] == "acme" and data["target"] == {"type": "user", "id": user.public_id}
    assert data["actor"] == {
        "type": "user",
        "id": f"usr_{data['actor']['id'][4:]}",
        "label": ada.label,
        "organization_id": "acme",
    }
    assert data["ip_address"] == ada.ip_address and data["truncated"] is False
    assert re.fullmatch(r"evt_[0-9a-z]{26}", data["id"])
    assert told[0]["timestamp"].endswith("Z")
    for path in ("docs/webhooks.md", "templates/portal/webhooks/verifying.html"):
        example = re.search(r'\{"type": "user.disabled".*?\}\}', (ROOT / path).read_text(), re.DOTALL)
        assert example is not None
        assert fields_of(json.loads(example[0])) == fields_of(told[0]), path


def test_events_of_another_organization_are_not_sent(
    make: Any, hook: SignedWebhook, ada: Any, deliver: Deliver
) -> None:
    globex = make.organization(name="Globex")
    disable_user(make.actor(globex), make.user(globex).id)
    assert types_told(ada, hook) == []


def test_rolled_back_event_is_not_sent(ada: Any, hook: SignedWebhook, database: Database) -> None:
    @transaction
    def fails() -> None:
        audit.record(ada, "user.disabled", target_type="user", target_id="usr_x")
        raise LookupError

    with pytest.raises(LookupError):
        fails()
    assert database.count("webhook_deliveries") == 0 and database.count("outbox") == 0


def test_enabled_webhook_receives_later_events(make: Any, acme: Any, ada: Any, receiver: Receiver) -> None:
    """Cached subscriptions are invalidated by the change."""
    disable_user(ada, make.user(acme).id)
    made = create_webhook(ada, {"url": receiver.url, "event_types": ["user.disabled"], "status": "disabled"})
    disable_user(ada, make.user(acme).id)
    assert types_told(ada, made) == []
    update_webhook(ada, made.record.public_id, {"status": "enabled"})
    disable_user(ada, make.user(acme).id)
    assert types_told(ada, made) == ["user.disabled"]
    update_webhook(ada, made.record.public_id, {"event_types": ["client.*"]})
    disable_user(ada, make.user(acme).id)
    assert types_told(ada, made) == ["user.disabled"]


def test_rolled_back_webhook_receives_nothing(
    make: Any, acme: Any, ada: Any, receiver: Receiver, database: Database
) -> None:
    """A transaction does not cache its uncommitted changes."""

    @transaction
    def fails() -> None:
        create_webhook(ada, {"url": receiver.url, "event_types": ["*"]})
        audit.record(ada, "user.disabled", target_type="user", target_id="usr_x")
        raise LookupError

    with pytest.raises(LookupError):
        fails()
    disable_user(ada, make.user(acme).id)
    assert database.count("webhook_deliveries") == 0


def test_event_without_subscription_costs_no_query(make: Any, acme: Any, ada: Any) -> None:
    """The second event finds in the cache that there is no subscription."""
    asked: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        asked.append(statement)

    @transaction
    def happens() -> None:
        audit.record(ada, "session.started", target_type="user", target_id="usr_x")

    calls: list[str] = []
    real = webhook_publishing._FIND_ENABLED.rows

    def counted(**values: Any) -> Any:
        calls.append(values["organization_id"])
        return real(**values)

    clear_cached_subscriptions()
    engine = engines()[1]
    sqlalchemy_event.listen(engine, "before_cursor_execute", note)
    webhook_publishing._FIND_ENABLED.rows = counted  # type: ignore[method-assign]
    try:
        for _ in range(5):
            happens()
    finally:
        webhook_publishing._FIND_ENABLED.rows = real  # type: ignore[method-assign]
        sqlalchemy_event.remove(engine, "before_cursor_execute", note)
    assert calls == [acme.id]
    assert not [statement for statement in asked if "webhook" in statement]


def test_webhook_body_contains_no_secret(
    make: Any, acme: Any, ada: Any, receiver: Receiver, deliver: Deliver
) -> None:
    """LG-1: secrets that were created during the test are in no request."""
    hook = create_webhook(ada, {"url": receiver.url, "event_types": ["*"]})
    client = make.client(acme)
    made = create_credential(ada, client.client_id)
    user = make.user(acme)
    session = make.sign_in(user)
    herself = Actor("user", acme.id, acme.id, user_id=user.id, label=user.email)
    change_password(herself, PASSWORD, "nine quiet owls on the mill")
    update_settings(ada, "acme", {"branding": {"theme": "dark"}})
    other = create_webhook(ada, {"url": receiver.url, "event_types": ["*"]})
    deliver()
    told = {json.loads(request.body)["type"] for request in receiver.heard}
    assert {"client.registered", "credential.created", "session.started", "settings.updated"} <= told
    everything = b"".join(request.body + repr(request.headers).encode() for request in receiver.heard)
    for secret in (
        client.secret, made.secret, session.token, PASSWORD, "nine quiet owls on the mill", hook.secret, other.secret,
    ):  # fmt: skip
        assert secret and secret.encode() not in everything


def test_secret_in_an_event_is_redacted() -> None:
    token = "gth_at_abcdefgh" + "x" * 51
    body = build_body(
        "user.updated",
        datetime(2026, 11, 21, tzinfo=UTC),
        {"after": {"note": [f"see {token}"]}, "before": None},
    )
    assert token not in json.dumps(body) and "redacted" in json.dumps(body)


def test_oversized_event_is_sent_without_its_changes() -> None:
    body = build_body(
        "user.updated",
        datetime(2026, 11, 21, tzinfo=UTC),
        {"before": {"x": "y" * 30_000}, "after": {"x": 1}, "id": "e"},
    )
    assert body["data"] == {"before": None, "after": None, "id": "e", "truncated": True}
    assert len(json.dumps(body)) < MAX_BODY_BYTES


def test_subscriptions_match_names_groups_and_all() -> None:
    for name in EVENT_TYPES:
        assert (
            is_subscribed(name, {name})
            and is_subscribed(name, {"*"})
            and is_subscribed(name, {f"{name.split('.')[0]}.*"})
        )
        assert not is_subscribed(
            name, {choice for choice in SUBSCRIPTION_CHOICES if "*" not in choice and choice != name}
        )
    assert not is_subscribed("user.disabled", {"use.*", "user", "user."})


def test_every_event_type_is_a_recorded_action() -> None:
    """Each event type is recorded by an operation."""
    texts = set()
    for path in OPERATIONS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(node.value)
    made_up = {name for name in EVENT_TYPES if action_for_event_type(name) not in texts}
    assert {name for name in made_up if not name.startswith("signing_key.")} == set()
