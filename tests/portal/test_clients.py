"""Registering, changing and deleting clients in the portal."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

from app.operations.clients.resources import define_resource
from app.portal.redirect_uris import EXAMPLES

FORM = "application/x-www-form-urlencoded"
SECRET = re.compile(r"gth_cs_[A-Za-z0-9_-]+")


def test_registration_shows_secret_only_once(ada: Any) -> None:
    ada.get("/clients/new?type=web")

    answer = ada.submit(
        "/clients/new?type=web",
        name="Orchard",
        redirect_uris="https://orchard.example/callback\r\nhttp://localhost:3000/callback\r\n",
        post_logout_redirect_uris="https://orchard.example/signed-out",
        scopes=["openid", "email"],
    )

    assert answer.status_code == 200
    assert "Orchard is registered" in ada.text
    secret = SECRET.search(answer.text)
    assert secret and f"CLIENT_SECRET={secret[0]}" in answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    path = answer.request.path
    assert secret[0] not in ada.get(path).text and "was shown once" in ada.text
    assert "was shown once" not in ada.get(path).text
    client_id = re.search(r"cli_\w+", answer.text)
    assert client_id
    assert "https://orchard.example/signed-out" in ada.get(f"/clients/{client_id[0]}/redirects").text


def test_public_client_gets_no_secret(ada: Any) -> None:
    ada.get("/clients/new?type=spa")
    answer = ada.submit(
        "/clients/new?type=spa",
        name="Blossom",
        redirect_uris="https://blossom.example/cb",
        scopes=["openid"],
    )

    assert "Blossom is registered" in ada.text
    assert SECRET.search(answer.text) is None


def test_service_form_has_no_redirect_uris(ada: Any) -> None:
    ada.get("/clients/new?type=machine")
    assert 'name="redirect_uris"' not in ada.page.text
    assert 'value="openid"' not in ada.page.text

    ada.submit("/clients/new?type=machine", name="Harvester", more_scopes="orders:read")

    assert "Harvester is registered" in ada.text
    assert "orders:read" in ada.text


def test_service_is_not_offered_what_concerns_users(ada: Any, make: Any, acme: Any) -> None:
    client = make.client(acme, type="machine", redirect_uris=[], scopes=["orders:read"])
    ada.get(f"/clients/{client.client_id}/access")
    assert 'value="orders:read" checked' in ada.page.text
    assert 'value="openid"' not in ada.page.text and 'name="optional_scopes"' not in ada.page.text


def test_invalid_values_show_errors_and_keep_input(ada: Any, database: Any) -> None:
    ada.get("/clients/new?type=web")

    answer = ada.send(
        "/clients/new?type=web",
        name="O\u0000",
        redirect_uris="https://orchard.example/callback\njavascript:alert(1)",
        scopes=["openid"],
    )

    assert answer.status_code == 400
    assert 'id="errors"' in answer.text
    assert 'href="#redirect_uris"' in answer.text and 'href="#name"' in answer.text
    assert 'aria-describedby="redirect_uris-hint redirect_uris-error" aria-invalid="true"' in answer.text
    assert "Line 2:" in ada.text
    assert "javascript:alert(1)" in answer.text and "https://orchard.example/callback" in answer.text
    assert database.count("clients") == 0


def test_unknown_type_shows_the_list_of_types(ada: Any) -> None:
    ada.get("/clients/new?type=teapot")

    assert "What are you building?" in ada.text
    links = re.findall(r'class="cover" href="([^"]+)"', ada.page.text)
    assert len(links) == 7
    for link in links:
        assert ada.http.get(link).status_code == (303 if link.endswith("type=api") else 200)


TYPED = (
    "https://orchard.example/callback\r\nhttp://orchard.example/callback\r\nhttp://localhost:3000/callback\r\n"
    "https://orchard.example/callback"
)


def test_redirect_uris_have_a_verdict_per_line_before_they_are_registered(ada: Any, database: Any) -> None:
    """Without scripts by a button, with scripts from the JSON that the page's script reads."""
    ada.get("/clients/new?type=web")
    answer = ada.send("/clients/new?type=web", check="1", redirect_uris=TYPED)
    listed = answer.text.partition('id="redirect_uris-verdicts"')[2].partition("</ul>")[0]
    assert answer.status_code == 200 and database.count("clients") == 0
    shown = re.findall(r'class="badge wrap (ok|danger)">([^<]+)<', listed)
    # The verdicts are the errors at the field. The summary above the form repeats them.
    answer = ada.send("/clients/new?type=web", name="Orchard", redirect_uris=TYPED, scopes=["openid"])
    assert answer.status_code == 400 and database.count("clients") == 0
    assert answer.text.count("Only 127.0.0.1, [::1] and localhost can use http.") == 2
    assert 'id="redirect_uris-error"' in answer.text and 'class="err"' not in answer.text
    query = {"type": "web", "uris": TYPED}
    told = ada.http.get("/portal/acme/redirect-uris/check", query_string=query).get_json()
    assert [(each["valid"], each["message"]) for each in told] == [
        (True, "Valid"),
        (False, "Use https. Only 127.0.0.1, [::1] and localhost can use http."),
        (True, "Valid, for development on this device"),
        (False, "Duplicate entry."),
    ]
    assert [(word == "ok", html.unescape(text)) for word, text in shown] == [
        (each["valid"], each["message"]) for each in told
    ]


