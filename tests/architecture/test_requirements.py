"""Each line of the requirements has a test that names it, in its docstring or in its name.

Lines of security.md go by their ids. Lines of protocol.md have none; a test names them by ``protocol:`` and the names
below, several of them parted by semicolons, up to the next full stop.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT.parent / "shared" / "requirements" / "security.md"

# How many lines each group of security.md has.
GROUPS = {
    "RU": 7,
    "OR": 4,
    "PK": 4,
    "CD": 8,
    "MX": 3,
    "ST": 2,
    "IN": 3,
    "CO": 5,
    "CJ": 1,
    "CF": 4,
    "RF": 8,
    "TK": 6,
    "CA": 7,
    "IT": 3,
    "RV": 8,
    "OI": 5,
    "DC": 6,
    "DV": 1,
    "CC": 1,
    "CR": 4,
    "SF": 4,
    "SS": 8,
    "MF": 6,
    "PW": 6,
    "LK": 2,
    "RP": 3,
    "EN": 2,
    "KY": 6,
    "AU": 4,
    "TN": 16,
}
# Lines of groups that are not whole yet.
PARTLY = {"RL-2"}
SECURITY = {f"{group}-{number}" for group, most in GROUPS.items() for number in range(1, most + 1)} | PARTLY
_KNOWN = "|".join([*GROUPS, *{line.partition("-")[0] for line in PARTLY}])
PROTOCOL = {
    "authorization code with PKCE",
    "client credentials",
    "refresh token",
    "device authorization",
    "token exchange",
    "client authentication",
    "pushed authorization requests",
    "request objects",
    "unsigned request objects",
    "DPoP",
    "resource indicators",
    "JWT access tokens",
    "introspection",
    "revocation",
    "metadata",
    "protected resource metadata",
    "dynamic registration",
    "idle clients end",
    "client ID metadata documents",
    "issuer in the response",
    "step-up",
    "form_post",
    "third-party initiated login",
    "one issuer",
    "discovery from what the server can do",
    "discovery in registered fields",
    "signing algorithms",
    "published keys",
    "retired keys stay published",
    "authorization endpoint, GET and POST",
    "authorization endpoint, page for a wrong client or redirect_uri",
    "authorization endpoint, errors go back",
    "authorization endpoint, error_description",
    "authorization endpoint, own query of the redirect URI",
    "authorization endpoint, unknown parameters",
    "authorization endpoint, hints never fail",
    "authorization endpoint, prompt=none",
    "authorization endpoint, prompt=login and max_age",
    "authorization endpoint, slow consent",
    "authorization endpoint, prompt=consent",
    "authorization endpoint, prompt=select_account",
    "authorization endpoint, prompt=create",
    "authorization endpoint, id_token_hint",
    "authorization endpoint, one record for all forms",
    "authorization endpoint, claims",
    "authorization endpoint, codes",
    "token endpoint, form body alone",
    "token endpoint, no-store",
    "token endpoint, scope when it differs",
    "token endpoint, invalid_client",
    "token endpoint, Basic is form-decoded",
    "token endpoint, code_verifier and other clients",
    "token endpoint, bound confidential clients do not rotate",
    "token endpoint, client assertions",
    "token endpoint, DPoP refusals",
    "token endpoint, DPoP acceptances",
    "ID token, nonce",
    "ID token, auth_time",
    "ID token, acr",
    "ID token, amr and sid",
    "ID token, at_hash",
    "ID token, sub",
    "ID token, lifetime",
    "ID token, nothing unasked",
    "userinfo, methods",
    "userinfo, signed",
    "userinfo, standard claims",
    "JWT access tokens and their rows",
    "registration, keys without kid",
    "registration, missing scope",
    "registration, secret and management",
    "registration, errors",
    "registration, logo, policy and terms",
    "logout, the sign-in ends whatever the redirect",
    "logout, redirect",
    "logout, confirmation",
    "logout, GET and POST and never a 500",
    "back-channel logout, token",
    "back-channel logout, delivery",
    "pages, distinct URLs",
    "pages, plain forms without scripts",
    "pages, stable ids",
    "outgoing requests, one module",
    "outgoing requests, pinned and bounded",
    "outgoing requests, outside of transactions",
    "outgoing requests, cached",
    "outgoing requests, closed networks",
}
_ID = re.compile(rf"\b({_KNOWN})-(\d+)\b")
_ID_OF_A_NAME = re.compile(rf"_({_KNOWN.lower()})(\d+)(?=_|$)")
_PROTOCOL = re.compile(r"\bprotocol: ([^.]+)\.")


def named_in(text: str) -> set[str]:
    """The requirements that a docstring, or the name of a test, names."""
    ids = _ID.findall(text) + _ID_OF_A_NAME.findall(text)
    found = {f"{group.upper()}-{number}" for group, number in ids}
    for names in _PROTOCOL.findall(text):
        found |= {" ".join(name.split()) for name in names.split(";")}
    return found


def texts(path: Path) -> Iterator[tuple[str, str]]:
    """(where, text) of the module's docstring, and of each test's docstring and name."""
    tree = ast.parse(path.read_text())
    where = path.relative_to(ROOT).as_posix()
    yield where, ast.get_docstring(tree) or ""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield f"{where}::{node.name}", ast.get_docstring(node) or ""
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield f"{where}::{node.name}", ast.get_docstring(node) or ""
            yield f"{where}::{node.name}", node.name


@pytest.fixture(scope="module")
def named() -> dict[str, set[str]]:
    """By requirement: the tests, or the files of tests, that name it."""
    made: dict[str, set[str]] = defaultdict(set)
    for path in (ROOT / "tests").rglob("test_*.py"):
        if path == Path(__file__):
            continue
        for where, text in texts(path):
            for name in named_in(text):
                made[name].add(where)
    return made


def test_each_line_has_a_test(named: dict[str, set[str]]) -> None:
    assert (SECURITY | PROTOCOL) - named.keys() == set()


def test_no_test_names_a_line_that_is_none(named: dict[str, set[str]]) -> None:
    """A slip of the pen would prove nothing."""
    strange = named.keys() - SECURITY - PROTOCOL
    assert {name: sorted(named[name]) for name in strange} == {}


def test_the_groups_are_as_long_as_they_are_written() -> None:
    """Where the requirements stand beside the clone; without them the list above is all there is."""
    if not REQUIREMENTS.exists():
        return
    written: dict[str, int] = {}
    for group, number in re.findall(r"^([A-Z]{2})-(\d+) ", REQUIREMENTS.read_text(), re.MULTILINE):
        if group in GROUPS:
            written[group] = max(written.get(group, 0), int(number))
    assert written == GROUPS


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("CD-4, CD-6: one of them.", {"CD-4", "CD-6"}),
        ("test_dv1_one_code", {"DV-1"}),
        ("test_made_in_3_days_of_es256", set()),
        ("SCD-4 and CD-44 and CDs", {"CD-44"}),
        (
            "MX-3. protocol: ID token, nonce; ID token,\n    sub. More.",
            {"MX-3", "ID token, nonce", "ID token, sub"},
        ),
        ("As the protocol has it.", set()),
    ],
)
def test_names_are_read_as_they_are_written(text: str, names: set[str]) -> None:
    assert named_in(text) == names
