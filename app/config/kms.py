"""Key management services: they wrap the keys of the instance, so that no file holds them in plain text.

A wrapped key is one line: the URL of the service's key, a space, and the ciphertext. It is unwrapped once, when a
process starts. Requests never wait for the service: what they need is wrapped by the master key itself.

- ``vault://host:8200/transit/gatehouse``: the key ``gatehouse`` of the transit engine mounted at ``transit``, of
  HashiCorp Vault or OpenBao. ``vault+http://`` is for the loopback interface.
- ``pkcs11:token=…;object=…?module-path=…``: an AES key in a PKCS#11 token (RFC 7512), used with AES-GCM.

The line is no secret, so more people may be able to change it than the settings. It cannot send credentials to another
server or load another module, because the settings name both.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

from .commands import install_line
from .settings import EXIT_UNAVAILABLE, UnsafeConfiguration, file, is_loopback_url, words

_VAULT_URL, _MODULE = "GATEHOUSE_VAULT_URL", "GATEHOUSE_HSM_MODULE"
_AUTH, _CA, _PIN = "GATEHOUSE_VAULT_AUTH", "GATEHOUSE_VAULT_CA_BUNDLE", "GATEHOUSE_HSM_PIN_FILE"
_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount/token"
_SECONDS = 5.0
_GOOD_URL = (
    "Use vault://vault.example.com:8200/transit/gatehouse (mount and key), or "
    "pkcs11:token=gatehouse;object=master?module-path=/usr/lib/softhsm/libsofthsm2.so"
)
_GOOD_AUTH = f"{_AUTH} must be token:FILE, approle:ROLE_ID:FILE (of the secret id) or kubernetes:ROLE."
_AAD = b"gatehouse wrapped key"
_NONCE_LENGTH, _TAG_BITS = 12, 128


class KmsUnavailable(UnsafeConfiguration):
    """The service does not answer now; exit status 75, so that a supervisor starts the process again."""

    exit_status: ClassVar[int] = EXIT_UNAVAILABLE


def split_wrapped(text: str) -> tuple[str, str] | None:
    """Return (URL, ciphertext) of a wrapped key, or None if the text is a plain key."""
    url, _, ciphertext = text.strip().partition(" ")
    return (url, ciphertext.strip()) if ciphertext and url.startswith(("vault", "pkcs11:")) else None


def wrap_key(env: Mapping[str, str], url: str, key: bytes) -> str:
    """Wrap the key by the service and return the line that ``unwrap_key`` takes. Raises UnsafeConfiguration."""
    if url.startswith("pkcs11:"):
        nonce = os.urandom(_NONCE_LENGTH)
        return f"{url} {base64.b64encode(nonce + _use_token(env, url, 'encrypt', nonce, key)).decode()}"
    sent = {"plaintext": base64.b64encode(key).decode()}
    return f"{url} {_Vault(env, url).transit('encrypt', sent, 'ciphertext')}"


def unwrap_key(env: Mapping[str, str], url: str, ciphertext: str) -> bytes:
    """Return the plain key. Raises UnsafeConfiguration, or KmsUnavailable if the service does not answer.

    The settings must name the Vault or the module of the URL.
    """
    try:
        if url.startswith("pkcs11:"):
            _require_named(env, _MODULE, _module_of(url)[1])
            sealed = base64.b64decode(ciphertext, validate=True)
            return _use_token(env, url, "decrypt", sealed[:_NONCE_LENGTH], sealed[_NONCE_LENGTH:])
        vault = _Vault(env, url)
        _require_named(env, _VAULT_URL, url)
        return base64.b64decode(
            vault.transit("decrypt", {"ciphertext": ciphertext}, "plaintext"), validate=True
        )
    except ValueError as error:
        raise UnsafeConfiguration(
            f"The ciphertext of the key wrapped by {url} is damaged. Restore it from the backup."
        ) from error


def _require_named(env: Mapping[str, str], variable: str, found: str) -> None:
    """Raise UnsafeConfiguration unless the setting names the URL or path, or the beginning of the URL."""
    if not any(found == named or found.startswith(f"{named.rstrip('/')}/") for named in words(env, variable)):
        origin = "/".join(found.split("/")[:3]) if variable == _VAULT_URL else found
        raise UnsafeConfiguration(
            f"A key is wrapped by {found}, which {variable} does not name. If that is yours, type: "
            f"{variable}={origin}"
        )


class _Vault:
    """One use of a transit key: sign in, one request, sign out. Paths are those of Vault's HTTP API."""

    def __init__(self, env: Mapping[str, str], url: str) -> None:
        parts = urlsplit(url)
        mount, _, self._key = parts.path.strip("/").rpartition("/")
        if parts.scheme not in {"vault", "vault+http"} or not parts.hostname or not mount or not self._key:
            raise UnsafeConfiguration(f"{url} is not the URL of a key. {_GOOD_URL}")
        scheme = "http" if parts.scheme == "vault+http" else "https"
        self._base, self._mount, self._env, self._token = f"{scheme}://{parts.netloc}", mount, env, ""
        if scheme == "http" and not is_loopback_url(self._base):
            raise UnsafeConfiguration(f"{url} would send the key without TLS. Use vault://{parts.netloc}")

    def transit(self, operation: str, sent: Mapping[str, str], wanted: str) -> str:
        """Encrypt or decrypt with the transit key, and return one value of the response."""
        method, _, rest = self._env.get(_AUTH, "").partition(":")
        method, _, mount = method.partition("@")
        name, _, path = rest.partition(":")
        if method == "token":
            self._token = _secret(_AUTH, rest)
        elif method == "approle" and path:
            self._sign_in(mount or method, {"role_id": name, "secret_id": _secret(_AUTH, path)})
        elif method == "kubernetes":
            self._sign_in(mount or method, {"role": name, "jwt": _secret(_AUTH, path or _SERVICE_ACCOUNT)})
        else:
            raise UnsafeConfiguration(f"A key is wrapped by {self._base}. {_GOOD_AUTH}")
        try:
            return str(self._post(f"{self._mount}/{operation}/{self._key}", sent)["data"][wanted])
        finally:
            if method != "token":
                # A token of its own for each start would otherwise stay valid until its lease ends.
                self._post("auth/token/revoke-self", {}, is_required=False)

    def _sign_in(self, mount: str, sent: Mapping[str, str]) -> None:
        self._token = str(self._post(f"auth/{mount}/login", sent)["auth"]["client_token"])

    def _post(self, path: str, sent: Mapping[str, str], *, is_required: bool = True) -> dict[str, Any]:
        # Loaded only where a key is wrapped by Vault.
        from urllib3 import PoolManager, Timeout
        from urllib3.exceptions import HTTPError

        bundle = file(self._env, _CA)
        headers = {"X-Vault-Request": "true"} | ({"X-Vault-Token": self._token} if self._token else {})
        with PoolManager(ca_certs=str(bundle) if bundle else None, cert_reqs="CERT_REQUIRED") as pool:
            try:
                # Vault answers a standby's requests itself, so a redirect is a mistake in the URL.
                response = pool.request(
                    "POST", f"{self._base}/v1/{path}", json=dict(sent), headers=headers,
                    timeout=Timeout(_SECONDS), retries=False, redirect=False,
                )  # fmt: skip
                found = json.loads(response.data or b"{}")
            except (HTTPError, ValueError) as error:
                if not is_required:
                    return {}
                raise KmsUnavailable(
                    f"A key is wrapped by {self._base}, which gives no answer ({type(error).__name__}). Restore it or "
                    f"the way to it, check {_CA}, and start Gatehouse again."
                ) from error
        if response.status in {200, 204} or not is_required:
            return dict(found) if isinstance(found, dict) else {}
        errors = " ".join(str(each).strip() for each in found.get("errors") or [])[:300]
        kind = (
            KmsUnavailable if response.status in {412, 429} or response.status >= 500 else UnsafeConfiguration
        )
        raise kind(
            f"{self._base}/v1/{path} answers {response.status}: {errors or 'no reason'}. Check that Vault is unsealed, "
            f"{_AUTH}, and that its policy allows update on this path."
        )


