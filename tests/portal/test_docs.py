"""Docs in the portal: guides, causes of failed requests, the API reference, and their search."""

from __future__ import annotations

import html
import re
import subprocess
from typing import Any

import pytest

from app.portal.docs import GUIDES, search_docs
from app.rules.audit.failed_requests import CAUSES
from tests.support.cases import each
from tests.support.servers import ROOT

PATHS = {name: path for group in GUIDES.values() for name, path in group.items()}
MAX_BYTES = 50_000


def plain(text: str) -> str:
    """Return the text of HTML without the spaces that tags stand for."""
    return html.unescape(re.sub(r"<[^>]+>", "", text))


@each("guide", PATHS)
def test_guide_shows_the_values_of_the_organization(ada: Any, acme: Any, guide: str) -> None:
    answer = ada.get(f"/docs/{guide}")
    assert answer.status_code == 200 and len(answer.data) < MAX_BYTES
    source = (ROOT / "docs" / PATHS[guide]).read_text()
    assert "id.example.com" not in answer.text
    if "https://id.example.com/organizations/acme" in source:
        assert acme.issuer in plain(answer.text)
    for link in re.findall(rf'href="({ada.base}/docs[^"#]*)(?:#[^"]*)?"', answer.text):
        assert ada.get(link).status_code == 200, link


def test_every_link_of_a_guide_leads_to_a_file_of_the_repository_and_an_existing_anchor(ada: Any) -> None:
    for path in PATHS.values():
        file = ROOT / "docs" / path
        for target in re.findall(r"\]\(([^)]+)\)", file.read_text()):
            name, _, anchor = target.partition("#")
            if "://" in target:
                continue
            linked = (file.parent / name).resolve() if name else file
            assert linked.exists(), f"{path}: {target}"
            shown = next((one for one, where in PATHS.items() if ROOT / "docs" / where == linked), None)
            if anchor and shown:
                assert f'id="{anchor}"' in ada.get(f"/docs/{shown}").text, f"{path}: {target}"


def test_guide_of_another_organization_has_its_values(portal_user: Any, make: Any) -> None:
    first = portal_user(make.organization(), "developer")
    second = portal_user(make.organization("orchard"), "developer")
    for user in (first, second):
        user.get("/docs/first-client")
        assert f"/organizations/{user.slug}" in user.text
    assert first.slug not in second.text
    for guide, name in (("rotate-a-secret", "organization_id="), ("import", "--organization ")):
        second.get(f"/docs/{guide}")
        assert f"{name}orchard" in plain(second.text), guide
        assert f"{name}acme" not in plain(second.text), guide


def test_errors_have_the_texts_of_the_failed_requests(ada: Any) -> None:
    answer = ada.get("/docs/errors")
    assert len(answer.data) < MAX_BYTES
    for cause, explanation in CAUSES.items():
        assert f'id="{cause}"' in answer.text
        assert explanation.what in ada.text and explanation.fix in ada.text
    ada.get("/docs/errors?q=code+verifier")
    assert "verifier_mismatch" in ada.text and "dpop_missing" not in ada.text


@pytest.mark.slow
def test_reference_shows_every_operation_with_valid_curl_and_without_unfilled_values(
    ada: Any, acme: Any, app: Any
) -> None:
    found = set()
    page = ada.get("/docs/api").text
    for tag in re.findall(r'href="[^"]*/docs/api\?tag=([^"]+)"', page):
        listed = ada.get(f"/docs/api?tag={tag}")
        assert len(listed.data) < MAX_BYTES
        found |= set(re.findall(r'/docs/api/(\w+)"', listed.text))
    paths = app.test_client().get("/openapi.json").get_json()["paths"]
    known = {
        node["operationId"]
        for path, item in paths.items()
        for method, node in item.items()
        if method in {"get", "post", "put", "patch", "delete"} and f"/organizations/{{id}}{path}" not in paths
    }
    assert known <= found
    public = {
        node["operationId"]
        for item in paths.values()
        for node in item.values()
        if isinstance(node, dict) and node.get("security", [{"bearer": []}])[0] == {}
    }
    assert "organizationReadRegistration" not in public
    script, sizes = "", {}
    for operation in sorted(found):
        answer = ada.get(f"/docs/api/{operation}")
        sizes[operation] = len(answer.data)
        assert answer.status_code == 200
        [code] = re.findall(r'<pre tabindex="0"><code>(.*?)</code></pre>', answer.text, re.DOTALL)
        assert not re.search(r"/\{\w+\}", code), code
        script += plain(code) + "\n"
        # One way to authenticate, also for registrations that clients manage themselves.
        credentials = plain(code).count("Authorization: Bearer $") + plain(code).count("-u ")
        assert credentials == (operation not in public), code
        assert operation != "updateResource" or '"identifier"' not in plain(code), "It can't be changed"
        assert acme.base_url in answer.text
    assert {operation for operation, size in sizes.items() if size >= MAX_BYTES} == set()
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)


def test_operation_shows_parameters_request_and_response(ada: Any, acme: Any) -> None:
    ada.get("/docs/api/rotateCredential")
    assert (
        "expires_in_seconds" in ada.text
        and "Idempotency-Key" in ada.text
        and "data.client_secret" in ada.text
    )
    assert f"{acme.base_url}/clients/$CLIENT_ID/credentials/rotation" in plain(ada.page.text)
    ada.get("/docs/api/organizationIssueToken")
    assert f"{acme.issuer}/oauth/token" in plain(ada.page.text)


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("rotate secret", "/docs/rotate-a-secret"),
        ("MCP", "/docs/mcp-server"),
        ("verifier mismatch", "/docs/errors#verifier_mismatch"),
        ("POST /clients", "/docs/api/registerClient"),
    ],
)
def test_search_finds_guides_causes_and_operations(ada: Any, app: Any, query: str, path: str) -> None:
    with app.app_context():
        assert path in {found.path for found in search_docs(query)}
        assert search_docs("") == [] and search_docs("no such thing at all") == []
    ada.get(f"/docs?q={query}")
    assert f'href="{ada.base}{path}"' in ada.page.text


def test_docs_are_for_everybody_with_a_role(acme: Any, portal_user: Any) -> None:
    for role in ("developer", "auditor"):
        assert portal_user(acme, role).get("/docs").status_code == 200
    member = portal_user(acme, "member")
    for path in ("/docs", "/docs/errors", "/docs/api", "/docs/api/getMe", "/docs/revoke"):
        assert member.get(path).status_code == 403
