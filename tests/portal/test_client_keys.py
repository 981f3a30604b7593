"""A client's public keys, pasted on its Advanced tab."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.signer import Signer


@pytest.mark.parametrize("pasted", [Signer().jwks, Signer().jwk], ids=["a set", "one key"])
def test_keys_are_pasted_and_stay_as_they_are(make: Any, acme: Any, ada: Any, pasted: dict[str, Any]) -> None:
    client = make.client(acme)
    path = f"/clients/{client.client_id}/advanced"
    form = {
        "grant_types": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_method": "private_key_jwt",
    }
    ada.get(path)
    ada.send(path, version=ada.hidden("version"), jwks=json.dumps(pasted), **form)
    ada.follow()
    assert "Saved. It is live now." in ada.text and Signer().jwk["x"] in ada.page.text

    ada.send(path, version=ada.hidden("version"), jwks=json.dumps(Signer().jwks), **form)
    ada.follow()
    assert "Nothing was different" in ada.text


@pytest.mark.parametrize(
    ("pasted", "words"),
    [
        ("no json <b>", "must be an object"),
        (json.dumps(Signer().key.as_dict(private=True)), "private or symmetric key"),
        ("", "needs the client&#39;s public keys"),
    ],
)
def test_keys_that_are_none_are_refused_at_their_field(
    make: Any, acme: Any, ada: Any, pasted: str, words: str
) -> None:
    client = make.client(acme)
    path = f"/clients/{client.client_id}/advanced"
    ada.get(path)
    form = {
        "grant_types": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_method": "private_key_jwt",
    }
    ada.send(path, version=ada.hidden("version"), jwks=pasted, **form)
    assert ada.page.status_code == 400
    assert words in ada.page.text and "<b>" not in ada.page.text
