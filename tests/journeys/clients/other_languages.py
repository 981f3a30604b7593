"""The quickstarts of libraries in other languages, and of Apache and oauth2-proxy: run by ``script/test clients``."""

from __future__ import annotations

import pytest

from tests.journeys.clients.quickstart import PROGRAMS, Quickstart, running
from tests.support.servers import LiveServer

pytestmark = pytest.mark.live

APACHE = Quickstart(
    ("/usr/sbin/apache2", "-X", "-f", "{folder}/httpd.conf"),
    callback="/secure/redirect_uri",
    login="/secure/profile.html",
    profile="/secure/profile.html",
    refresh="/secure/refresh",
    logout="/secure/logout",
    signed_out="/signed-out.html",
)
QUICKSTARTS = {
    "mod_auth_openidc": APACHE,
    "go_oidc": Quickstart((f"{PROGRAMS}/go_oidc",), callback="/auth/gatehouse/callback"),
    "rust_openidconnect": Quickstart((f"{PROGRAMS}/rust_openidconnect",)),
    "nimbus": Quickstart(("sh", "run.sh")),
    "oauth2_proxy": Quickstart(
        ("sh", "run.sh"),
        callback="/oauth2/callback",
        login="/oauth2/start?rd=/oauth2/userinfo",
        profile="/oauth2/userinfo",
        refresh="/oauth2/userinfo",
        logout="/oauth2/sign_out?rd={end_session}",
        # It reads userinfo only for what the ID token lacks.
        id_token_claims="minimal",
    ),
}


@pytest.mark.parametrize("name", QUICKSTARTS)
def test_quickstart_signs_in_refreshes_and_signs_out(node_server: LiveServer, name: str) -> None:
    with running(node_server, QUICKSTARTS[name], name) as app:
        app.walk()
