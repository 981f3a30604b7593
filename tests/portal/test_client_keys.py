"""Public keys of a client on its Advanced tab."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.signer import Signer


@pytest.mark.parametrize("pasted", [Signer().jwks, Signer().jwk], ids=["a set", "one key"])
def test_pasted_keys_are_saved_unchanged(make: Any, acme: Any, ada: Any, pasted: dict[str, Any]) -> None:
    client = make.client(acme)
    path = f"/clients/{client.client_id}/advanced"
    form = {
        "grant_types": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_method": "private_key_jwt",
    }
    ada.get(path)
    ada.send(path, version=ada.hidden("version"), jwks=json.dumps(pasted), **form)
    ada.follow()
    assert "Saved. The change is live." in ada.text and Signer().jwk["x"] in ada.page.text

    ada.send(path, version=ada.hidden("version"), jwks=json.dumps(Signer().jwks), **form)
    ada.follow()
    assert "No changes to save" in ada.text


@pytest.mark.parametrize(
    ("pasted", "message"),
    [
        ("no json <b>", "must be an object"),
        (json.dumps(Signer().key.as_dict(private=True)), "private or symmetric key"),
        ("", "requires the client&#39;s public keys"),
    ],
)
def test_invalid_keys_show_error_at_field(make: Any, acme: Any, ada: Any, pasted: str, message: str) -> None:
    client = make.client(acme)
    path = f"/clients/{client.client_id}/advanced"
    ada.get(path)
    form = {
        "grant_types": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_method": "private_key_jwt",
    }
    ada.send(path, version=ada.hidden("version"), jwks=pasted, **form)
    assert ada.page.status_code == 400
    assert message in ada.page.text and "<b>" not in ada.page.text
