"""Signing keys of an organization: which sign, which only verify, and rotation before their time."""

from __future__ import annotations

from app.operations.tokens.signing_key_lists import (
    list_removed_by_emergency,
    list_signing_keys,
    rotate_signing_key,
)
from app.portal.blueprint import portal
from app.portal.visit import Answer, Visit, visiting
from app.web.forms import text


@portal.get("/portal/<organization>/settings/keys")
@visiting
def signing_keys(visit: Visit) -> Answer:
    """Every published key, with what happens to it next."""
    return visit.render(
        "portal/settings/keys.html",
        keys=list_signing_keys(visit.actor, visit.organization.slug),
        algorithm=visit.organization.settings["oauth"]["signing"]["algorithm"],
    )


@portal.post("/portal/<organization>/settings/keys/rotate")
@visiting
def rotate_keys(visit: Visit) -> Answer:
    """The next key of the algorithm is published, or, published for a day, it signs."""
    key = rotate_signing_key(visit.actor, visit.organization.slug, algorithm=text("algorithm"))
    return visit.done("/settings/keys", "key-published" if key.state == "next" else "key-signs")


@portal.get("/portal/<organization>/settings/keys/<algorithm>/replace")
@visiting
def ask_to_replace_keys(visit: Visit, algorithm: str) -> Answer:
    """What will stop working. Asks for a fresh sign-in."""
    removed = list_removed_by_emergency(visit.actor, visit.organization.slug, algorithm)
    return visit.render("portal/settings/replace_keys.html", removed=removed, algorithm=algorithm)


@portal.post("/portal/<organization>/settings/keys/<algorithm>/replace")
@visiting
def replace_keys(visit: Visit, algorithm: str) -> Answer:
    """A fresh key signs; every other of the algorithm is gone."""
    rotate_signing_key(visit.actor, visit.organization.slug, algorithm=algorithm, emergency=True)
    return visit.done("/settings/keys", "keys-replaced")
