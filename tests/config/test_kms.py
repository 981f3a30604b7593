"""Keys wrapped by Vault or a PKCS#11 token: unwrapped once at the start, and moved from any kind to any other."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.config import UnsafeConfiguration, load, wrap_key
from tests.support.vault import Vault, running_vault

MODULE = "/usr/lib/softhsm/libsofthsm2.so"
PIN = "271828"
KEY = secrets.token_bytes(32)


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vault]:
    with running_vault(tmp_path_factory.mktemp("vault")) as running:
        yield running


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the URL of a key in a token of SoftHSM, and the setting to use it."""
    url, pin = make_token(tmp_path_factory.mktemp("tokens") / "softhsm")
    return {"url": url, "GATEHOUSE_HSM_MODULE": MODULE, "GATEHOUSE_HSM_PIN_FILE": str(pin)}


def make_token(folder: Path) -> tuple[str, Path]:
    """Create a token of SoftHSM with one AES key. Return the key's URL and the file with the PIN."""
    import pkcs11

    label = f"gatehouse-{secrets.token_hex(4)}"
    configuration = folder / "softhsm2.conf"
    (folder / "tokens").mkdir(parents=True)
    # SoftHSM reads it once in a process, so tokens of later tests are beside those of the first.
    if "SOFTHSM2_CONF" not in os.environ:
        configuration.write_text(f"directories.tokendir = {folder}/tokens\nlog.level = ERROR\n")
        os.environ["SOFTHSM2_CONF"] = str(configuration)
    command = ["softhsm2-util", "--init-token", "--free", "--label", label, "--so-pin", "31415926"]
    subprocess.run([*command, "--pin", PIN], check=True, capture_output=True)
    library = pkcs11.lib(MODULE)
    library.reinitialize()
    with library.get_token(token_label=label).open(user_pin=PIN, rw=True) as session:
        session.generate_key(pkcs11.KeyType.AES, 256, label="master", store=True)
    (folder / "pin").write_text(f"{PIN}\n")
    return f"pkcs11:token={label};object=master?module-path={MODULE}", folder / "pin"


def production(folder: Path, **changes: str) -> dict[str, str]:
    return {
        "GATEHOUSE_BASE_URL": "https://id.example.com",
        "GATEHOUSE_INSTANCE": str(folder),
        "GATEHOUSE_SECRET_KEY": secrets.token_hex(32),
        "DATABASE_URL": "mysql://gatehouse:x@db.example/gatehouse",
        **changes,
    }


def refusal(status: int, **environ: str) -> str:
    with pytest.raises(UnsafeConfiguration) as refused:
        load(environ)
    assert refused.value.code == status
    assert KEY.hex() not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("sign_in", ["token", "approle", "kubernetes"])
def test_key_wrapped_by_vault_is_unwrapped_at_the_start(vault: Vault, tmp_path: Path, sign_in: str) -> None:
    if sign_in == "kubernetes" and vault.is_real:
        # Its method asks the API server of a cluster; the JWT method takes the same request.
        serve_service_accounts(vault)
    auth = {"GATEHOUSE_VAULT_URL": vault.url, "GATEHOUSE_VAULT_AUTH": getattr(vault, sign_in)}
    wrapped = wrap_key(auth, vault.url, KEY)
    assert wrapped.startswith(f"{vault.url} vault:v1:") and KEY.hex() not in wrapped
    file = tmp_path / "master.key"
    file.write_text(f"{wrapped}\n")
    environ = production(tmp_path, **auth)
    assert load(environ).master_key == KEY, "the default file"
    assert load(environ | {"GATEHOUSE_MASTER_KEY": wrapped}).master_key == KEY
    named = environ | {"GATEHOUSE_MASTER_KEY_FILE": str(file), "GATEHOUSE_PREVIOUS_MASTER_KEY": wrapped}
    assert (load(named).master_key, load(named).previous_master_key) == (KEY, KEY)
    assert load(environ | {"GATEHOUSE_SECRET_KEY": wrapped}).secret_key == KEY


def serve_service_accounts(vault: Vault) -> None:
    from joserfc import jwt
    from joserfc.jwk import ECKey

    key = ECKey.generate_key("P-256")
    vault.call("sys/auth/kubernetes", type="jwt")
    vault.call("auth/kubernetes/config", jwt_validation_pubkeys=[key.as_pem(private=False).decode()])
    vault.call(
        "auth/kubernetes/role/gatehouse", role_type="jwt", user_claim="sub", bound_subject="gatehouse",
        policies=["gatehouse"],
    )  # fmt: skip
    claims = {"sub": "gatehouse", "exp": 4_000_000_000}
    Path(vault.kubernetes.split(":")[2]).write_text(jwt.encode({"alg": "ES256"}, claims, key))


def test_key_wrapped_before_a_rotation_of_the_transit_key_still_opens(vault: Vault, tmp_path: Path) -> None:
    auth = {"GATEHOUSE_VAULT_URL": vault.url, "GATEHOUSE_VAULT_AUTH": vault.approle}
    before = wrap_key(auth, vault.url, KEY)
    vault.call("transit/keys/gatehouse/rotate")
    after = wrap_key(auth, vault.url, KEY)
    assert " vault:v" in after and before.split(":v")[-1][0] != after.split(":v")[-1][0]
    for wrapped in (before, after):
        assert load(production(tmp_path, GATEHOUSE_MASTER_KEY=wrapped, **auth)).master_key == KEY


