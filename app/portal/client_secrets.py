"""Secrets of a client: add, reveal and revoke them, and follow a rotation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from flask import redirect, request
from wtforms import BooleanField, HiddenField, SelectChoice

from app.operations.clients import rotations
from app.operations.clients.client_records import ClientRecord
from app.operations.clients.client_usage import (
    get_client_credentials,
    preview_credential_creation,
    preview_reveal,
    preview_revocation,
)
from app.operations.clients.credential_revocation import revoke_credentials
from app.operations.clients.credential_rows import CredentialRecord
from app.operations.clients.credentials import confirm_credential, create_credential, reveal_credential
from app.operations.clients.rotations import get_rotation
from app.portal.clients import client_page
from app.portal.context import Confirmation, PageResponse, PortalContext, portal_page
from app.rules.errors import Conflict, InvalidInput
from app.web.forms import PageForm, plain_text_field, radio_field, select_field
from app.web.languages import ago, duration, gettext, html_gettext, lazy_gettext, number, translate

_EXTENSIONS: dict[int, str] = {
    3_600: lazy_gettext("in 1 hour"),
    86_400: lazy_gettext("in 1 day"),
    7 * 86_400: lazy_gettext("in 7 days"),
    30 * 86_400: lazy_gettext("in 30 days"),
}
# Python refuses to read numbers of thousands of digits.
_WHOLE_NUMBER = re.compile(r"[0-9]{1,12}")
_CREDENTIALS = "/clients/<client_id>/credentials"


class NewSecretForm(PageForm):
    """Adds a secret, and optionally retires the others (a rotation)."""

    name = plain_text_field(
        lazy_gettext("Name"),
        max_length=100,
        description=lazy_gettext("Helps you tell secrets apart. Leave empty to use the current month."),
    )
    others = radio_field(lazy_gettext("Existing secrets"), default="keep")
    revoke_tokens = BooleanField(
        lazy_gettext("Revoke tokens issued with the old secrets when they expire"),
        description=lazy_gettext(
            "Use this if a secret may have leaked. Otherwise, tokens stay valid until they expire."
        ),
    )


class RevokeSecretForm(PageForm):
    """Revokes a secret."""

    revoke_tokens = BooleanField(lazy_gettext("Also revoke the tokens issued with this secret"))


class RotationForm(PageForm):
    """Changes when the old secrets of a rotation expire; 0 seconds is now."""

    expires_in_seconds = select_field(
        lazy_gettext("New expiry"),
        choices={str(seconds): label for seconds, label in _EXTENSIONS.items()},
        default="86400",
        description=lazy_gettext("Counted from the time you save."),
    )
    revoke_tokens = BooleanField(lazy_gettext("Revoke tokens issued with the old secret when it expires"))

    def values(self) -> dict[str, Any]:
        """Return the fields as the operation takes them."""
        seconds = self.expires_in_seconds.data or ""
        return {
            "expires_in_seconds": int(seconds) if _WHOLE_NUMBER.fullmatch(seconds) else seconds,
            "revoke_tokens": self.revoke_tokens.data,
        }


class FinishRotationForm(PageForm):
    """Ends a rotation now."""

    expires_in_seconds = HiddenField(default="0")
    revoke_tokens = BooleanField(
        lazy_gettext("Also revoke tokens issued with the old secret"),
        description=lazy_gettext("Otherwise, these tokens stay valid until they expire."),
    )


class CancelRotationForm(PageForm):
    """Cancels a rotation."""

    revoke_new = BooleanField(
        lazy_gettext("Also revoke the new secret"),
        description=lazy_gettext("Otherwise, both secrets keep working."),
    )


@portal_page(_CREDENTIALS, "GET")
def credentials(context: PortalContext, client_id: str) -> PageResponse:
    """Show the client ID, and the secrets for actors who may see them."""
    ledger = get_client_credentials(context.actor, client_id)
    may_see = ledger.secrets is not None
    return client_page(
        context,
        ledger.client,
        "credentials",
        secrets=ledger.live if may_see else None,
        inactive_secrets=ledger.ended,
        retiring=[secret for secret in ledger.live if secret.is_retiring],
        uses_secret=ledger.client.uses_secret,
        max_secrets=context.organization.settings["oauth"]["clients"]["max_secrets"],
        may_see_secrets=may_see,
        may_change_secrets=ledger.may_change,
    )


@portal_page(f"{_CREDENTIALS}/new", "GET", "POST")
def new_secret(context: PortalContext, client_id: str) -> PageResponse:
    """Add a secret, which the credentials tab shows once; retiring the others starts a rotation."""
    ledger = preview_credential_creation(context.actor, client_id)
    overlap = context.organization.settings["oauth"]["clients"]["rotation_overlap_seconds"]
    form = NewSecretForm()
    form.others.choices = [
        SelectChoice("keep", gettext("Keep"), {"help": gettext("All secrets work until you revoke them.")}),
        SelectChoice(
            "retire",
            gettext("Rotate"),
            {
                "help": gettext(
                    "The old secrets expire in %(overlap)s. You can cancel the rotation until then.",
                    overlap=duration(overlap),
                )
                if overlap
                else gettext("The old secrets stop working immediately.")
            },
        ),
    ]
    if request.method == "GET" and request.args.get("others") == "retire":
        form.others.data = "retire"
    if form.validate_on_submit():
        with form.show_errors(InvalidInput, Conflict, fields={"retire_others_in_seconds": "others"}):
            made = create_credential(
                context.actor,
                client_id,
                {
                    "name": form.name.data or None,
                    "retire_others_in_seconds": overlap if form.others.data == "retire" else None,
                },
                revoke_tokens=form.revoke_tokens.data,
            )
            return _show_secret(context, "client_secret", made.credential, made.secret, made.retired)
    return context.render(
        "portal/clients/new_secret.html",
        form=form,
        client=ledger.client,
        client_url=_url(context, ledger.client),
        has_secrets=bool(ledger.live),
    )


@portal_page(f"{_CREDENTIALS}/<credential_id>/reveal", "GET", "POST")
def reveal(context: PortalContext, client_id: str, credential_id: str) -> PageResponse:
    """Let the credentials tab show a secret once; a link shows the form. Requires a fresh sign-in."""
    found = preview_reveal(context.actor, client_id, credential_id)
    form = PageForm()
    if form.validate_on_submit():
        secret = reveal_credential(context.actor, client_id, credential_id)
        return _show_secret(context, "revealed_secret", found.secret, secret)
    return context.render(
        "portal/clients/reveal.html",
        form=form,
        client=found.client,
        client_url=_url(context, found.client),
        credential=found.secret,
    )


@portal_page(f"{_CREDENTIALS}/<credential_id>/confirm", "POST")
def confirm(context: PortalContext, client_id: str, credential_id: str) -> PageResponse:
    """Let a secret from before a restore work again. Requires a fresh sign-in."""
    confirm_credential(context.actor, client_id, credential_id)
    return context.done(f"/clients/{client_id}/credentials", "secret-confirmed")


@portal_page(f"{_CREDENTIALS}/<credential_id>/revoke", "GET", "POST")
def revoke(context: PortalContext, client_id: str, credential_id: str) -> PageResponse:
    """Show the impact, and revoke the secret. The last one requires a fresh sign-in."""
    found = preview_revocation(context.actor, client_id, credential_id)
    form = RevokeSecretForm()
    if form.validate_on_submit():
        revoke_credentials(
            context.actor, client_id, credential_id=credential_id, revoke_tokens=form.revoke_tokens.data
        )
        notice = "secret-and-tokens-revoked" if form.revoke_tokens.data else "secret-revoked"
        return context.done(f"/clients/{client_id}/credentials", notice)
    if not found.secret.is_live and not found.secret.is_blocked:
        return redirect(f"{_url(context, found.client)}/credentials", 303)
    tokens = number(found.secret.live_tokens)
    if found.secret.live_tokens >= 1000:
        tokens = gettext("%(num)s or more", num=tokens)
    form.revoke_tokens.description = gettext(
        "Use this if the secret may have leaked. Active tokens: %(tokens)s.", tokens=tokens
    )
    secret, name = found.secret, found.client.name
    used = (
        html_gettext(
            "The secret was last used %(at)s from %(address)s.",
            at=ago(secret.last_used_at),
            address=secret.last_used_address,
        )
        if secret.last_used_address
        else html_gettext("The secret was last used %(at)s.", at=ago(secret.last_used_at))
    )
    impact = (
        gettext(
            "Requests with gth_cs_••••••••%(hint)s are rejected immediately. You can't undo this.",
            hint=secret.hint,
        ),
        gettext(
            "This is the last secret of %(name)s. The client can't authenticate until you add another one.",
            name=name,
        )
        if found.is_last
        else None,
        used if secret.last_used_at else gettext("The secret has never been used."),
    )
    parents = ((gettext("Clients"), "/clients"), (name, f"/clients/{client_id}/credentials"))
    return context.confirm(
        form,
        Confirmation(
            gettext("Revoke secret %(name)s?", name=secret.name),
            gettext("Revoke secret"),
            parents,
            impact,
            translate(secret.verdict) if secret.last_used_at else "",
        ),
    )


@portal_page(f"{_CREDENTIALS}/rotation", "GET")
def rotation(context: PortalContext, client_id: str, form: RotationForm | None = None) -> PageResponse:
    """Show the new and the old secrets of a rotation, and whether the old ones are still used."""
    found = get_rotation(context.actor, client_id)
    ledger = get_client_credentials(context.actor, client_id)
    client_url = _url(context, ledger.client)
    if not found.is_under_way:
        return redirect(f"{client_url}/credentials", 303)
    revokes_tokens = any(old.takes_tokens for old in found.old)
    return context.render(
        "portal/clients/rotation.html",
        form=form or RotationForm(revoke_tokens=revokes_tokens),
        finish_form=FinishRotationForm(revoke_tokens=revokes_tokens),
        cancel_form=CancelRotationForm(),
        client=ledger.client,
        client_url=client_url,
        rotation=found,
        may_change=ledger.may_change,
    )


@portal_page(f"{_CREDENTIALS}/rotation/update", "POST")
def update_rotation(context: PortalContext, client_id: str) -> PageResponse:
    """Change when the old secrets expire, or end the rotation now."""
    form = RotationForm()
    with form.show_errors(InvalidInput):
        updated = rotations.update_rotation(context.actor, client_id, form.values())
        if updated.is_under_way:
            return context.done(f"/clients/{client_id}/credentials/rotation", "rotation-updated")
        return context.done(f"/clients/{client_id}/credentials", "rotation-finished")
    return rotation(context, client_id, form)


@portal_page(f"{_CREDENTIALS}/rotation/cancel", "POST")
def cancel_rotation(context: PortalContext, client_id: str) -> PageResponse:
    """Keep the old secrets, and revoke the new one if that is checked."""
    form = CancelRotationForm()
    rotations.cancel_rotation(context.actor, client_id, revoke_new=form.revoke_new.data)
    return context.done(f"/clients/{client_id}/credentials", "rotation-cancelled")


def _show_secret(
    context: PortalContext,
    kind: str,
    credential: CredentialRecord,
    secret: str,
    retired: Sequence[CredentialRecord] = (),
) -> PageResponse:
    """Redirect to the credentials tab, which shows the secret once."""
    return context.done(
        f"/clients/{credential.client_id}/credentials",
        kind=kind,
        name=credential.name,
        secret=secret,
        retired=[old.name for old in retired],
        retired_expire_at=retired[0].expires_at if retired else None,
    )


def _url(context: PortalContext, client: ClientRecord) -> str:
    return context.url(f"/clients/{client.client_id}")