def test_examples_of_frameworks_can_be_registered(ada: Any) -> None:
    for kind, examples in EXAMPLES.items():
        query = {"type": kind, "uris": "\n".join(uri for _, uri in examples)}
        told = ada.http.get("/portal/acme/redirect-uris/check", query_string=query).get_json()
        assert told and all(each["valid"] for each in told), told


def test_scopes_are_grouped_by_account_and_api(ada: Any, make: Any, acme: Any) -> None:
    with make.app.app_context():
        api = {"identifier": "https://orders.example", "name": "Orders", "scopes": [{"name": "orders:read"}]}
        define_resource(make.actor(acme), api)
    page = ada.get("/clients/new?type=web").text
    assert re.findall(r'class="group"[^>]*>([^<]+)<', page) == ["Account", "Orders"]
    assert page.index('value="openid"') < page.index(">Orders<") < page.index('value="orders:read"')


def test_name_is_escaped(ada: Any) -> None:
    ada.get("/clients/new?type=machine")
    ada.send("/clients/new?type=machine", name="<b>Bold</b>")

    assert "<b>Bold</b>" not in ada.page.text
    assert "&lt;b&gt;Bold&lt;/b&gt;" in ada.get("/clients").text


def test_list_is_searched_filtered_and_paged(make: Any, acme: Any, ada: Any) -> None:
    for number in range(30):
        make.machine(acme, "clients:read", name=f"Worker {number:02}")
    make.client(acme, name="Orchard")

    ada.get("/clients")
    assert "Orchard" in ada.text and "Worker 23" in ada.text and "Worker 24" not in ada.text
    following = re.search(r'href="([^"]+)" rel="next"', ada.page.text)
    assert following
    ada.get(following[1].replace("&amp;", "&"))
    assert "Worker 24" in ada.text and "Orchard" not in ada.text
    ada.get("/clients?type=web")
    assert "Orchard" in ada.text and "Worker" not in ada.text
    ada.get("/clients?q=worker+07")
    assert "Worker 07" in ada.text and "Worker 08" not in ada.text
    ada.get("/clients?q=nothing+like+it")
    assert "No clients found" in ada.text
    assert ada.get("/clients?cursor=made-up").status_code == 200


@pytest.mark.parametrize(
    ("tab", "fields", "shown"),
    [
        ("redirects", {"redirect_uris": "https://orchard.example/new"}, "https://orchard.example/new"),
        (
            "redirects",
            {
                "redirect_uris": "https://orchard.example/callback",
                "backchannel_logout_uri": "https://orchard.example/out",
            },
            "https://orchard.example/out",
        ),
        ("access", {"scopes": ["openid", "profile"], "optional_scopes": ["profile"]}, "optional_scopes"),
        (
            "details",
            {"name": "Orchard Two", "description": "Apples", "is_active": "1", "trust": "verified"},
            "Reviewed",
        ),
        (
            "details",
            {"name": "Orchard", "is_active": "1", "logo_uri": "https://orchard.example/logo.png"},
            'value="https://orchard.example/logo.png"',
        ),
        (
            "advanced",
            {
                "grant_types": ["authorization_code", "refresh_token", "client_credentials"],
                "token_endpoint_auth_method": "client_secret_post",
                "access_token_format": "jwt",
            },
            "client_secret_post",
        ),
        (
            "advanced",
            {
                "grant_types": ["authorization_code", "refresh_token"],
                "token_endpoint_auth_method": "private_key_jwt",
                "jwks_uri": "https://orchard.example/keys",
                "security_profile": "fapi2",
                "dpop_bound_access_tokens": "1",
            },
            '<option selected value="fapi2">',
        ),
    ],
)
def test_each_tab_saves(make: Any, acme: Any, ada: Any, tab: str, fields: dict[str, Any], shown: str) -> None:
    client = make.client(acme)
    path = f"/clients/{client.client_id}/{tab}"
    ada.get(path)

    ada.send(path, version=ada.hidden("version"), **fields)
    ada.follow()

    assert "Saved. The change is live." in ada.text
    assert shown in ada.page.text


def test_advanced_tab_leaves_the_form_of_the_secret_open_until_one_is_chosen(
    make: Any, acme: Any, ada: Any
) -> None:
    client = make.client(acme)
    path = f"/clients/{client.client_id}/advanced"
    ada.get(path)
    assert '<option selected value="">Secret, in the header or in the body' in ada.page.text
    fields = {"grant_types": ["authorization_code", "refresh_token"], "id_token_claims": "minimal"}

    for chosen in ("", "client_secret_basic"):
        ada.send(
            path,
            version=ada.hidden("version"),
            token_endpoint_auth_method=chosen,
            require_pkce="1",
            **fields,
        )
        ada.follow()

        assert f'<option selected value="{chosen}">' in ada.page.text
        assert '<option selected value="minimal">' in ada.page.text