def test_key_wrapped_by_a_token_is_unwrapped_at_the_start(token: dict[str, str], tmp_path: Path) -> None:
    wrapped = wrap_key(token, token["url"], KEY)
    assert KEY.hex() not in wrapped
    assert load(production(tmp_path, GATEHOUSE_MASTER_KEY=wrapped, **token)).master_key == KEY


def test_damaged_keys_and_wrong_credentials_end_the_start_for_good(
    vault: Vault, token: dict[str, str], tmp_path: Path
) -> None:
    auth = {"GATEHOUSE_VAULT_URL": vault.url, "GATEHOUSE_VAULT_AUTH": vault.token}
    by_vault, by_token = wrap_key(auth, vault.url, KEY), wrap_key(token, token["url"], KEY)
    wrong = tmp_path / "wrong"
    wrong.write_text("000000")
    good = production(tmp_path, GATEHOUSE_VAULT_URL=vault.url, GATEHOUSE_HSM_MODULE=MODULE)
    token = {name: value for name, value in token.items() if name != "GATEHOUSE_HSM_MODULE"}
    auth.pop("GATEHOUSE_VAULT_URL")
    here = {**good, "GATEHOUSE_MASTER_KEY": by_vault}
    assert "answers 403" in refusal(78, **here, GATEHOUSE_VAULT_AUTH=f"token:{wrong}")
    assert "/login answers 400" in refusal(78, **here, GATEHOUSE_VAULT_AUTH=f"approle:role:{wrong}")
    assert "GATEHOUSE_VAULT_AUTH must be" in refusal(78, **here)
    assert str(tmp_path / "none") in refusal(78, **here, GATEHOUSE_VAULT_AUTH=f"token:{tmp_path / 'none'}")
    changed = by_vault[:-6] + ("AAAA==" if not by_vault.endswith("AAAA==") else "BBBB==")
    assert "answers 400" in refusal(78, **good, **auth, GATEHOUSE_MASTER_KEY=changed)
    there = {**good, "GATEHOUSE_MASTER_KEY": by_token}
    assert "PinIncorrect" in refusal(78, **there, GATEHOUSE_HSM_PIN_FILE=str(wrong))
    assert "NoSuchKey" in refusal(
        78, **good, **token, GATEHOUSE_MASTER_KEY=by_token.replace("=master?", "=other?")
    )
    tampered = by_token[:-6] + ("AAAA==" if not by_token.endswith("AAAA==") else "BBBB==")
    # SoftHSM reports a wrong authentication tag as a fault of its own, which may pass.
    assert "GeneralError" in refusal(75, **good, **token, GATEHOUSE_MASTER_KEY=tampered)
    for url in ("vault://host", "vault+http://vault.example.com/transit/key", "pkcs11:token=x"):
        text = refusal(78, **good, **auth, **token, GATEHOUSE_MASTER_KEY=f"{url} {'x' * 80}")
        assert "Use vault://" in text


def test_service_that_is_away_ends_the_start_with_another_status(
    token: dict[str, str], tmp_path: Path
) -> None:
    """75: a supervisor starts the process again."""
    with running_vault(tmp_path / "vault") as vault:
        auth = {"GATEHOUSE_VAULT_URL": vault.url, "GATEHOUSE_VAULT_AUTH": vault.token}
        environ = production(tmp_path, **auth, GATEHOUSE_MASTER_KEY=wrap_key(auth, vault.url, KEY))
        vault.seal()
        assert "answers 503" in refusal(75, **environ)
    assert "gives no answer" in refusal(75, **environ)
    wrapped = wrap_key(token, token["url"], KEY).replace("token=", "token=removed-")
    assert "NoSuchToken" in refusal(75, **production(tmp_path, **token, GATEHOUSE_MASTER_KEY=wrapped))


@pytest.mark.parametrize(
    "named", ["", "vault://vault.example.com", "vault+http://127.0.0.1:1", "ORIGIN.evil"]
)
def test_vault_that_the_settings_do_not_name_gets_no_credentials(
    vault: Vault, tmp_path: Path, named: str
) -> None:
    auth = {"GATEHOUSE_VAULT_AUTH": vault.token}
    wrapped = wrap_key(auth, vault.url, KEY)
    origin = vault.url.removesuffix("/transit/gatehouse")
    environ = production(tmp_path, **auth, GATEHOUSE_MASTER_KEY=wrapped)
    environ["GATEHOUSE_VAULT_URL"] = named.replace("ORIGIN", origin)
    assert f"type: GATEHOUSE_VAULT_URL={origin}" in refusal(78, **environ)
    environ["GATEHOUSE_VAULT_URL"] = f"vault://other.example, {origin}"
    assert load(environ).master_key == KEY
    # The host is part of a longer name, or comes after credentials.
    for other in (".evil.example", "@evil.example"):
        environ["GATEHOUSE_MASTER_KEY"] = wrapped.replace(origin, f"{origin}{other}".replace("+http", ""))
        assert "does not name" in refusal(78, **environ)


def test_module_that_the_settings_do_not_name_is_not_loaded(token: dict[str, str], tmp_path: Path) -> None:
    wrapped = wrap_key(token, token["url"], KEY).replace(MODULE, f"{tmp_path}/evil.so")
    refused = refusal(78, **production(tmp_path, **token, GATEHOUSE_MASTER_KEY=wrapped))
    assert f"{tmp_path}/evil.so, which GATEHOUSE_HSM_MODULE does not name" in refused


def test_key_that_the_policy_does_not_name_is_rejected(vault: Vault) -> None:
    auth = {"GATEHOUSE_VAULT_AUTH": vault.approle}
    with pytest.raises(UnsafeConfiguration, match="answers 403"):
        wrap_key(auth, vault.url.replace("/gatehouse", "/another"), KEY)
