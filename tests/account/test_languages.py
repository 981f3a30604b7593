"""The language of a page, and complete German pages for sign-in, account and errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import event, update

from app.extensions import db
from app.models.user import User
from app.operations.organizations.settings import update_settings
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.rules.languages.translation import catalog_of
from app.web.languages import ago, until
from tests.account.conftest import SAME_ORIGIN, Visitor
from tests.factories import PASSWORD
from tests.support.authenticator import with_app
from tests.support.mail_server import Mailbox

GERMAN = {"Accept-Language": "de-CH, en;q=0.5"}
FRENCH = {"Accept-Language": "fr, it;q=0.8"}


def speaks(app: Flask, make: Any, organization: Any, language: str) -> None:
    with app.app_context():
        update_settings(
            make.actor(organization), organization.slug, {"localization": {"default_locale": language}}
        )


@transaction
def _set_profile(user: Any, profile: dict[str, Any]) -> None:
    db.session.execute(update(User).where(User.id == user.id).values(profile=profile))


def reads(app: Flask, user: Any, language: str) -> None:
    """Set the user's language."""
    with app.app_context():
        _set_profile(user, {"locale": language})


def language_of(page: Any) -> str:
    """Return the language of the page from both places."""
    found = re.search(r'<html lang="([a-z]+)" dir="ltr"', page.text)
    assert found is not None
    assert page.headers["Content-Language"] == found[1]
    return found[1]


def untranslated(page: Any) -> list[str]:
    """Return English messages of the page that the German catalog translates."""
    body = re.sub(r"<script.*?</script>|<[^>]+>", "\n", page.text, flags=re.DOTALL)
    lines = {" ".join(unescape(line).split()) for line in body.splitlines()}
    german = catalog_of("de")
    return sorted(line for line in lines if len(line) > 3 and german.gettext(line) != line)


def test_language_defaults_to_english(visitor: Visitor, acme: Any) -> None:
    page = visitor.get(f"/organizations/{acme.slug}/login")
    assert (language_of(page), page.headers["Vary"]) == ("en", "Cookie, Accept-Language")
    assert "Sign in to Acme" in page.text


def test_supported_browser_language_is_used(visitor: Visitor, acme: Any) -> None:
    page = visitor.get(f"/organizations/{acme.slug}/login", headers=GERMAN)
    assert language_of(page) == "de"
    assert "Bei Acme anmelden" in page.text and untranslated(page) == []
    assert language_of(visitor.get(f"/organizations/{acme.slug}/login", headers=FRENCH)) == "en"


def test_organization_language_replaces_unsupported_browser_language(
    app: Flask, make: Any, visitor: Visitor, acme: Any
) -> None:
    speaks(app, make, acme, "de")
    path = f"/organizations/{acme.slug}/login"
    assert language_of(visitor.get(path)) == "de"
    assert language_of(visitor.get(path, headers=FRENCH)) == "de"
    assert language_of(visitor.get(path, headers={"Accept-Language": "en-US"})) == "en"
    other = make.organization()
    assert language_of(visitor.get(f"/organizations/{other.slug}/login")) == "en"


def test_user_language_precedes_browser_language(
    app: Flask, make: Any, visitor: Visitor, acme: Any, ada: Any
) -> None:
    make.sign_in(ada, visitor.http)
    home = f"/organizations/{acme.slug}/account/profile"
    assert language_of(visitor.get(home)) == "en"
    reads(app, ada, "de-AT")
    assert language_of(visitor.get(home, headers={"Accept-Language": "en"})) == "de"
    reads(app, ada, "fr")
    assert language_of(visitor.get(home, headers={"Accept-Language": "de"})) == "de"


def test_portal_is_in_language_of_user_or_browser(app: Flask, make: Any, visitor: Visitor, acme: Any) -> None:
    boss = make.user(acme, role="admin")
    make.sign_in(boss, visitor.http)
    home = f"/portal/{acme.slug}"
    page = visitor.get(home, headers=GERMAN)
    assert (language_of(page), page.headers["Vary"]) == ("de", "Cookie, Accept-Language")
    assert "Abmelden" in page.text and "Audit-Log" in page.text and "Sign out" not in page.text
    assert language_of(visitor.get("/portal", headers=GERMAN)) == "de"
    assert language_of(visitor.get(home)) == "en"
    reads(app, boss, "de")
    assert language_of(visitor.get(home, headers={"Accept-Language": "en"})) == "de"


