"""Client logos: fetched once, re-encoded, and served from our own origin (PO-2, SF-1)."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import pytest
from PIL import Image
from sqlalchemy import select

from app.extensions import db
from app.models.audit import OutboxMessage
from app.models.client import ClientLogo
from app.operations.clients import logos
from app.operations.clients.clients import delete_client, update_client
from app.operations.store import outbox
from tests.oauth.conftest import Flow, change_rows, clock_ago
from tests.support.back_channel import serve_at
from tests.support.https_server import HttpsServer, Request, Response, https_server, reaching

ELSEWHERE = "https://logos.example/logo.png"


class Shop:
    """The server of the logo. Tests choose its response."""

    def __init__(self) -> None:
        self.answer = Response(200, picture((255, 0, 0)), {"content-type": "image/png"})
        self.server: HttpsServer

    def __call__(self, request: Request) -> Response:
        return self.answer

    @property
    def uri(self) -> str:
        return f"{self.server.base_url}/logo.png"


def picture(colour: tuple[int, int, int]) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (512, 512), colour).save(out, "PNG")
    return out.getvalue()


@pytest.fixture
def shop(asking: Flow, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A client with a pending logo at a URL that the operator allowed."""
    monkeypatch.setattr(outbox, "_deliveries", {})
    logos.register()
    made = Shop()
    with https_server(made) as server:
        made.server = server
        monkeypatch.setitem(asking.app.config, "GATEHOUSE", reaching(asking.app.config["GATEHOUSE"], server))
        name_logo(asking, ELSEWHERE)
        serve_at(asking.app, asking.client, logo_uri=made.uri)
        yield made


def name_logo(asking: Flow, uri: str | None) -> None:
    with asking.app.app_context():
        update_client(asking.make.actor(asking.organization), asking.client.client_id, {"logo_uri": uri})


def fetch_due(asking: Flow) -> int:
    attempts = 0
    with asking.app.app_context():
        while (message := outbox.claim_due_message(busy_receivers=(), full_organizations=())) is not None:
            outbox.deliver(message)
            attempts += 1
    return attempts


def outcomes(asking: Flow) -> list[str | None]:
    with asking.app.app_context():
        return list(db.session.scalars(select(OutboxMessage.outcome).order_by(OutboxMessage.id)))


def kept(asking: Flow) -> int:
    with asking.app.app_context():
        return len(db.session.scalars(select(ClientLogo.id)).all())


def shown(page: str) -> str | None:
    """Return the logo's path on the page, or None if the initials are shown."""
    found = re.search(r'<(img|span) class="[^"]*" id="client-logo"(?: src="([^"]*)")?', page)
    assert found is not None, page
    return found[2]


def sign_in_text(asking: Flow) -> str:
    return (
        asking.app.test_client()
        .get("/oauth/authorize", query_string=asking.parameters(), follow_redirects=True)
        .text
    )


def test_consent_and_sign_in_show_the_logo_from_our_origin(asking: Flow, shop: Shop) -> None:
    """PO-2, CO-1: viewing the page sends no request to the client's server."""
    assert shop.server.requests == [], "nothing is fetched inside the change"
    assert shown(asking.consent().text) is None, "the initials are shown until it is downloaded"
    assert fetch_due(asking) == 1
    for text in (asking.consent().text, sign_in_text(asking)):
        path = shown(text)
        assert path is not None and path.startswith("/logos/cli_")
        assert shop.uri not in text
    answer = asking.http.get(path)
    assert (answer.status_code, answer.mimetype) == (200, "image/png")
    assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert "Set-Cookie" not in answer.headers
    with Image.open(io.BytesIO(answer.data)) as logo:
        assert (logo.format, logo.size) == ("PNG", (256, 256))
    assert answer.data != shop.answer.body
    asking.consent()
    assert len(shop.server.requests) == 1, "fetched once"


