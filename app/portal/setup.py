"""First run: the page that the set-up link opens. Once set-up is done it answers 404, as if it had never been."""

from __future__ import annotations

from urllib.parse import urlencode

from flask import current_app, make_response, render_template, request
from werkzeug.wrappers import Response

from app.config import Config
from app.operations.maintenance.doctor import run_checks
from app.operations.organizations import setup
from app.portal.blueprint import portal
from app.rules.errors import InvalidInput, NotFound
from app.web.forms import field_errors, text
from app.web.request_log import request_id

_FIELDS = ("email", "name", "organization_name", "organization_id")


@portal.get("/setup")
def setup_form() -> Response:
    """The form, when the link's token is the one that was issued; else where to find the link."""
    _require_first_run()
    return _form(request.args.get("token", ""), {}, {})


@portal.post("/setup")
def setup_submit() -> Response:
    """Everything is made, and the management client's secret is shown; or the form says what is wrong."""
    _require_first_run()
    token = text("token")
    values = {name: text(name) for name in _FIELDS}
    if not setup.is_setup_token(token):
        return _form(token, values, {}, code=400)
    password = request.form.get("password", "")
    if password != request.form.get("password_again", ""):
        return _form(token, values, {"password_again": "The two passwords differ."}, code=400)
    try:
        result = setup.complete_setup(
            token,
            email=values["email"],
            name=values["name"],
            password=password,
            organization_name=values["organization_name"],
            organization_id=values["organization_id"] or None,
            address=request.remote_addr,
            request_id=request_id(),
        )
    except InvalidInput as refusal:
        return _form(token, values, field_errors(refusal), code=400)
    first_client = f"/portal/{result.organization_id}/clients/new"
    page = render_template(
        "portal/setup_done.html",
        result=result,
        base_url=_config().base_url,
        sign_in_url=f"/organizations/root/login?{urlencode({'next': first_client})}",
    )
    return make_response(page)


def _form(token: str, values: dict[str, str], errors: dict[str, str], code: int = 200) -> Response:
    is_valid = setup.is_setup_token(token)
    page = render_template(
        "portal/setup.html",
        token=token if is_valid else "",
        token_was_wrong=bool(token) and not is_valid,
        values=values,
        errors=errors,
        # Whoever holds the token runs this installation; nobody else learns anything about it.
        findings=run_checks(_config()).findings if is_valid else (),
        configured=_config().base_url,
        seen=request.host_url.rstrip("/"),
    )
    return make_response(page, code)


def _require_first_run() -> None:
    if setup.is_set_up():
        raise NotFound("There is nothing here.")


def _config() -> Config:
    config: Config = current_app.config["GATEHOUSE"]
    return config
