"""Catalogs of sentences: read from the sources, brought into each language's file, compiled.

python script/lib/catalogs.py           brings app/translations up to date
python script/lib/catalogs.py --check   says what a translator has left to do
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
# Where the sentence stands among the arguments of what says it.
SPOKEN_BY = (
    "sentence:1", "FieldError:3", "Problem:2", "add:3", "_pattern_check:3", "__init__:1",
    "Conflict:1", "Forbidden:1", "InvalidInput:1", "NotFound:1", "TooManyRequests:1", "PreconditionFailed:1",
    "InvitationEnded:1", "ResetEnded:1", "OAuthError:1", "Unauthenticated:1", "require_attempt_allowed:2",
)  # fmt: skip

HEADER = (
    "# Sentences of pages and mails. script/translate brings them up to date; only msgstr is written by hand."
)
_NOBODY = {"version": "1", "msgid_bugs_address": "-", "last_translator": "-", "language_team": "-"}


def extracted() -> Catalog:
    """Every sentence of the sources that people meet."""
    target = io.BytesIO()
    path = FOLDER / "messages.pot"
    keywords = [part for word in SPOKEN_BY for part in ("-k", word)]
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
    """Those that have a catalog."""
    return sorted(path.parents[1].name for path in FOLDER.glob("*/LC_MESSAGES/messages.po"))


def catalog(language: str) -> Catalog:
    """The language's catalog as it stands."""
    with _source(language).open("rb") as file:
        return read_po(file, locale=language)


def compiled(language: str) -> bytes:
    """What the language's ``.mo`` has to hold."""
    target = io.BytesIO()
    write_mo(target, catalog(language))
    return target.getvalue()


def left_to_do(language: str) -> list[str]:
    """Sentences that the language lacks, or of which somebody is not sure."""
    known = catalog(language)
    return [str(message.id) for message in extracted() if message.id and not _is_done(known.get(message.id))]


def bring_up_to_date(language: str) -> None:
    """The language's catalog has each sentence, sorted, and no other; its ``.mo`` is what it compiles to."""
    standing, fresh = catalog(language), extracted()
    renewed = Catalog(
        locale=language, project="Gatehouse", charset="utf-8", fuzzy=False, header_comment=HEADER, **_NOBODY
    )
    renewed.creation_date = renewed.revision_date = standing.creation_date
    for message in fresh:
        if message.id:
            known = standing.get(message.id)
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
