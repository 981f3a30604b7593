"""A valid request to each route for an organization that is being moved, or has moved: 503, and again later."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace

import pytest
from flask import Flask

from app.operations.maintenance import move
from tests.factories import Factory
from tests.support.applications import forget
from tests.support.request_world import ValidRequest
from tests.support.valid_requests import Requests

pytestmark = [pytest.mark.either, pytest.mark.slow]
PARTS = ("management", "portal", "account", "protocol")
# They name no organization or root, or have nothing of one.
OTHERS = re.compile(
    r"api\.(get_openapi|createOrganization|(get|update)InstanceLimits)|portal\.(instance|organization|new_organization|choose_organization|"
    r"test_email|home|theme).*|account\.(start_page|choose_organization|find_password_page)|device\.choose|discovery\.(root_.*|"
    r"protected_resource)|health\..*|security_txt\.show|static"
)


def without_slug(request: ValidRequest) -> ValidRequest | None:
    """Return the request to the endpoint of all organizations, which only its client or token leads to the one."""
    named = r"^/organizations/[^/]+/oauth/(authorize|token|introspect|revoke|par|userinfo|device_authorization|logout)"
    path = re.sub(rf"{named}(?=$|\?)", r"/oauth/\1", request.path)
    return None if path == request.path else replace(request, path=path)


def begin(app: Flask, organization_id: str, state: str) -> None:
    """Pause the organization, or let it move."""
    with app.app_context():
        until = move._pause(organization_id, 3600)
        if state == "moved":
            move._decide(organization_id, "b", until)
    forget(app)


@pytest.mark.parametrize("part", PARTS)
def test_moved_organization_is_unavailable_at_each_route(app: Flask, requests: Requests, part: str) -> None:
    sent = [one for one in getattr(requests, part)() if OTHERS.fullmatch(one.name.split()[0]) is None]
    sent += [short for one in sent if (short := without_slug(one)) is not None]
    assert len(sent) > 20
    wrong = []
    for state in ("paused", "moved"):
        begin(app, requests.organization.id, state)
        for request in sent:
            answer = request.send(app)
            answer.close()
            if answer.status_code != 503 or answer.headers.get("Retry-After") not in {"1", "2"}:
                wrong.append(
                    f"{answer.status_code} {state} {request.method} {request.name} {request.path[:60]}"
                )
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("state", ["paused", "moved"])
def test_other_organizations_of_a_browser_are_served_while_one_moves(
    app: Flask, make: Factory, state: str
) -> None:
    http, homes = app.test_client(), [make.organization("acme"), make.organization("globex")]
    for home in homes:
        make.sign_in(make.user(home, role="admin"), http)
    begin(app, homes[0].id, state)
    for path in ("/login", "/portal", "/device"):
        page = http.get(path, follow_redirects=True)
        assert (page.status_code, "globex" in page.text, "/acme" in page.text) == (200, True, False), path
    assert http.get("/portal/globex").status_code == 200
    assert http.get("/portal/acme").status_code == 503
    # The proxy knows where these paths are served.
    for path in ("login", "device"):
        found = http.get(f"/{path}?organization=acme")
        assert (found.status_code, found.headers["Location"]) == (303, f"/organizations/acme/{path}")


@pytest.mark.parametrize("state", ["paused", "moved"])
def test_leaked_token_of_a_moved_client_with_a_metadata_document_is_reported_again(
    app: Flask, make: Factory, state: str
) -> None:
    """The client's id does not name its organization, only the token does."""
    home = make.organization("acme")
    claims = {"client_id": "https://app.example/client", "organization_id": home.slug}
    header, payload = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
        for part in ({"alg": "ES256", "typ": "at+jwt"}, claims)
    )
    body = [{"token": f"{header}.{payload}.AAAA"}]
    assert app.test_client().post("/leak-reports", json=body).status_code == 202
    begin(app, home.id, state)
    assert app.test_client().post("/leak-reports", json=body).status_code == 503
