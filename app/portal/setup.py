"""First-run setup: the page that the setup link opens. It answers 404 once setup is complete."""

from __future__ import annotations

from urllib.parse import urlencode

from flask import make_response, redirect, render_template, request
from werkzeug.wrappers import Response
from wtforms import HiddenField, PasswordField, StringField
from wtforms.validators import EqualTo, InputRequired, Length

from app.config import command_line, current
from app.operations.maintenance.doctor import run_checks
from app.operations.organizations import setup
from app.portal.context import portal
from app.rules.errors import InvalidInput, NotFound
from app.web.flash import flash, take_flash
from app.web.forms import EmailField, PageForm
from app.web.languages import gettext, lazy_gettext
from app.web.request_log import request_id


class SetupForm(PageForm):
    """Creates root's administrator and the first organization."""

    token = HiddenField()
    email = EmailField(lazy_gettext("Email"), [InputRequired()], render_kw={"autocomplete": "username"})
    name = StringField(
        lazy_gettext("Name"), [InputRequired(), Length(max=100)], render_kw={"autocomplete": "name"}
    )
    password = PasswordField(
        lazy_gettext("Password"),
        [InputRequired()],
        description=lazy_gettext("At least 12 characters. A sentence is easy to remember."),
        render_kw={"autocomplete": "new-password", "maxlength": 128},
    )
    password_again = PasswordField(
        lazy_gettext("Confirm password"),
        [InputRequired(), EqualTo("password", lazy_gettext("The passwords don't match."))],
        render_kw={"autocomplete": "new-password", "maxlength": 128},
    )
    organization_name = StringField(
        lazy_gettext("Organization"),
        [InputRequired(), Length(max=100)],
        description=lazy_gettext("The name that users know, such as Acme."),
        render_kw={"autocomplete": "organization"},
    )
    organization_id = StringField(
        lazy_gettext("Organization ID"),
        [Length(max=40)],
        render_kw={"autocomplete": "off", "spellcheck": "false"},
    )


class SetupTokenForm(PageForm):
    """Asks for the token of the setup link."""

    token = StringField(
        lazy_gettext("Or paste the token from the link"),
        [InputRequired()],
        render_kw={"autocomplete": "off", "spellcheck": "false"},
    )


@portal.get("/setup")
def setup_form() -> Response:
    """Show the setup form for a valid token, or explain where to find the link."""
    _require_first_run()
    return _page(SetupForm(token=request.args.get("token", "")))


@portal.post("/setup")
def setup_submit() -> Response:
    """Set up the installation; the next page shows the secret of the management client once."""
    _require_first_run()
    form = SetupForm()
    token = form.token.data or ""
    if not setup.is_setup_token(token) or not form.validate_on_submit():
        return _page(form, 400)
    try:
        result = setup.complete_setup(
            token,
            email=form.email.data,
            name=form.name.data,
            password=form.password.data,
            organization_name=form.organization_name.data,
            organization_id=form.organization_id.data or None,
            ip_address=request.remote_addr,
            request_id=request_id(),
        )
    except InvalidInput as error:
        form.add_errors(error)
        return _page(form, 400)
    once = {
        "email": result.email,
        "organization_id": result.organization_id,
        "organization_name": result.organization_name,
        "client_id": result.client_id,
        "secret": result.client_secret,
    }
    return flash(redirect("/setup/done", 303), once, organization_id=None)


@portal.get("/setup/done")
def setup_done() -> Response:
    """Show the next steps, and the secret of the management client once."""
    if not setup.is_set_up():
        return redirect("/setup", 303)
    once = take_flash(None)
    first_client = f"/portal/{once.get('organization_id')}/clients/new"
    page = render_template(
        "portal/setup_done.html",
        once=once,
        base_url=current().base_url,
        sign_in_url=f"/organizations/{once.get('organization_id')}/login?{urlencode({'next': first_client})}",
    )
    return make_response(page)


def _page(form: SetupForm, code: int = 200) -> Response:
    token = form.token.data or ""
    is_valid = setup.is_setup_token(token)
    form.organization_id.description = gettext(
        "Part of its URLs, such as %(base_url)s/organizations/acme. It can't be changed "
        "later. Leave empty to derive it from the name.",
        base_url=current().base_url,
    )
    page = render_template(
        "portal/setup.html",
        form=form,
        token_form=SetupTokenForm(formdata=None),
        is_valid=is_valid,
        was_invalid=bool(token) and not is_valid,
        # Anyone with the token controls this installation. Others learn nothing about it.
        findings=run_checks(current()).findings if is_valid else (),
        link_command=command_line("setup --link"),
        configured=current().base_url,
        seen=request.host_url.rstrip("/"),
    )
    return make_response(page, code)


def _require_first_run() -> None:
    if setup.is_set_up():
        raise NotFound("This page does not exist.")
