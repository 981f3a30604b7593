"""The forms of the authorization and device pages."""

from __future__ import annotations

from wtforms import StringField, TextAreaField
from wtforms.validators import DataRequired

from app.rules.authorization.consents import MAX_REASON_LENGTH
from app.web.forms import PageForm
from app.web.languages import lazy_gettext

_PLAIN = {"spellcheck": "false"}


class ApprovalRequestForm(PageForm):
    """Ask administrators to approve an app."""

    reason = TextAreaField(
        lazy_gettext("Why do you need this app?"),
        [DataRequired()],
        description=lazy_gettext("Administrators will see this together with your name."),
        render_kw={"rows": 3, "maxlength": MAX_REASON_LENGTH},
    )


class DeviceOrganizationForm(PageForm):
    """Find the organization of a device. The form is sent with GET and needs no CSRF token."""

    class Meta(PageForm.Meta):
        """Settings of a form that changes nothing."""

        csrf = False

    organization = StringField(
        lazy_gettext("Organization"),
        [DataRequired()],
        description=lazy_gettext("The short name in the URL shown on your device, such as acme."),
        render_kw={**_PLAIN, "autocapitalize": "none", "maxlength": 40},
    )


class UserCodeForm(PageForm):
    """Enter the code that a device shows."""

    user_code = StringField(
        lazy_gettext("Code shown on your device"),
        [DataRequired()],
        id="user-code",
        description=lazy_gettext(
            "Eight letters, such as BCDF-GHJK. You can leave out dashes and use lowercase."
        ),
        render_kw={
            **_PLAIN,
            "autocapitalize": "characters",
            "autocomplete": "off",
            "autofocus": True,
            "maxlength": 64,
        },
    )