def test_root_administrator_reads_own_language_in_other_organization(
    app: Flask, make: Any, visitor: Visitor, acme: Any
) -> None:
    operator = make.user(make.root(), role="admin")
    reads(app, operator, "de")
    make.sign_in(operator, visitor.http)
    assert language_of(visitor.get(f"/portal/{acme.slug}")) == "de"


def test_setup_page_is_in_language_of_browser(visitor: Visitor) -> None:
    assert language_of(visitor.get("/setup", headers=GERMAN)) == "de"


def test_failed_sign_in_is_explained_in_german(visitor: Visitor, acme: Any, ada: Any) -> None:
    path = f"/organizations/{acme.slug}/login"
    visitor.get(path, headers=GERMAN)
    headers = GERMAN | {"Sec-Fetch-Site": "same-origin"}
    refused = visitor.post(path, headers, email=ada.email, password="not it at all")
    assert refused.status_code == 400
    assert "E-Mail-Adresse oder Passwort ist falsch. Noch 2 Versuche." in refused.text
    assert "Prüfen Sie Ihr Passwort" in refused.text and untranslated(refused) == []


def test_two_step_verification_is_in_german(app: Flask, visitor: Visitor, acme: Any, ada: Any) -> None:
    with_app(app, ada)
    visitor.sign_in(ada)
    answer = visitor.sign_in(ada)
    page = visitor.get(answer.headers["Location"], headers=GERMAN)
    assert "Bestätigen Sie, dass Sie es sind" in page.text and untranslated(page) == []
    fields = dict(re.findall(r'type="hidden" name="(sign_in)" value="([^"]*)"', page.text))
    headers = GERMAN | {"Sec-Fetch-Site": "same-origin"}
    wrong = visitor.post(f"/organizations/{acme.slug}/login/verify", headers, code="000000", **fields)
    assert "Falscher Code." in wrong.text and untranslated(wrong) == []


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("profile", "Weitere Vornamen"),
        ("apps", "Keine verbundenen Apps"),
        ("sessions", "zuletzt aktiv"),
        ("security", "Geben Sie nach dem Passwort einen Code aus einer App auf Ihrem Telefon ein"),
        ("security/passkeys", "Noch keine Passkeys"),
        ("activity", "Angemeldet"),
        ("password", "Jetziges Passwort"),
        ("email", "Ihre E-Mail-Adresse"),
    ],
)
def test_account_pages_are_in_german(
    make: Any, visitor: Visitor, acme: Any, ada: Any, path: str, words: str
) -> None:
    make.sign_in(ada, visitor.http)
    page = visitor.get(f"/organizations/{acme.slug}/account/{path}", headers=GERMAN)
    assert page.status_code == 200
    assert words in page.text and untranslated(page) == []


def test_field_errors_are_in_german(visitor: Visitor, make: Any, acme: Any, ada: Any) -> None:
    make.sign_in(ada, visitor.http)
    headers = GERMAN | {"Sec-Fetch-Site": "same-origin"}
    path = f"/organizations/{acme.slug}/account/password"
    visitor.get(path)
    short = visitor.post(path, headers, current_password=PASSWORD, new_password="short")
    assert (
        "Mindestens 12 Zeichen. Gut sind mehrere Wörter, die nichts miteinander zu tun haben." in short.text
    )
    assert untranslated(short) == []
    profile = f"/organizations/{acme.slug}/account/profile"
    visitor.get(profile)
    wrong = visitor.post(profile, headers, name="Ada", locale="german please", nickname="x" * 101)
    assert "Geben Sie ein Sprachkürzel ein, zum Beispiel de-CH (BCP 47)." in wrong.text
    assert "Verwenden Sie höchstens 100 Zeichen. Das sind 101." in wrong.text
    assert untranslated(wrong) == []


def test_error_pages_are_in_german(visitor: Visitor, acme: Any) -> None:
    nowhere = visitor.get(
        f"/organizations/{acme.slug}/account/nowhere", headers=GERMAN | {"Accept": "text/html"}
    )
    assert (nowhere.status_code, language_of(nowhere)) == (404, "de")
    assert "Seite nicht gefunden" in nowhere.text and untranslated(nowhere) == []
    unknown = visitor.get("/organizations/nobody-here/login", headers=GERMAN)
    assert (unknown.status_code, language_of(unknown)) == (404, "de")
    assert "Eine solche Organisation gibt es nicht." in unknown.text and untranslated(unknown) == []


