"""Email addresses: validation, and the canonical form in which two spellings of an address are equal."""

from __future__ import annotations

import re
import unicodedata

import idna

from app.rules.fields import FieldProblem, has_invisible_character

MAX_EMAIL_BYTES = 254
"""RFC 5321 section 4.5.3.1.3, less the angle brackets."""
MAX_LOCAL_PART_BYTES = 64
MAX_TYPED_LENGTH = 320
"""In characters. Some notations of an address are longer than its canonical form; both are stored."""

# RFC 5321 `Dot-string` with the characters of RFC 6531; quoted local parts are not used in practice.
_LOCAL_PART = re.compile(r"[^\s.\"(),:;<>@\[\\\]]+(?:\.[^\s.\"(),:;<>@\[\\\]]+)*")
_WORD = re.compile(r"[^\W\d_]+")
_ALIKE = {"LATIN", "GREEK", "CYRILLIC"}
# Cyrillic and Greek letters that are drawn like a Latin one, as a small letter or a capital.
_LIKE_LATIN = frozenset("авеһіјкмнорстухѕԁԛԝӏү" + "αβγεζηικμνορτυχωϲϳ")
_JOINERS = {0x200C: None, 0x200D: None}


def canonical_email(text: str) -> str | None:
    """Return the stored, comparable form of an address, or None if it cannot be one.

    Unicode compatibility forms and letter case are levelled and the domain is written in ASCII (IDNA 2008
    with the UTS 46 mapping), because mail systems do not tell these apart. Accents and ``ß`` stay: to a mail
    system ``straße@…`` and ``strasse@…`` are two mailboxes, so they are two accounts (TK-4). Accounts may have had an
    address for longer than a rule against it exists: what may be set now is up to ``is_email``.
    """
    typed = text.strip()
    # UTS 46 would remove invisible characters from the domain, but pages show the address as it was typed. It keeps the
    # joiners of Persian and Indian scripts.
    if len(typed) > MAX_TYPED_LENGTH or _has_hidden_character(typed.translate(_JOINERS)):
        return None
    local_part, at, domain = typed.rpartition("@")
    local_part = _level(local_part)
    if not at or len(local_part.encode(errors="replace")) > MAX_LOCAL_PART_BYTES:
        return None
    if _LOCAL_PART.fullmatch(local_part) is None or _has_hidden_character(local_part):
        return None
    ascii_domain = _ascii_domain(domain)
    if ascii_domain is None:
        return None
    address = f"{local_part}@{ascii_domain}"
    return address if len(address.encode()) <= MAX_EMAIL_BYTES else None


def is_email(text: str) -> bool:
    """Return whether the text is an address that may be set.

    A word may not mix Latin, Greek and Cyrillic letters, which look alike: browsers show such domains in their encoded
    form. Beside a Latin word, no other may consist of letters that look like Latin ones only, such as the initial of a
    name.
    """
    if canonical_email(text) is None:
        return False
    local_part, _, domain = text.strip().rpartition("@")
    # Separately for tags and labels: ``иван+shop`` and ``росса.com`` are common.
    return not any(map(_mixes_scripts, (*_level(local_part).split("+"), *domain.split("."))))


def _level(text: str) -> str:
    # The final sigma is the same letter as the other: lower() keeps them apart; casefold() would level ß too.
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower().replace("ς", "σ"))


def _has_hidden_character(text: str) -> bool:
    # Each by itself, so that no selector or joiner has a neighbour that allows it: two forms would be two accounts.
    return any(has_invisible_character(char) or unicodedata.category(char) == "Zs" for char in text)


def _mixes_scripts(text: str) -> bool:
    if text.isascii():
        return False
    words = _WORD.findall(unicodedata.normalize("NFKC", text).lower())
    scripts = [{unicodedata.name(char, "").split(" ")[0] for char in word} & _ALIKE for word in words]
    if any(len(mixed) > 1 for mixed in scripts):
        return True
    return {"LATIN"} in scripts and any(_LIKE_LATIN.issuperset(word) for word in words)


def _ascii_domain(domain: str) -> str | None:
    try:
        encoded = idna.encode(domain, uts46=True, std3_rules=True).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        return None
    labels = encoded.split(".")
    # A domain whose last label is a number is an IP address in disguise; a trailing dot is rejected too.
    return encoded if all(labels) and not labels[-1].isdigit() else None


def email_problem(value: str) -> FieldProblem | None:
    """Return what is wrong with an email address that is to be set, or None."""
    if is_email(value):
        return None
    return FieldProblem("invalid_email", "Enter a valid email address.")
