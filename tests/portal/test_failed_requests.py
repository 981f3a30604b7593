"""The log of failed requests in the portal and in the API."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.rules.audit.failed_requests import closest_difference
from tests.factories import Factory, MadeClient, MadeUser, basic_header, bearer_header
from tests.support.cut_connections import cuttable

REGISTERED = "https://orchard.example/callback"


class Log:
    """An organization with one client, and a user in the portal."""

    def __init__(self, app: Flask, http: FlaskClient, make: Factory, role: str = "admin") -> None:
        self.app, self.http, self.make = app, http, make
        self.organization = make.organization(name="Acme")
        self.user: MadeUser = make.user(self.organization, role=role)
        self.client: MadeClient = make.client(self.organization, by=self._maker(role))
        make.sign_in(self.user, http)

    def _maker(self, role: str) -> Any:
        return self.make.actor(self.organization, user=self.user) if role == "developer" else None

    def authorize(self, redirect_uri: str, client: MadeClient | None = None) -> Any:
        """Return the response to an authorization request."""
        named = (client or self.client).client_id
        query = {"client_id": named, "redirect_uri": redirect_uri, "response_type": "code"}
        answer = self.http.get("/oauth/authorize", query_string=query)
        self.written()
        return answer

    def written(self) -> None:
        """Write pending entries to the log."""
        with self.app.app_context():
            self.app.extensions["failed_requests"].write_waiting()

    def page(self, path: str = "/logs") -> Any:
        """Return a page of the portal."""
        return self.http.get(f"/portal/{self.organization.slug}{path}")

    def entries(self, **query: str) -> list[dict[str, Any]]:
        """Return the log from the API."""
        token = self.make.bearer(self.organization, "logs:read")
        answer = self.http.get("/logs/failed-requests", query_string=query, headers=bearer_header(token))
        assert answer.status_code == 200, answer.text
        data: list[dict[str, Any]] = answer.get_json()["data"]
        return data


@pytest.fixture
def log(app: Flask, http: FlaskClient, make: Factory) -> Log:
    return Log(app, http, make)


def forms_of(text: str) -> list[Any]:
    from tests.support.form_browser import Forms

    reader = Forms()
    reader.feed(text)
    return reader.forms


def test_error_page_links_developer_to_log_entry(log: Log) -> None:
    page = log.authorize(REGISTERED + "/")
    assert 'id="inspect"' in page.text and page.headers["X-Request-Id"] in page.text
    link = page.text.split('id="inspect" href="')[1].split('"')[0].replace("&amp;", "&")
    shown = log.http.get(link, follow_redirects=True)
    assert shown.status_code == 200 and "not registered" in shown.text


def test_error_page_has_no_link_without_sign_in(log: Log) -> None:
    page = log.app.test_client().get(
        "/oauth/authorize",
        query_string={"client_id": log.client.client_id, "redirect_uri": "https://x.example"},
    )
    assert page.status_code == 400 and 'id="inspect"' not in page.text


def test_error_page_has_no_link_for_member(log: Log) -> None:
    member = log.app.test_client()
    log.make.sign_in(log.make.user(log.organization), member)
    query = {"client_id": log.client.client_id, "redirect_uri": "https://x.example"}
    page = member.get("/oauth/authorize", query_string=query)
    assert page.status_code == 400 and 'id="inspect"' not in page.text


def test_entry_of_code_without_pkce_and_nonce_links_the_setting(log: Log) -> None:
    log.authorize(REGISTERED)
    [entry] = log.entries()
    log.make.sign_in(log.make.user(log.organization, role="auditor"), log.http)
    page = log.page(f"/logs/{entry['id']}")
    link = page.text.split('id="setting" href="')[1].split('"')[0]
    path, _, field = link.partition("#")
    assert f'id="{field}"' in log.http.get(path).text and "View setting" in page.text


def test_received_markup_is_escaped(log: Log) -> None:
    log.authorize("https://x.example/<script>alert(1)</script>")
    [entry] = log.entries()
    page = log.page(f"/logs/{entry['id']}")
    assert "<script>alert" not in page.text and "&lt;script&gt;" in page.text


def test_curl_command_has_no_secret_and_quotes_values(log: Log) -> None:
    log.http.post(
        "/oauth/token",
        data={
            "grant_type": "authorization_code",
            "code": "canary",
            "redirect_uri": "https://x.example/'; rm -rf",
        },
        headers=basic_header(log.client.client_id, log.client.secret),
    )
    log.written()
    [entry] = log.entries()
    page = log.page(f"/logs/{entry['id']}")
    assert "canary" not in page.text and "code=$CODE" in page.text
    assert "&#39;&#34;&#39;&#34;&#39;; rm -rf" in page.text


def test_same_causes_are_counted(log: Log) -> None:
    for _ in range(3):
        log.authorize(REGISTERED + "/")
    page = log.page(f"/logs/{log.entries()[0]['id']}")
    assert "3 times since" in page.text


def test_filters_limit_the_list(log: Log) -> None:
    log.authorize(REGISTERED + "/")
    log.http.post("/oauth/token", data={"x": "y"}, headers=basic_header(log.client.client_id, "x"))
    log.written()
    assert [entry["cause"] for entry in log.entries()] == ["parameter_missing", "redirect_uri_not_registered"]
    for query, count in (
        ({"cause": "parameter_missing"}, 1),
        ({"endpoint": "authorize"}, 1),
        ({"client_id": log.client.client_id}, 2),
        ({"client_id": "cli_00000000_00000000000000000000000000"}, 0),
        ({"request_id": log.entries()[0]["request_id"]}, 1),
        ({"since": "2099-01-01T00:00:00Z"}, 0),
        ({"since": "2020-01-01T00:00:00Z"}, 2),
    ):
        assert len(log.entries(**query)) == count, query


def test_invalid_filter_is_rejected(log: Log) -> None:
    token = log.make.bearer(log.organization, "logs:read")
    for query in ({"cause": "made_up"}, {"since": "yesterday"}, {"x": "1"}):
        answer = log.http.get("/logs/failed-requests", query_string=query, headers=bearer_header(token))
        assert answer.status_code == 400, query


def test_list_is_paged(log: Log) -> None:
    for _ in range(3):
        log.authorize(REGISTERED + "/")
    token = bearer_header(log.make.bearer(log.organization, "logs:read"))
    seen: list[str] = []
    query: dict[str, str] = {"limit": "1"}
    while True:
        body = log.http.get("/logs/failed-requests", query_string=query, headers=token).get_json()
        seen += [entry["id"] for entry in body["data"]]
        if body["meta"]["next_cursor"] is None:
            break
        query["cursor"] = body["meta"]["next_cursor"]
    assert len(seen) == len(set(seen)) == 3 and seen == sorted(seen, reverse=True)


def test_developer_sees_only_own_clients(app: Flask, http: FlaskClient, make: Factory) -> None:
    """TN-1: ``logs:read:own``."""
    log = Log(app, http, make, role="developer")
    others = make.client(log.organization, name="Others")
    log.authorize(REGISTERED + "/")
    log.authorize("https://elsewhere.example", others)
    page = log.page()
    assert "Orchard" in page.text and "Others" not in page.text
    hidden = next(entry for entry in log.entries() if entry["client_name"] == "Others")
    assert log.page(f"/logs/{hidden['id']}").status_code == 404
    assert log.page(f"/clients/{others.client_id}/logs").status_code in {403, 404}
    own = log.page(f"/clients/{log.client.client_id}/logs")
    assert own.status_code == 200 and "not registered" in own.text


def test_api_entry_counts_similar_requests(log: Log) -> None:
    log.authorize(REGISTERED + "/")
    [entry] = log.entries()
    token = log.make.bearer(log.organization, "logs:read")
    found = log.http.get(f"/logs/failed-requests/{entry['id']}", headers=bearer_header(token)).get_json()[
        "data"
    ]
    assert found["similar_requests"] == 1 and found["similar_since"] == found["occurred_at"]
    assert found["expected"] == [REGISTERED] and found["received"] == REGISTERED + "/"


def test_difference_is_located() -> None:
    found = closest_difference("https://a.example/cb/", ["https://b.example/", "https://a.example/cb"])
    assert found is not None
    assert (found.closest, found.before, found.received, found.after) == (
        "https://a.example/cb", "https://a.example/cb", "/", "",
    )  # fmt: skip
    swapped = closest_difference("http://a.example", ["https://a.example"])
    assert swapped is not None and swapped.message == "“s” is missing."
    assert closest_difference("x", []) is None


def test_causes_are_grouped_with_counts_and_clients(log: Log) -> None:
    other = log.make.client(log.organization, name="Others")
    log.authorize("https://elsewhere.example/callback", other)
    for _ in range(2):
        log.authorize(REGISTERED + "/")
    log.http.post("/oauth/token", data={"x": "y"}, headers=basic_header(log.client.client_id, "x"))
    log.written()
    page = log.page().text
    assert page.count('<tr class="row-link">') == 2 and ">3</a>" in page and "Others" in page
    assert 'class="chart bars"' in page and "Fix available" in page
    only = log.page(f"/logs?cause=parameter_missing&client={log.client.client_id}").text
    assert only.count('<tr class="row-link">') == 1 and "Remove filter" in only
    assert "Others" not in log.page(f"/logs?client={log.client.client_id}").text
    assert log.page("/logs?cause=made_up&client=cli_x&period=century&outcome=maybe").status_code == 200


def test_error_page_links_developers_to_their_own_clients_only(
    app: Flask, http: FlaskClient, make: Factory
) -> None:
    """TN-1: ``logs:read:own``."""
    log = Log(app, http, make, role="developer")
    assert 'id="inspect"' in log.authorize(REGISTERED + "/").text
    others = make.client(log.organization, name="Others")
    assert 'id="inspect"' not in log.authorize(REGISTERED + "/", others).text


def test_error_page_of_an_unreviewed_app_links_administrators(log: Log) -> None:
    settings = {"oauth": {"dynamic_registration": {"mode": "open"}}}
    organization = log.make.organization(settings=settings)
    body = {"redirect_uris": [REGISTERED], "client_name": "Field Notes", "scope": "openid"}
    sent = log.app.test_client().post(f"/organizations/{organization.slug}/oauth/register", json=body)
    query = {"client_id": sent.get_json()["client_id"], "redirect_uri": REGISTERED, "response_type": "code"}
    path = f"/organizations/{organization.slug}/oauth/authorize"
    stranger = log.app.test_client().get(path, query_string=query)
    assert 'id="error-return"' in stranger.text and 'id="inspect"' not in stranger.text
    log.make.sign_in(log.make.user(organization, role="admin"), log.http)
    page = log.http.get(path, query_string=query)
    link = page.text.split('id="inspect" href="')[1].split('"')[0].replace("&amp;", "&")
    log.written()
    assert "code_challenge" in log.http.get(link, follow_redirects=True).text


def test_all_requests_include_samples_of_successful_ones(log: Log) -> None:
    machine = log.make.machine(log.organization, "users:read", name="Harvester")
    form = {"grant_type": "client_credentials"}
    sent = log.app.test_client().post("/oauth/token", data=form, headers=machine.basic)
    log.authorize(REGISTERED + "/")
    page = log.page("/logs?view=all").text
    assert sent.headers["X-Request-Id"] in page and "Succeeded" in page and "not registered" in page
    assert machine.secret not in page
    assert "Succeeded</span>" not in log.page("/logs?view=all&outcome=failed").text
    assert "not registered</a>" not in log.page("/logs?view=all&outcome=succeeded").text
    assert sent.headers["X-Request-Id"] in log.page(f"/clients/{machine.client_id}/logs").text


def test_request_id_opens_the_explanation_once_it_is_written(log: Log) -> None:
    query = {"client_id": log.client.client_id, "redirect_uri": REGISTERED + "/", "response_type": "code"}
    page = log.http.get("/oauth/authorize", query_string=query)
    link = page.text.split('id="inspect" href="')[1].split('"')[0].replace("&amp;", "&")
    waiting = log.http.get(link)
    assert waiting.status_code == 200 and 'id="waiting"' in waiting.text
    assert (
        waiting.headers["Refresh"].startswith("2; url=/portal/") and "tries=1" in waiting.headers["Refresh"]
    )
    late = log.http.get(link + "&tries=5")
    assert "Refresh" not in late.headers and "Request not found" in late.text
    log.written()
    found = log.http.get(link)
    assert found.status_code == 303 and "/logs/flr_" in found.headers["Location"]


def test_pages_need_as_many_queries_for_many_requests_as_for_few(log: Log) -> None:
    def asked(path: str) -> int:
        with cuttable(log.app) as cuts:
            cuts.start()
            assert log.page(path).status_code == 200
            # Not those of the session and the organization, which are cached for a second.
            return sum("_requests" in sent or "audit_events" in sent for sent in cuts.sent)

    log.authorize(REGISTERED + "/")
    paths = ("/logs", "/logs?view=all", f"/logs/{log.entries()[0]['id']}")
    few = [asked(path) for path in paths]
    for number in range(8):
        log.authorize(REGISTERED + "/", log.make.client(log.organization, name=f"Client {number}"))
        log.authorize(REGISTERED + "/")
        log.authorize(REGISTERED)
    assert [asked(path) for path in paths] == few and max(few) < 10
