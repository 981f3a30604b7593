"""Root's Home: health, the busiest organizations, failing deliveries, and the test email."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, update

from app.config import VERSION
from app.database import engines
from app.extensions import db
from app.models.audit import Lease, OutboxMessage
from app.operations.maintenance.instance_overview import MAX_ORGANIZATIONS
from app.operations.store import clock, leases, outbox
from app.operations.store.transactions import transaction
from app.operations.store.usage_counters import FAILED, SIGN_INS, TOKENS, add_past
from tests.support.mail_server import Mailbox


@pytest.fixture
def operator(make: Any, portal_user: Any) -> Any:
    """Return an administrator of root in the portal."""
    return portal_user(make.root())


def count(app: Any, organization: Any, days_ago: int, **metrics: int) -> None:
    with app.app_context():
        at = clock.now() - timedelta(days=days_ago)
        add_past(
            (at, (organization.id, ((name, ""),), None, None), number) for name, number in metrics.items()
        )


def overdue(app: Any, organization: Any, kind: str, receiver: str, **changes: Any) -> None:
    """Add a message that was tried in vain an hour ago."""
    with app.app_context():
        message_id = _enqueue(organization.id, kind, receiver)
        an_hour_ago = clock.now() - timedelta(hours=1)
        _change(message_id, {"created_at": an_hour_ago, "attempts": 3, **changes})


@transaction
def _enqueue(organization_id: str, kind: str, receiver: str) -> Any:
    return outbox.enqueue(organization_id, kind, {}, receiver=receiver)


@transaction
def _change(message_id: Any, values: dict[str, Any]) -> None:
    db.session.execute(
        update(OutboxMessage)
        .where(OutboxMessage.id == message_id)
        .values(**values)
        .execution_options(across_organizations=True)
    )


def test_home_of_root_shows_version_and_health(operator: Any) -> None:
    operator.get("")

    assert f"Version {VERSION}" in operator.text
    assert "Health" in operator.text and "No email or webhook is overdue." in operator.text
    assert any(name in operator.text for name in ("SQLite 3", "MariaDB 1", "MySQL 8", "MySQL 9"))


def test_janitor_that_stopped_is_a_warning(app: Any, operator: Any) -> None:
    with app.app_context():
        assert leases.acquire("janitor", "another worker", 60)
    assert "Expired rows are deleted every minute." in operator.get("").text

    with app.app_context():
        _stop_janitor()

    assert "Expired rows have not been deleted for ten minutes." in operator.get("").text


@transaction
def _stop_janitor() -> None:
    db.session.execute(
        update(Lease).where(Lease.name == "janitor").values(expires_at=clock.now() - timedelta(minutes=11))
    )


def test_busiest_organizations_come_first_and_are_those_of_the_period(
    app: Any, make: Any, acme: Any, operator: Any
) -> None:
    globex = make.organization("globex", name="Globex")
    count(app, acme, 0, **{TOKENS: 5, SIGN_INS: 3, FAILED: 1})
    count(app, globex, 3, **{TOKENS: 900})
    count(app, acme, 8, **{TOKENS: 7_000})

    week = operator.get("").text
    assert 0 < week.index("/organizations/globex") < week.index("/organizations/acme")
    assert ">900<" in week and "7,00" not in week

    today = operator.get("?period=day").text
    assert "/organizations/acme" in today and "/organizations/globex" not in today


def test_statements_do_not_grow_with_organizations(app: Any, make: Any, operator: Any) -> None:
    for number in range(MAX_ORGANIZATIONS + 4):
        count(app, make.organization(f"busy{number}"), 0, **{TOKENS: number})
    statements: list[str] = []
    operator.get("/organizations")
    with app.app_context():
        pair = engines()

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    for engine in pair:
        event.listen(engine, "before_cursor_execute", note)
    try:
        text = operator.get("").text
    finally:
        for engine in pair:
            event.remove(engine, "before_cursor_execute", note)
    assert text.count("/organizations/busy") == MAX_ORGANIZATIONS
    assert len(statements) < 20, statements


def test_failing_deliveries_name_organization_and_attempts(
    app: Any, acme: Any, make: Any, operator: Any
) -> None:
    overdue(app, acme, "webhook", "whk_1", available_at=_later(app))
    overdue(app, acme, "mail", "mail", available_at=_earlier(app))
    # As of an organization that has moved.
    moved = make.organization("globex", name="Globex")
    overdue(app, moved, "mail", "mail", available_at=_later(app) + timedelta(days=36_500))

    operator.get("")

    assert "Webhook · Acme" in operator.text and "Email · Acme" in operator.text
    assert "Email · Globex" not in operator.text
    assert "1 message waits, attempts: 3" in operator.text
    assert "/portal/acme/webhooks/whk_1" in operator.page.text
    assert "Emails and webhooks have waited for 60 minutes." in operator.text


def _later(app: Any) -> Any:
    with app.app_context():
        return clock.now() + timedelta(minutes=5)


def _earlier(app: Any) -> Any:
    with app.app_context():
        return clock.now() - timedelta(minutes=60)


def test_test_email_is_sent_to_the_administrator(operator: Any, box: Mailbox, deliver: Any) -> None:
    operator.get("")
    operator.submit("/test-email")
    assert "Test email queued." in operator.text

    deliver()

    [mail] = box.mails
    assert mail["To"] == operator.user.email and "Test email" in mail["Subject"]
    assert "sent a test email" in operator.get("").text


def test_test_email_without_mail_server_is_rejected(operator: Any) -> None:
    operator.get("")
    assert "GATEHOUSE_SMTP_URL" in operator.text
    answer = operator.send("/organizations/new")  # A page with a form, for its token.
    answer = operator.send("/test-email")

    assert answer.status_code == 409 and "No mail server is configured." in operator.text


def test_test_emails_are_limited(operator: Any, box: Mailbox, deliver: Any) -> None:
    operator.get("")
    for _ in range(10):
        operator.submit("/test-email")
    answer = operator.send("/test-email")
    assert answer.status_code == 429
    assert "You have sent many test emails." in operator.text
    deliver()
    assert len(box.mails) == 10


def test_only_root_has_the_page(make: Any, acme: Any, ada: Any, portal_user: Any) -> None:
    make.root()
    ada.get("/settings/general")
    assert ada.send("/test-email").status_code == 404
    assert "Busiest organizations" not in ada.get("").text
    auditor = portal_user(make.root(), role="auditor")
    assert "Busiest organizations" in auditor.get("").text and "Send a test email" not in auditor.text


def test_health_is_in_the_language_of_the_page(operator: Any) -> None:
    page = operator.http.get(operator.address(""), headers={"Accept-Language": "de"}).text
    assert " GB sind frei." in page and " GB are free." not in page
