"""A Vault with a transit key: the real server where GATEHOUSE_TEST_VAULT names its binary, else a small double.

The double answers as Vault's API documentation says: https://developer.hashicorp.com/vault/api-docs/secret/transit
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.support import process

POLICY = """
path "transit/encrypt/gatehouse" { capabilities = ["update"] }
path "transit/decrypt/gatehouse" { capabilities = ["update"] }
"""
SERVICE_ACCOUNT = "the token of a service account"


class Vault:
    """A running Vault: ``url`` is that of its key, ``token`` and ``approle`` are values of GATEHOUSE_VAULT_AUTH."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.port, self._root = folder, process.free_port(), secrets.token_hex(16)
        self.url = f"vault+http://127.0.0.1:{self.port}/transit/gatehouse"
        self.is_real = "GATEHOUSE_TEST_VAULT" in os.environ
        self._start()
        self.call("sys/mounts/transit", type="transit")
        self.call("transit/keys/gatehouse")
        self.call("sys/policies/acl/gatehouse", policy=POLICY)
        self.call("sys/auth/approle", type="approle")
        self.call("auth/approle/role/gatehouse", token_policies="gatehouse")
        made = self.call("auth/token/create", policies=["gatehouse"])
        self.token = f"token:{self._write('token', made['auth']['client_token'])}"
        role_id = self.call("auth/approle/role/gatehouse/role-id", "GET")["data"]["role_id"]
        secret_id = self.call("auth/approle/role/gatehouse/secret-id")["data"]["secret_id"]
        self.approle = f"approle:{role_id}:{self._write('secret-id', secret_id)}"
        self.kubernetes = f"kubernetes:gatehouse:{self._write('jwt', SERVICE_ACCOUNT)}"

    def call(self, path: str, method: str = "POST", **body: Any) -> dict[str, Any]:
        """Send a request as Vault's administrator."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/{path}",
            data=None if method == "GET" else json.dumps(body).encode(),
            headers={"X-Vault-Token": self._root},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            return dict(json.loads(response.read() or b"{}"))

    def seal(self) -> None:
        """Seal it: every request is answered with 503."""
        self.call("sys/seal")

    def stop(self) -> None:
        """End it: nothing listens any more."""
        if self.is_real:
            process.stop(self._process)
        else:
            self._server.shutdown()
            self._server.server_close()

    def _write(self, name: str, text: str) -> Path:
        file = self._folder / name
        file.write_text(f"{text}\n")
        return file

    def _start(self) -> None:
        if not self.is_real:
            self._server = ThreadingHTTPServer(("127.0.0.1", self.port), _handler(_Double(self._root)))
            threading.Thread(target=self._server.serve_forever, daemon=True).start()
            return
        binary, address = os.environ["GATEHOUSE_TEST_VAULT"], f"127.0.0.1:{self.port}"
        command = [binary, "server", "-dev", "-dev-no-store-token", f"-dev-root-token-id={self._root}"]
        environ = {"PATH": os.environ["PATH"], "HOME": str(self._folder)}
        self._process = process.start(
            [*command, f"-dev-listen-address={address}"], self._folder / "vault.log", env=environ
        )
        process.wait_until(self._answers, "Vault", seconds=60)

    def _answers(self) -> bool:
        try:
            return bool(self.call("sys/health", "GET")["initialized"])
        except (urllib.error.URLError, ConnectionError):
            return False


@contextmanager
def running_vault(folder: Path) -> Iterator[Vault]:
    """Run a Vault in the folder."""
    folder.mkdir(exist_ok=True)
    vault = Vault(folder)
    try:
        yield vault
    finally:
        vault.stop()


class _Transit:
    """The versions of one transit key."""

    def __init__(self) -> None:
        self._keys: list[AESGCM] = []
        self.rotate()

    def rotate(self) -> None:
        self._keys.append(AESGCM(AESGCM.generate_key(256)))

    def encrypt(self, body: dict[str, Any]) -> dict[str, str]:
        nonce = os.urandom(12)
        plain = base64.b64decode(body["plaintext"], validate=True)
        sealed = base64.b64encode(nonce + self._keys[-1].encrypt(nonce, plain, None)).decode()
        return {"ciphertext": f"vault:v{len(self._keys)}:{sealed}"}

    def decrypt(self, body: dict[str, Any]) -> dict[str, str]:
        _, version, text = body["ciphertext"].split(":")
        raw = base64.b64decode(text, validate=True)
        plain = self._keys[int(version[1:]) - 1].decrypt(raw[:12], raw[12:], None)
        return {"plaintext": base64.b64encode(plain).decode()}


class _Double:
    """What Vault answers to the requests of these tests."""

    def __init__(self, root: str) -> None:
        self._root, self._transit, self._is_sealed = root, _Transit(), False
        self._tokens, self._secret_ids = {root}, set[str]()

    def answer(self, path: str, token: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return (status, JSON document)."""
        if self._is_sealed:
            return 503, {"errors": ["Vault is sealed"]}
        if path.endswith("/login"):
            return self._sign_in(body)
        operation = path.split("/")[1]
        is_own = path in {"transit/encrypt/gatehouse", "transit/decrypt/gatehouse"}
        if path == "auth/token/revoke-self":
            self._tokens.discard(token)
            return 204, {}
        if token not in self._tokens or not (is_own or token == self._root):
            return 403, {"errors": ["permission denied"]}
        if not is_own:
            return self._administer(path)
        try:
            return 200, {"data": getattr(self._transit, operation)(body)}
        except (ValueError, KeyError, IndexError, InvalidTag):
            return 400, {"errors": ["invalid ciphertext: could not decrypt"]}

    def _sign_in(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        is_account = body == {"role": "gatehouse", "jwt": SERVICE_ACCOUNT}
        if is_account or (body.get("role_id") == "role" and body.get("secret_id") in self._secret_ids):
            return 200, {"auth": {"client_token": self._made(self._tokens)}}
        return 400, {"errors": ["invalid role or secret ID"]}

    def _administer(self, path: str) -> tuple[int, dict[str, Any]]:
        if path.endswith("/rotate"):
            self._transit.rotate()
        self._is_sealed = path == "sys/seal"
        if path == "auth/token/create":
            return 200, {"auth": {"client_token": self._made(self._tokens)}}
        if path.endswith("/role-id"):
            return 200, {"data": {"role_id": "role"}}
        if path.endswith("/secret-id"):
            return 200, {"data": {"secret_id": self._made(self._secret_ids)}}
        return 204, {}

    @staticmethod
    def _made(into: set[str]) -> str:
        into.add(token := secrets.token_hex(12))
        return token


def _handler(double: _Double) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size) or b"{}")
            path, token = self.path.removeprefix("/v1/"), self.headers.get("X-Vault-Token", "")
            status, document = double.answer(path, token, body)
            text = b"" if status == 204 else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST  # noqa: N815 - the name that the library calls

        def log_message(self, *_: object) -> None:
            pass

    return Handler
