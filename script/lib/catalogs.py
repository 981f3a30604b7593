"""Translation catalogs: extract messages from the sources, update each language's catalog, compile it.

python script/lib/catalogs.py           updates app/translations
python script/lib/catalogs.py --check   lists the messages that are not translated
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from babel.messages.catalog import Catalog, Message
from babel.messages.frontend import CommandLineInterface
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "app" / "translations"
# Functions and classes that take a message, and its position among their arguments.
KEYWORDS = (
    "lazy_gettext:1", "lazy_value:1", "lazy_ngettext:1,2", "html_gettext:1", "FieldError:3", "FieldProblem:2", "add:3",
    "_pattern_check:3", "__init__:1", "wrong_type:1",
    "Conflict:1", "Forbidden:1", "InvalidInput:1", "NotFound:1", "TooManyRequests:1", "PreconditionFailed:1",
    "InvitationEnded:1", "OAuthError:1", "Unauthenticated:1", "UnredirectableError:1",
    "DocumentRefused:1", "AlreadyDecided:1", "ClientChanged:1", "LastSignInMethod:1",
    "MetadataInvalid:1",
    "NoMailServer:1", "NotRevealable:1", "OutgoingRequestBlocked:1", "OutgoingRequestFailed:1", "RootProtected:1",
    "TooManyClients:1",
    "UnreadableFile:1", "UnsupportedHash:2",
    "require_attempt_allowed:2", "get_row:2",
)  # fmt: skip

HEADER = "# Messages of pages and emails. script/translate updates them; only msgstr is edited by hand."
_NOBODY = {"version": "1", "msgid_bugs_address": "-", "last_translator": "-", "language_team": "-"}


def extracted() -> Catalog:
    """Extract the messages of pages and emails from the sources."""
    target = io.BytesIO()
    path = FOLDER / "messages.pot"
    keywords = [part for word in KEYWORDS for part in ("-k", word)]
    command = [
        "pybabel",
        "-q",
        "extract",
        "-F",
        str(ROOT / "pyproject.toml"),
        *keywords,
        "-o",
        str(path),
        ".",
    ]
    try:
        CommandLineInterface().run(command)
        target.write(path.read_bytes())
    finally:
        path.unlink(missing_ok=True)
    target.seek(0)
    return read_po(target)


def languages() -> list[str]:
    """Return the languages that have a catalog."""
    return sorted(path.parents[1].name for path in FOLDER.glob("*/LC_MESSAGES/messages.po"))


def catalog(language: str) -> Catalog:
    """Read the language's catalog."""
    with _source(language).open("rb") as file:
        return read_po(file, locale=language)


def compiled(language: str) -> bytes:
    """Compile the language's catalog to the content of its ``.mo`` file."""
    target = io.BytesIO()
    write_mo(target, catalog(language))
    return target.getvalue()


def left_to_do(language: str) -> list[str]:
    """Return the messages that are missing, empty or marked fuzzy in the language's catalog."""
    known = catalog(language)
    return [str(message.id) for message in extracted() if message.id and not _is_done(known.get(message.id))]


def bring_up_to_date(language: str) -> None:
    """Update the language's catalog with exactly the extracted messages, sorted, and compile it."""
    current, fresh = catalog(language), extracted()
    renewed = Catalog(
        locale=language, project="Gatehouse", charset="utf-8", fuzzy=False, header_comment=HEADER, **_NOBODY
    )
    renewed.creation_date = renewed.revision_date = current.creation_date
    for message in fresh:
        if message.id:
            known = current.get(message.id)
            string = known.string if known is not None else None
            places = sorted({(name, None) for name, _ in message.locations})
            renewed.add(message.id, string, locations=places, flags=message.flags)
    with _source(language).open("wb") as file:
        write_po(file, renewed, width=110, sort_output=True, include_lineno=False)
    _source(language).with_suffix(".mo").write_bytes(compiled(language))


def _is_done(message: Message | None) -> bool:
    if message is None or message.fuzzy:
        return False
    return all(message.string) if isinstance(message.string, tuple) else bool(message.string)


def _source(language: str) -> Path:
    return FOLDER / language / "LC_MESSAGES" / "messages.po"


if __name__ == "__main__":
    for name in languages():
        if "--check" not in sys.argv:
            bring_up_to_date(name)
        for text in left_to_do(name):
            print(f"{name}: {text}")