def _module_of(url: str) -> tuple[dict[str, str], str]:
    """Return the parts of the path and the module of a URL of PKCS#11. Raises UnsafeConfiguration."""
    path, _, query = url.removeprefix("pkcs11:").partition("?")
    names = {name: unquote(value) for name, _, value in (part.partition("=") for part in path.split(";"))}
    module = parse_qs(query).get("module-path", [""])[0]
    if not names.get("token") or not names.get("object") or not module.startswith("/"):
        raise UnsafeConfiguration(f"{url} is not the URL of a key. {_GOOD_URL}")
    return names, module


def _use_token(env: Mapping[str, str], url: str, operation: str, nonce: bytes, data: bytes) -> bytes:
    """Encrypt or decrypt with the AES key of a PKCS#11 token, which never leaves it."""
    try:
        import pkcs11
        from pkcs11 import GCMParams, Mechanism, ObjectClass
        from pkcs11.exceptions import EncryptedDataInvalid, NoSuchKey, PinIncorrect, PKCS11Error
    except ImportError:
        raise UnsafeConfiguration(
            f"{url} needs the package python-pkcs11. Type: {install_line('python-pkcs11')}"
        ) from None
    names, module = _module_of(url)
    pin = _secret(_PIN, env.get(_PIN, ""))
    try:
        token = pkcs11.lib(module).get_token(token_label=names["token"])
        with token.open(user_pin=pin) as session:
            key = session.get_key(object_class=ObjectClass.SECRET_KEY, label=names["object"])
            return bytes(
                getattr(key, operation)(
                    data, mechanism=Mechanism.AES_GCM, mechanism_param=GCMParams(nonce, _AAD, _TAG_BITS)
                )
            )
    except (PinIncorrect, NoSuchKey, EncryptedDataInvalid) as error:
        raise UnsafeConfiguration(
            f"{url} cannot be used ({type(error).__name__}). Check {_PIN}, the names of the token and "
            "the key, and that the wrapped key is the one that it made."
        ) from error
    except (PKCS11Error, RuntimeError, OSError) as error:
        raise KmsUnavailable(
            f"{url} cannot be used ({type(error).__name__}). Check that the token is present, that this account "
            "may use it and that the wrapped key is whole, and start Gatehouse again."
        ) from error


def _secret(variable: str, path: str) -> str:
    """Return the first line of the file with a credential."""
    try:
        return Path(path).read_text().split("\n", 1)[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UnsafeConfiguration(
            f"{variable} names the file {path!r}, which cannot be read ({type(error).__name__}). Check its owner and "
            "mode."
        ) from error
