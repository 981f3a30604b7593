"""Webhooks: the list, one with its deliveries, its form, its signing secret, and one delivery."""

from __future__ import annotations

import json
from typing import Any

from werkzeug.wrappers import Response as BaseResponse
from wtforms import BooleanField, SelectChoice, URLField
from wtforms.validators import InputRequired, Length

from app.operations.audit.webhook_deliveries import get_delivery, list_deliveries, redeliver, send_test
from app.operations.audit.webhooks import (
    WebhookRecord,
    create_webhook,
    delete_webhook,
    get_webhook,
    list_webhooks,
    require_fresh_webhook_permissions,
    require_webhook_permissions,
    rotate_webhook_secret,
    update_webhook,
)
from app.portal.context import Confirmation, PageResponse, PortalContext, portal_page
from app.portal.labels import EVENT_GROUPS, EVENT_WORDS, WEBHOOK_DISABLED_REASONS
from app.rules.audit.events import ALL_EVENTS, EVENT_TYPES, GROUPS
from app.rules.errors import Conflict, DomainError, InvalidInput, TooManyRequests
from app.web.forms import CheckboxListField, PageForm, StringListField, VersionField, plain_text_field
from app.web.languages import gettext, lazy_gettext


class WebhookForm(PageForm):
    """A webhook; event types are chosen by group or by name."""

    version = VersionField()
    url = URLField(
        lazy_gettext("URL"),
        [InputRequired(), Length(max=2048)],
        description=lazy_gettext("A public https URL, such as https://example.com/hooks."),
        render_kw={"autocomplete": "off", "spellcheck": "false"},
    )
    description = plain_text_field(
        lazy_gettext("Description"), max_length=200, description=lazy_gettext("For you and your colleagues.")
    )
    groups = CheckboxListField(
        lazy_gettext("Events"),
        description=lazy_gettext(
            "A group also includes event types that are added later. You can add single event types below."
        ),
    )
    event_types = StringListField(
        lazy_gettext("Single event types"),
        description=lazy_gettext("One per line, such as user.registered."),
        render_kw={"rows": 3, "spellcheck": "false", "autocapitalize": "off"},
    )
    is_enabled = BooleanField(
        lazy_gettext("Enabled"),
        description=lazy_gettext(
            "A disabled webhook receives nothing, and its pending deliveries are dropped."
        ),
    )

    def values(self) -> dict[str, Any]:
        """Return the fields as the operations take them; single event types come first, so that errors name a line."""
        values = {
            "url": self.url.data,
            "description": self.description.data,
            "event_types": [*self.event_types.data, *self.groups.data],
        }
        if "is_enabled" in self:
            values["status"] = "enabled" if self.is_enabled.data else "disabled"
        return values


class RotateSecretForm(PageForm):
    """Replaces the signing secret."""

    immediately = BooleanField(
        lazy_gettext("Stop signing with the current secret immediately"),
        description=lazy_gettext("Use this if the secret has leaked."),
    )


@portal_page("/webhooks", "GET")
def webhooks(context: PortalContext) -> PageResponse:
    """List the webhooks, newest first."""
    page = list_webhooks(context.actor, context.page_request())
    return context.render("portal/webhooks/list.html", page=page)


@portal_page("/webhooks/new", "GET", "POST")
def webhook_new(context: PortalContext) -> PageResponse:
    """Add a webhook, whose page shows the signing secret once."""
    # Require the fresh sign-in before the user fills in the form.
    require_fresh_webhook_permissions(context.actor)
    form = _form(None)
    if form.validate_on_submit():
        with form.show_errors(InvalidInput, Conflict):
            made = create_webhook(context.actor, form.values())
            return _show_secret(context, made.record, made.secret, "webhook")
    return _form_page(context, None, form)


@portal_page("/webhooks/<webhook_id>", "GET")
def webhook_page(context: PortalContext, webhook_id: str, error: DomainError | None = None) -> BaseResponse:
    """Show one webhook and its deliveries."""
    webhook = get_webhook(context.actor, webhook_id)
    page = list_deliveries(context.actor, webhook_id, context.page_request())
    return context.render(
        "portal/webhooks/show.html",
        webhook=webhook,
        page=page,
        listing=f"/webhooks/{webhook_id}",
        error=error,
        disabled_reasons=WEBHOOK_DISABLED_REASONS,
    )


@portal_page("/webhooks/<webhook_id>/edit", "GET", "POST")
def webhook_edit(context: PortalContext, webhook_id: str) -> PageResponse:
    """Show and change a webhook."""
    require_webhook_permissions(context.actor)
    webhook = get_webhook(context.actor, webhook_id)
    form = _form(webhook)
    if form.validate_on_submit():
        with form.show_edit_errors(gettext("this webhook"), webhook.version):
            _, changed = update_webhook(
                context.actor, webhook_id, form.values(), expected_version=form.version.data
            )
            return context.done(f"/webhooks/{webhook_id}", "saved" if changed else "unchanged")
    return _form_page(context, webhook, form)