def test_new_logo_replaces_the_old_one(asking: Flow, shop: Shop) -> None:
    fetch_due(asking)
    first = shown(asking.consent().text)
    name_logo(asking, ELSEWHERE)
    assert shown(asking.consent().text) is None, "what was there is no longer what the client says"
    shop.answer = Response(200, picture((0, 0, 255)), {"content-type": "image/png"})
    serve_at(asking.app, asking.client, logo_uri=f"{shop.uri}?2")
    fetch_due(asking)
    second = shown(asking.consent().text)
    assert second not in (None, first)
    assert asking.http.get(first).status_code == 404


def test_client_without_a_logo_shows_initials(asking: Flow, shop: Shop) -> None:
    fetch_due(asking)
    name_logo(asking, None)
    assert (shown(asking.consent().text), kept(asking)) == (None, 0)


def test_late_message_fetches_nothing(asking: Flow, shop: Shop) -> None:
    serve_at(asking.app, asking.client, logo_uri=None)
    assert (fetch_due(asking), shop.server.requests, outcomes(asking)) == (1, [], [outbox.REFUSED])


def test_logo_is_deleted_with_its_client(asking: Flow, shop: Shop) -> None:
    fetch_due(asking)
    path = shown(asking.consent().text)
    with asking.app.app_context():
        delete_client(asking.make.actor(asking.organization), asking.client.client_id)
    assert asking.http.get(path).status_code == 404


@pytest.mark.parametrize(
    "answer",
    [
        Response(404),
        Response(302, headers={"location": "https://elsewhere.example/logo.png"}),
        Response(200, b"<svg xmlns='http://www.w3.org/2000/svg'/>", {"content-type": "image/svg+xml"}),
        Response(200, b"<!doctype html>", {"content-type": "image/png"}),
    ],
    ids=["missing", "redirect", "svg", "page"],
)
def test_invalid_image_is_not_fetched_again(asking: Flow, shop: Shop, answer: Response) -> None:
    """PO-2: no SVG; SF-2: no redirect."""
    shop.answer = answer
    assert fetch_due(asking) == 1
    assert (outcomes(asking), kept(asking)) == ([outbox.REFUSED], 0)
    assert shown(asking.consent().text) is None


@pytest.mark.parametrize(
    "answer", [Response(503), Response(200, b"\0" * (256 * 1024 + 1))], ids=["busy", "too long"]
)
def test_failing_server_is_retried_a_few_times(asking: Flow, shop: Shop, answer: Response) -> None:
    shop.answer = answer
    for _ in range(logos.MAX_ATTEMPTS):
        assert fetch_due(asking) == 1
        change_rows(asking, OutboxMessage, available_at=clock_ago(asking, 1))
    assert (outcomes(asking), fetch_due(asking)) == ([outbox.REFUSED], 0)


def test_private_network_logo_is_not_fetched(asking: Flow, shop: Shop) -> None:
    """SF-1."""
    serve_at(asking.app, asking.client, logo_uri="https://127.0.0.1/logo.png")
    assert (fetch_due(asking), outcomes(asking), kept(asking)) == (1, [outbox.REFUSED], 0)


def test_failing_logo_does_not_delay_other_deliveries(asking: Flow, shop: Shop) -> None:
    shop.answer = Response(503)
    fetch_due(asking)
    with asking.app.app_context():
        receivers = set(db.session.scalars(select(OutboxMessage.receiver)))
    assert asking.client.client_id not in receivers


@pytest.mark.parametrize("name", ["0" * 64, "0" * 63, "g" * 64, "0" * 62 + "é1"])
def test_missing_logo_is_not_found(asking: Flow, shop: Shop, name: str) -> None:
    fetch_due(asking)
    assert asking.http.get(f"/logos/{asking.client.client_id}/{name}.png").status_code == 404
    assert asking.http.get(f"/logos/nobody/{name}.png").status_code == 404


def test_logo_of_another_client_is_not_found(asking: Flow, shop: Shop) -> None:
    """TN-1."""
    fetch_due(asking)
    path = shown(asking.consent().text) or ""
    other = asking.other_client(name="Other")
    assert asking.http.get(path.replace(asking.client.client_id, other.client.client_id)).status_code == 404