def test_unchanged_tab_changes_nothing(make: Any, acme: Any, ada: Any) -> None:
    client = make.client(acme)
    path = f"/clients/{client.client_id}/redirects"
    ada.get(path)

    ada.send(path, version=ada.hidden("version"), redirect_uris="https://orchard.example/callback")
    ada.follow()

    assert "No changes to save" in ada.text


def test_invalid_change_shows_error_at_field(make: Any, acme: Any, ada: Any) -> None:
    client = make.client(acme)
    path = f"/clients/{client.client_id}/redirects"

    answer = ada.send(path, version="1", redirect_uris="ftp://orchard.example/")

    assert answer.status_code == 400
    assert 'href="#redirect_uris"' in answer.text and "ftp://orchard.example/" in answer.text


def test_stale_change_is_rejected(make: Any, acme: Any, ada: Any) -> None:
    client = make.client(acme)
    path = f"/clients/{client.client_id}/details"
    ada.get(path)
    version = ada.hidden("version")
    ada.send(path, version=version, name="First", is_active="1", trust="unverified")
    ada.get(path)

    answer = ada.send(path, version=version, name="Second", is_active="1", trust="unverified")

    assert answer.status_code == 412
    assert "Someone changed this client" in ada.text and 'value="Second"' in answer.text
    assert "First" in ada.get(f"/clients/{client.client_id}/credentials").text


def test_deletion_requires_name(make: Any, acme: Any, ada: Any) -> None:
    client = make.client(acme)
    path = f"/clients/{client.client_id}/delete"
    ada.get(path)
    assert "Impact" in ada.text

    assert ada.send(path, typed="orchard").status_code == 400
    ada.send(path, typed="Orchard")
    ada.follow()

    assert "Client deleted" in ada.text
    assert ada.get(f"/clients/{client.client_id}/credentials").status_code == 404


def test_deletion_requires_fresh_sign_in(make: Any, portal_user: Any, database: Any) -> None:
    acme = make.organization(
        "acme", settings={"authentication": {"sessions": {"reauthentication_seconds": 60}}}
    )
    ada = portal_user(acme)
    client = make.client(acme)
    path = f"/clients/{client.client_id}/delete"
    ada.get(f"/clients/{client.client_id}/details")
    _age_sessions(database)

    answer = ada.send(path, typed="Orchard")

    assert answer.status_code == 303
    assert answer.headers["Location"].startswith(
        "/organizations/acme/login?next=%2Fportal%2Facme%2Fclients%2F"
    )
    assert "reauthenticate=1" in answer.headers["Location"]
    assert database.query("SELECT COUNT(*) FROM clients WHERE deleted_at IS NULL")[0][0] == 1


def test_developer_reaches_only_own_clients(make: Any, acme: Any, ada: Any, portal_user: Any) -> None:
    foreign = make.client(acme, name="Somebody's")
    grace = portal_user(acme, role="developer")
    grace.get("/clients/new?type=machine")
    grace.submit("/clients/new?type=machine", name="Mine")
    assert "Mine is registered" in grace.text

    grace.get("/clients")

    assert "Mine" in grace.text and "Somebody" not in grace.text
    assert grace.get(f"/clients/{foreign.client_id}/credentials").status_code == 404
    assert grace.get(f"/clients/{foreign.client_id}/delete").status_code == 404


def test_security_profile_explains_requirements_and_rejects_other_clients(
    make: Any, acme: Any, ada: Any
) -> None:
    client = make.client(acme)
    path = f"/clients/{client.client_id}/advanced"
    ada.get(path)
    assert "A client that doesn't support all of this stops working when you save." in ada.text
    fields = {"grant_types": ["authorization_code"], "token_endpoint_auth_method": "client_secret_basic"}

    answer = ada.send(path, version=ada.hidden("version"), security_profile="fapi2", **fields)

    assert answer.status_code == 400
    assert "requires private_key_jwt" in ada.text


def test_client_of_another_organization_is_not_found(make: Any, ada: Any) -> None:
    globex = make.organization("globex")
    foreign = make.client(globex)

    for tab in (
        "",
        "/credentials",
        "/redirects",
        "/access",
        "/details",
        "/advanced",
        "/delete",
        "/credentials/new",
    ):
        assert ada.get(f"/clients/{foreign.client_id}{tab}").status_code == 404


def _age_sessions(database: Any) -> None:
    before = "2026-01-01 00:00:00"
    database.query(f"UPDATE sessions SET authenticated_at = '{before}'")


@pytest.mark.parametrize(("kind", "is_told"), [("spa", True), ("device", False)])
def test_only_clients_that_use_pkce_are_told_that_it_protects_them(
    ada: Any, make: Any, acme: Any, kind: str, is_told: bool
) -> None:
    more = {"redirect_uris": []} if kind == "device" else {}
    client = make.client(acme, type=kind, **more)
    assert ("PKCE protects" in ada.get(f"/clients/{client.client_id}/credentials").text) is is_told
