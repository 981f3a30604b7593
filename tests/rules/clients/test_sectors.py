"""Sectors of pairwise clients: a common host, or a document that lists every redirect URI."""

from __future__ import annotations

from app.rules.clients.redirect_uris import find_sector, sector_document_problem, sector_problem
from tests.support.cases import each

A, B = "https://a.example/cb", "https://b.example/cb"


@each(
    ("sector", "document"),
    [
        ("a.example", {"redirect_uris": [A]}),
        ("a.example", {"redirect_uris": [A, "https://a.example:8443/other"]}),
        (None, {"redirect_uris": [A, B]}),
        ("sector.example", {"redirect_uris": [A, B], "sector_identifier_uri": "https://sector.example/uris"}),
        ("127.0.0.1", {"redirect_uris": ["http://127.0.0.1:1/cb", "http://127.0.0.1:2/cb"]}),
        (None, {"redirect_uris": ["com.example.app:/cb"]}),
        (None, {"redirect_uris": [A, "com.example.app:/cb"]}),
        (None, {"redirect_uris": []}),
        (None, {}),
    ],
)
def test_sector_host(sector: str | None, document: dict) -> None:
    """Core 8.1: the host component."""
    assert find_sector(document) == sector
    assert (sector_problem(document | {"subject_type": "pairwise"}) is None) is (sector is not None)
    assert sector_problem(document | {"subject_type": "public"}) is None


@each(
    ("code", "listed"),
    [
        (None, [A, B]),
        (None, [B, A, "x"]),
        ("not_listed", [A]),
        ("not_listed", []),
        ("bad_document", {"uris": [A, B]}),
        ("bad_document", "x"),
    ],
)
def test_document_must_list_every_redirect_uri(code: str | None, listed: object) -> None:
    """Core 8.1."""
    problem = sector_document_problem(listed, {"redirect_uris": [A, B]})
    assert (problem.code if problem else None) == code
