"""node-oidc-provider from npm on the same MariaDB, to compare with; Node.js and npm must be installed."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from joserfc.jwk import KeySet, RSAKey

from app.operations.grants.signing_keys import RSA_BITS
from tests.bench.fill import Credentials
from tests.bench.scenarios import REDIRECT_URI, authorization_path
from tests.support import process
from tests.support.mariadb import MariaDB

FOLDER = Path(__file__).parent / "peer"
MACHINE = Credentials("machine", "a-secret-of-the-benchmark-that-is-long-enough")
WEB = Credentials("web", "another-secret-of-the-benchmark-long-enough")
TABLE = """CREATE TABLE models (
    model VARCHAR(32) NOT NULL, id VARCHAR(128) NOT NULL, payload MEDIUMTEXT NOT NULL, grant_id VARCHAR(128),
    uid VARCHAR(128), expires_at INT, consumed_at INT, PRIMARY KEY (model, id), KEY (grant_id), KEY (model, uid),
    KEY (expires_at)) ENGINE=InnoDB CHARSET=ascii"""


def is_available() -> bool:
    """Return whether Node.js and npm are installed."""
    return shutil.which("node") is not None and shutil.which("npm") is not None


@contextmanager
def serving(database: MariaDB, *, workers: int, log: Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Start the provider with a machine client and a web client; return (port, process)."""
    if not (FOLDER / "node_modules").exists():
        subprocess.run(["npm", "ci", "--ignore-scripts", "--silent"], cwd=FOLDER, check=True)
    database.create_database("peer")
    with closing(database.connect("peer")) as connection:
        connection.cursor().execute(TABLE)
    port = process.free_port()
    environment = os.environ | {
        "NODE_ENV": "production",
        "PEER": json.dumps(_settings(database, port, workers)),
    }
    server = process.start(["node", "server.mjs"], log, env=environment, cwd=FOLDER)
    try:
        process.wait_until(lambda: _answers(port), f"node-oidc-provider (log: {log})")
        yield port, server
    finally:
        process.stop(server)


def cookies(port: int, count: int) -> list[str]:
    """Return the cookie headers of this number of users who have signed in and consented."""
    return [_sign_in(port) for _ in range(count)]


def _sign_in(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    kept: dict[str, str] = {}
    path = authorization_path(WEB)
    while not path.startswith(REDIRECT_URI):
        parts = urlsplit(path)
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        header = "; ".join(f"{name}={value}" for name, value in kept.items())
        connection.request("GET", target, headers={"Cookie": header})
        response = connection.getresponse()
        response.read()
        if response.status not in {302, 303}:
            raise RuntimeError(f"{target} answered {response.status}")
        for name, value in response.getheaders():
            if name.lower() == "set-cookie":
                cookie, _, content = value.partition(";")[0].partition("=")
                kept[cookie] = content
        path = response.headers["Location"]
    connection.close()
    return "; ".join(f"{name}={value}" for name, value in kept.items() if name.startswith("_session"))


def _settings(database: MariaDB, port: int, workers: int) -> dict[str, object]:
    key = RSAKey.generate_key(RSA_BITS, {"use": "sig", "alg": "RS256", "kid": "bench"}, auto_kid=False)
    shared = {"token_endpoint_auth_method": "client_secret_basic", "id_token_signed_response_alg": "RS256"}
    machine = {"grant_types": ["client_credentials"], "redirect_uris": [], "response_types": []}
    web = {
        "grant_types": ["authorization_code", "refresh_token"],
        "redirect_uris": [REDIRECT_URI],
        "scope": "openid offline_access profile email",
    }
    return {
        "issuer": f"http://127.0.0.1:{port}",
        "port": port,
        "workers": workers,
        "connections": 8,
        "database": {
            "socketPath": database.socket,
            "user": "gatehouse",
            "password": database.password,
            "database": "peer",
        },
        "jwks": KeySet([key]).as_dict(private=True),
        "clients": [
            {"client_id": each.client_id, "client_secret": each.secret, **shared, **fields}
            for each, fields in ((MACHINE, machine), (WEB, web))
        ],
    }


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/.well-known/openid-configuration")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