@portal_page("/webhooks/<webhook_id>/secret", "GET", "POST")
def webhook_secret(context: PortalContext, webhook_id: str) -> PageResponse:
    """Confirm and replace the signing secret; the webhook's page shows the new one once."""
    require_fresh_webhook_permissions(context.actor)
    webhook = get_webhook(context.actor, webhook_id)
    form = RotateSecretForm()
    if form.validate_on_submit():
        overlap = {"overlap_seconds": 0} if form.immediately.data else {}
        made = rotate_webhook_secret(context.actor, webhook_id, overlap)
        return _show_secret(context, made.record, made.secret, "webhook_secret")
    return context.render("portal/webhooks/rotate.html", form=form, webhook=webhook)


@portal_page("/webhooks/<webhook_id>/test", "POST")
def webhook_test(context: PortalContext, webhook_id: str) -> PageResponse:
    """Send a test event."""
    try:
        made = send_test(context.actor, webhook_id)
    except (Conflict, TooManyRequests) as error:
        return webhook_page(context, webhook_id, error)
    return context.done(f"/webhooks/{webhook_id}/deliveries/{made.public_id}", "webhook-sent")


@portal_page("/webhooks/<webhook_id>/delete", "GET", "POST")
def webhook_delete(context: PortalContext, webhook_id: str) -> PageResponse:
    """Confirm and delete a webhook."""
    webhook = get_webhook(context.actor, webhook_id)
    context.actor.require("webhooks:write")
    page = (webhook.label, f"/webhooks/{webhook_id}")
    impact = (
        gettext("No more events are sent to %(url)s.", url=webhook.url),
        gettext("Pending deliveries are dropped, and the signing secret is deleted."),
    )
    return context.confirm_change(
        Confirmation(
            gettext("Delete this webhook?"),
            gettext("Delete webhook"),
            ((gettext("Webhooks"), "/webhooks"), page),
            impact,
        ),
        lambda: delete_webhook(context.actor, webhook_id),
        "/webhooks",
        "webhook-deleted",
    )


@portal_page("/webhooks/<webhook_id>/deliveries/<delivery_id>", "GET")
def webhook_delivery(
    context: PortalContext, webhook_id: str, delivery_id: str, error: DomainError | None = None
) -> BaseResponse:
    """Show one delivery: the request, and the status and headers of the response."""
    delivery = get_delivery(context.actor, webhook_id, delivery_id)
    return context.render(
        "portal/webhooks/delivery.html",
        webhook=get_webhook(context.actor, webhook_id),
        delivery=delivery,
        body=None if delivery.body is None else json.dumps(delivery.body, indent=2, ensure_ascii=False),
        error=error,
    )


@portal_page("/webhooks/<webhook_id>/deliveries/<delivery_id>/redeliver", "POST")
def webhook_redeliver(context: PortalContext, webhook_id: str, delivery_id: str) -> PageResponse:
    """Send an event again."""
    try:
        redeliver(context.actor, webhook_id, delivery_id)
    except (Conflict, TooManyRequests) as error:
        return webhook_delivery(context, webhook_id, delivery_id, error)
    return context.done(f"/webhooks/{webhook_id}/deliveries/{delivery_id}", "webhook-sent")


def _form(webhook: WebhookRecord | None) -> WebhookForm:
    types = webhook.event_types if webhook else ()
    form = WebhookForm(
        obj=webhook,
        groups=[name for name in types if name.endswith(ALL_EVENTS)],
        event_types=[name for name in types if not name.endswith(ALL_EVENTS)],
        is_enabled=webhook is not None and webhook.is_enabled,
    )
    names = (ALL_EVENTS, *sorted(GROUPS, key=lambda name: str(EVENT_GROUPS[name]).lower()))
    form.groups.choices = [SelectChoice(name, EVENT_GROUPS[name], {"help": _members(name)}) for name in names]
    if webhook is None:
        del form.version, form.is_enabled
    return form


def _members(group: str) -> str | None:
    if group == ALL_EVENTS:
        return None
    names = [name for name in EVENT_TYPES if name.startswith(group.removesuffix(ALL_EVENTS))]
    return ", ".join(str(EVENT_WORDS[name.partition(".")[2].replace("_", " ")]) for name in names)


def _form_page(context: PortalContext, webhook: WebhookRecord | None, form: WebhookForm) -> BaseResponse:
    return context.render("portal/webhooks/form.html", form=form, webhook=webhook, event_types=EVENT_TYPES)


def _show_secret(context: PortalContext, webhook: WebhookRecord, secret: str, kind: str) -> BaseResponse:
    return context.done(f"/webhooks/{webhook.public_id}", kind=kind, secret=secret)