def test_organization_texts_are_not_translated(app: Flask, make: Any, visitor: Visitor) -> None:
    branding = {"branding": {"login_message": "Sign in", "display_name": "Profile"}}
    acme = make.organization(settings=branding)
    page = visitor.get(f"/organizations/{acme.slug}/login", headers=GERMAN)
    assert '<p class="muted">Sign in</p>' in page.text
    assert "Bei Profile anmelden" in page.text


@pytest.fixture
def statements(app: Flask) -> list[str]:
    """Count the SQL statements."""
    seen: list[str] = []
    with app.app_context():
        engine = db.engine
    event.listen(engine, "before_cursor_execute", lambda *told: seen.append(told[2]))
    return seen


def test_language_needs_no_query(
    app: Flask, make: Any, visitor: Visitor, acme: Any, ada: Any, statements: list[str]
) -> None:
    make.sign_in(ada, visitor.http)
    path = f"/organizations/{acme.slug}/account/profile"
    visitor.get(path)
    statements.clear()
    visitor.get(path, headers=GERMAN)
    german = len(statements)
    statements.clear()
    visitor.get(path)
    assert german == len(statements)


def test_email_of_a_sign_up_is_in_the_language_of_its_page(
    make: Any, visitor: Visitor, box: Mailbox, deliver: Callable[[], int]
) -> None:
    """A new account has no profile that names a language."""
    acme = make.organization(name="Acme", settings={"authentication": {"registration": {"mode": "open"}}})
    path = f"/organizations/{acme.slug}/register"
    visitor.get(path)
    form = {"name": "Jörg", "email": "joerg@example.com", "password": PASSWORD}
    assert visitor.post(path, headers={**SAME_ORIGIN, **GERMAN}, **form).status_code == 303
    deliver()
    assert box.mails[0]["Subject"] == "Ihr Konto bei Acme bestätigen"


@pytest.mark.parametrize(
    ("own", "subject"), [(None, "Ihr Passwort bei Acme zurücksetzen"), ("en-US", "Reset your Acme password")]
)
def test_reset_email_is_in_the_language_of_the_user_or_else_of_the_page(
    app: Flask,
    visitor: Visitor,
    acme: Any,
    ada: Any,
    box: Mailbox,
    deliver: Callable[[], int],
    own: str | None,
    subject: str,
) -> None:
    if own is not None:
        reads(app, ada, own)
    path = f"/organizations/{acme.slug}/forgot"
    visitor.get(path)
    visitor.post(path, headers={**SAME_ORIGIN, **GERMAN}, email=ada.email)
    deliver()
    assert box.mails[0]["Subject"] == subject


def test_email_to_a_new_address_is_in_the_language_of_its_user(
    app: Flask, visitor: Visitor, acme: Any, ada: Any, box: Mailbox, deliver: Callable[[], int]
) -> None:
    reads(app, ada, "de-DE")
    visitor.sign_in(ada)
    path = f"/organizations/{acme.slug}/account/email"
    visitor.get(path)
    visitor.post(path, email="ada@new.example")
    deliver()
    assert box.mails[-1]["Subject"] == "E-Mail-Adresse für Acme bestätigen"


@pytest.mark.parametrize(("language", "words"), [("de", "am 2. Jan. 2020"), ("en", "2 Jan 2020")])
def test_distant_time_fits_into_a_sentence(app: Flask, language: str, words: str) -> None:
    """As "vor 3 Tagen" does: an app was last used then."""
    with app.test_request_context("/login", headers={"Accept-Language": language}):
        assert f">{words}</time>" in ago(datetime(2020, 1, 2, 12, tzinfo=UTC))


def test_times_are_relative_to_the_clock_of_the_database(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    """CK-1: a page must not call a link expired that still works, because this machine's clock is ahead."""
    now = datetime.now(UTC) - timedelta(hours=2)
    monkeypatch.setattr(clock, "now", lambda: now)
    with app.test_request_context("/login", headers={"Accept-Language": "en"}):
        assert ">in 30 minutes</time>" in until(now + timedelta(minutes=30))
        assert ">just now</time>" in ago(now)
