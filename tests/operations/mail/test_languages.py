"""The language of emails: the recipient's, or the organization's default."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from app.extensions import db
from app.models.user import User
from app.operations.mail import emails
from app.operations.mail.emails import compose
from app.operations.mail.notices import notify_user
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from app.rules.languages.translation import lazy_gettext
from app.rules.sign_in.browser_names import browser_name
from tests.support.cases import each
from tests.support.mail_server import Mailbox, plain

pytestmark = pytest.mark.usefixtures("context")
ROOT = Path(__file__).parents[3]
LETTERS = sorted(path.stem for path in (ROOT / "templates/mail").glob("*.txt"))
AT = "2026-03-05T14:02:09+00:00"
ENGLISH_WORDS = re.compile(r"\b(the|you|your|and|is|not|here|with)\b", re.IGNORECASE)
Deliver = Callable[[], int]


@transaction
def set_locale(user: Any, tag: str) -> None:
    db.session.execute(update(User).where(User.id == user.id).values(profile={"locale": tag}))


@transaction
def request_reset_email(organization: Any, to: str) -> None:
    values = {"email": to, "link": "https://id.example.com/x", "until": AT}
    emails.send(organization, to, "password_reset", values)


def test_email_uses_the_recipient_language(make: Any, box: Mailbox, deliver: Deliver) -> None:
    acme = make.organization(name="Acme")
    ada, bob = make.user(acme), make.user(acme)
    set_locale(ada, "de-CH")
    for email in (ada.email, bob.email):
        request_reset_email(acme, email)
    deliver()
    told = {mail["To"]: mail for mail in box.mails}
    german, english = told[ada.email], told[bob.email]
    assert german["Subject"] == "Ihr Passwort bei Acme zurücksetzen"
    assert german["Content-Language"] == "de"
    assert "Der Link gilt einmal und läuft am 5. März 2026, 14:02 UTC ab." in plain(german)
    assert '<html lang="de">' in german.get_body(("html",)).get_content()
    assert (english["Subject"], english["Content-Language"]) == ("Reset your Acme password", "en")
    assert "expires on 5 March 2026, 14:02 UTC" in plain(english)


def test_email_to_unknown_user_uses_the_organization_language(
    make: Any, box: Mailbox, deliver: Deliver
) -> None:
    acme = make.organization(name="Acme", settings={"localization": {"default_locale": "de"}})
    french = make.user(acme)
    set_locale(french, "fr")
    for email in (french.email, "stranger@example.com"):
        request_reset_email(acme, email)
    deliver()
    assert {mail["Subject"] for mail in box.mails} == {"Ihr Passwort bei Acme zurücksetzen"}


def test_notice_uses_the_language_at_its_creation(make: Any, box: Mailbox, deliver: Deliver) -> None:
    acme = make.organization(name="Acme")
    ada = make.user(acme)
    set_locale(ada, "de")
    actor = Actor("user", acme.id, acme.id, user_id=ada.id, label=ada.email, ip_address="192.0.2.7")
    browser = lazy_gettext("%(browser)s on %(system)s", browser="Firefox", system="Windows")
    notify_user(actor, ada.id, "new_browser", browser=browser)
    set_locale(ada, "en")
    deliver()
    (mail,) = box.mails
    assert mail["Subject"] == "Neue Anmeldung bei Ihrem Konto bei Acme"
    assert "Firefox auf Windows" in plain(mail) and "von 192.0.2.7 aus" in plain(mail)


def test_only_messages_of_a_notice_are_translated(make: Any, box: Mailbox, deliver: Deliver) -> None:
    """A client may be named like a word of the catalog."""
    acme = make.organization(name="Acme", settings={"localization": {"default_locale": "de"}})
    ada = make.user(acme)
    actor = Actor("user", acme.id, acme.id, user_id=ada.id, label="Grace", ip_address="192.0.2.7")
    notify_user(
        actor, ada.id, "owner_changed", who="Grace", name="Settings", others="", link="https://x.example"
    )
    notify_user(actor, ada.id, "new_browser", browser=browser_name(""))
    deliver()
    owned, new = (plain(mail) for mail in box.mails)
    assert "Settings" in owned and "Einstellungen" not in owned
    assert "Ein unbekannter Browser" in new


@each("name", LETTERS)
def test_every_email_is_fully_translated(make: Any, name: str) -> None:
    source = (ROOT / f"templates/mail/{name}.txt").read_text()
    names = set(re.findall(r"\{\{ (\w+)|=(\w+)\||if (\w+)\b|\((\w+)\)|=(\w+)", source))
    values = {part: "Xyz" for found in names for part in found if part}
    moments = dict.fromkeys(("at", "until", "ends", "used"), AT)
    told = values | moments | {"because": "failing", "days": "5", "waiting": "9"}
    acme = make.organization(name="Acme")
    for factors in ("left", "ended"):
        told |= {f"{factors}_passkeys": "2", f"{factors}_apps": "1"}
        mail = compose(
            acme,
            name,
            {key: value for key, value in told.items() if key != "title"},
            to="ada@acme.example",
            sender="gatehouse@mail.example",
            message_id="x",
            written_at=datetime.now(UTC),
            language="de",
        )
        text = f"{mail['Subject']} {plain(mail)}"
        assert ENGLISH_WORDS.findall(text) == []
