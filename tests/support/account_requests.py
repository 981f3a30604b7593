"""A valid request for each page before and after a member's sign-in."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pyotp
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app.extensions import db
from app.models.session import KnownBrowser
from app.operations.sign_in.identity_providers import create_identity_provider
from app.operations.sign_in.sessions import start_session
from app.operations.store import clock
from app.operations.users.groups import create_group
from app.operations.users.invitations import create_invitation
from app.operations.users.password_resets import issue_reset_link
from app.rules.identifiers import new_id, public_id
from tests.account.test_passkeys import asked
from tests.factories import PASSWORD, MadeUser
from tests.oauth.conftest import location
from tests.support import world_rows
from tests.support.authenticator import with_app
from tests.support.https_server import reaching
from tests.support.identity_provider import identity_provider
from tests.support.request_world import SAME_ORIGIN, RequestWorld, ValidRequest, cookies_of, form_of
from tests.support.security_key import Authenticator as SecurityKey


class AccountRequests(RequestWorld):
    """The pages of users."""

    def account(self) -> Iterator[ValidRequest]:
        """Every page before and after a member's sign-in."""
        yield from self._account_pages()
        yield from self._factor_pages()
        yield from self._sign_in_pages()
        yield from self._links()
        yield from self._provider_pages()

    def _both(self, name: str, path: str, http: FlaskClient, /, **typed: Any) -> Iterator[ValidRequest]:
        """Return the page and its form, sent from the browser."""
        cookies = cookies_of(http)
        yield ValidRequest(f"account.{name}", "GET", path, cookies)
        form = form_of(http.get(path), urlsplit(path).path)
        yield ValidRequest(f"account.{name}", "POST", path, cookies_of(http), SAME_ORIGIN, form=form | typed)

    def _account_pages(self) -> Iterator[ValidRequest]:
        user, http, _ = self.signed_in(role=None)
        base, cookies = f"{self.home}/account", cookies_of(http)
        with self.app.app_context():
            consent = world_rows.consented(self.make.client(self.organization), user)
        for name, path in {
            "start_page": "/",
            "choose_organization": "/login",
            "find_password_page": "/.well-known/change-password",
            "account_home": base,
            "activity_page": f"{base}/activity",
            "apps_page": f"{base}/apps",
            "remove_app_page": f"{base}/apps/{consent}/remove",
            "security_page": f"{base}/security",
            "passkeys_page": f"{base}/security/passkeys",
            "sessions_page": f"{base}/sessions",
            "sign_out_page": f"{self.home}/logout",
        }.items():
            yield ValidRequest(f"account.{name}", "GET", path, cookies)
        with self.app.app_context():
            _, other = start_session(self.organization, user.id)
        known = self._known_browser(user)
        for name, path in {
            "remove_app": f"{base}/apps/{consent}/remove",
            "end_one_session": f"{base}/sessions/{public_id('ses', other)}/end",
            "end_all_other_sessions": f"{base}/sessions/end-others",
            "remove_browser": f"{base}/sessions/known/{known}/forget",
            "sign_out": f"{self.home}/logout",
        }.items():
            yield ValidRequest(f"account.{name}", "POST", path, cookies, SAME_ORIGIN, form={})
        yield from self._both("delete_account_page", f"{base}/delete", http, email=user.email)
        yield from self._both("email_page", f"{base}/email", http)
        yield from self._both("change_password_page", f"{base}/password", http)
        yield from self._both("profile_page", f"{base}/profile", http, name="Renamed")

    def _known_browser(self, user: MadeUser) -> str:
        """Add a browser in which the user is recognized and return its id."""
        with self.app.app_context():
            row_id, now = new_id(), clock.now()
            db.session.add(
                KnownBrowser(
                    organization_id=self.organization.id,
                    id=row_id,
                    digest=secrets.token_bytes(32),
                    user_id=user.id,
                    created_at=now,
                    last_used_at=now,
                    expires_at=now + timedelta(days=1),
                )
            )
            db.session.commit()
        return public_id("kbr", row_id)

    def _factor_pages(self) -> Iterator[ValidRequest]:
        base = f"{self.home}/account/security"
        _, http, _ = self.signed_in(role=None, factors=False)
        key = SecurityKey(counter=None)
        page = http.get(f"{base}/passkeys/add")
        yield ValidRequest("account.add_passkey_page", "GET", f"{base}/passkeys/add", cookies_of(http))
        form = {"answer": key.create(asked(page)), "name": "Phone"}
        added = ValidRequest(
            "account.add_passkey_page",
            "POST",
            f"{base}/passkeys/add",
            cookies_of(http),
            SAME_ORIGIN,
            form=form,
        )
        yield added
        _, http, _ = self.signed_in(role=None, factors=False)
        yield from self._both("add_app_page", f"{base}/app", http, **self._new_app(http.get(f"{base}/app")))
        _, http, _ = self.signed_in(role=None)
        yield from self._both("remove_app_factor_page", f"{base}/app/remove", http)
        yield from self._both("recovery_codes_page", f"{base}/recovery-codes", http)
        _, http, _ = self._with_passkey()
        found = re.search(r"passkeys/(pky_\w+)", http.get(f"{base}/passkeys").text)
        assert found is not None
        yield from self._both("passkey_page", f"{base}/passkeys/{found[1]}", http, name="Renamed")
        path = f"{base}/passkeys/{found[1]}/remove"
        yield ValidRequest(
            "account.remove_passkey_action", "POST", path, cookies_of(http), SAME_ORIGIN, form={}
        )

    def _new_app(self, page: TestResponse) -> dict[str, Any]:
        """Return the fields of the page's form that set up the authenticator app that it shows."""
        key = re.search(r'id="app-key">([^<]+)<', page.text)
        sealed = re.search(r'name="secret" value="([^"]+)"', page.text)
        assert key and sealed, page.text
        phone = pyotp.TOTP(key[1].replace(" ", ""))

        def code() -> str:
            with self.app.app_context():
                return phone.at(clock.now())

        return {"secret": sealed[1], "code": code}

    def _with_passkey(self) -> tuple[MadeUser, FlaskClient, SecurityKey]:
        """Return a member with a passkey, signed in."""
        user, http, _ = self.signed_in(role=None, factors=False)
        key, path = SecurityKey(counter=None), f"{self.home}/account/security/passkeys/add"
        answer = http.post(
            path, data={"answer": key.create(asked(http.get(path))), "name": "Phone"}, headers=SAME_ORIGIN
        )
        assert answer.status_code == 303, answer.text
        return user, http, key

    def _sign_in_pages(self) -> Iterator[ValidRequest]:
        plain, login = self.make.user(self.organization), f"{self.home}/login"
        typed = {"email": plain.email, "password": PASSWORD}
        yield from self._both("sign_in_page", login, self.app.test_client(), **typed)
        wrong = typed | {"password": "nothing of the kind"}
        yield ValidRequest("account.sign_in_page refused", "POST", login, "", SAME_ORIGIN, form=wrong)
        phone = with_app(self.app, plain)
        http, step = self._first_step(plain)
        phone.code()
        yield from self._both("verify_page", step, http, code=phone.shown)
        user, _, key = self._with_passkey()
        http = self.app.test_client()
        yield ValidRequest("account.passkey_options", "GET", f"{login}/passkey", cookies_of(http))
        form = {"answer": key.get(asked(http.get(login)))}
        yield ValidRequest(
            "account.sign_in_by_passkey", "POST", f"{login}/passkey", cookies_of(http), SAME_ORIGIN, form=form
        )
        http, step = self._first_step(user)
        form = {"sign_in": step.partition("sign_in=")[2], "answer": key.get(asked(http.get(step)))}
        path = f"{login}/verify/passkey"
        yield ValidRequest(
            "account.verify_with_passkey", "POST", path, cookies_of(http), SAME_ORIGIN, form=form
        )
        self._change_settings({"authentication": {"mfa": {"policy": "required"}}})
        http, step = self._first_step(self.make.user(self.organization))
        yield from self._both("enrol_page", step, http, **self._new_app(http.get(step)))
        http, step = self._first_step(self.make.user(self.organization))
        form = {
            "sign_in": step.partition("sign_in=")[2],
            "answer": SecurityKey(counter=None).create(asked(http.get(step))),
            "name": "Phone",
        }
        path = f"{login}/enrol/passkey"
        yield ValidRequest("account.enrol_passkey", "POST", path, cookies_of(http), SAME_ORIGIN, form=form)
        yield ValidRequest("account.enrolled_page", "GET", f"{login}/enrolled", cookies_of(http))
        self._change_settings()

    def _first_step(self, user: MadeUser) -> tuple[FlaskClient, str]:
        """Enter the password in a new browser; return it and the path of the second step."""
        http = self.app.test_client()
        form = {"email": user.email, "password": PASSWORD}
        answer = http.post(f"{self.home}/login", data=form, headers=SAME_ORIGIN)
        assert answer.status_code == 303 and "sign_in=" in location(answer), location(answer)
        return http, location(answer)

    def _provider_pages(self) -> Iterator[ValidRequest]:
        """The pages of an identity provider, which accepts each code as often as it is sent."""
        user, http, _ = self.signed_in(role=None)
        base, begin = f"{self.home}/account/security/identities", f"{self.home}/login/with/answering"
        config = self.app.config["GATEHOUSE"]
        with identity_provider(reuses_codes=True) as fake:
            self.app.config["GATEHOUSE"] = reaching(config, fake.server)
            try:
                with self.app.app_context():
                    fields = fake.fields | {"slug": "answering", "create_users": True}
                    actor = self.make.actor(self.organization)
                    provider = create_identity_provider(actor, fields)
                    followed = {"provider_id": provider.public_id, "value": "everyone"}
                    group = {"name": "Followers", "provider_groups": [followed]}
                    create_group(actor, self.organization.slug, group)
                    fake.claims["groups"] = ["everyone"]
                    identity = world_rows.linked_to(provider, user.id, "of the user")
                cookies, visitor = cookies_of(http), self.app.test_client()
                visitor.get(f"{self.home}/login")
                begun = ValidRequest(
                    "account.begin_provider_sign_in_action",
                    "POST",
                    begin,
                    cookies_of(visitor),
                    SAME_ORIGIN,
                    form={},
                )
                yield begun
                back = urlsplit(fake.authorize(location(begun.send(self.app))))
                path = f"{back.path}?{back.query}"
                yield ValidRequest("account.provider_callback", "GET", path, begun.cookies)
                yield ValidRequest(
                    "provider_logout.end_sessions",
                    "POST",
                    f"{self.home}/oauth/backchannel-logout/answering",
                    form={"logout_token": fake.logout_token()},
                )
                yield ValidRequest("account.identities_page", "GET", base, cookies)
                for name, path in {
                    "link_identity_action": f"{base}/link/answering",
                    "unlink_identity_action": f"{base}/{identity}/remove",
                }.items():
                    yield ValidRequest(f"account.{name}", "POST", path, cookies, SAME_ORIGIN, form={})
            finally:
                self.app.config["GATEHOUSE"] = config

    def _links(self) -> Iterator[ValidRequest]:
        """The pages that links in emails lead to, and those that request one."""
        user, http, _ = self.signed_in(role=None)
        http.post(f"{self.home}/account/email", data={"email": "moved@example.com"}, headers=SAME_ORIGIN)
        yield from self._both("verify_email_page", self._mailed("confirm-address"), http)
        visitor = self.app.test_client()
        sign_up = {"name": "New", "email": "signs.up@example.com", "password": PASSWORD}
        yield from self._both("sign_up_page", f"{self.home}/register", visitor, **sign_up)
        visitor.post(f"{self.home}/register", data=sign_up, headers=SAME_ORIGIN)
        yield from self._both("confirm_registration_page", self._mailed("confirm"), visitor)
        yield from self._both("forgot_password_page", f"{self.home}/forgot", visitor, email=user.email)
        with self.app.app_context():
            actor = self.make.actor(self.organization)
            issue_reset_link(actor, user.id)
            create_invitation(actor, self.organization.slug, email="invited@example.com")
        yield from self._both("reset_password_page", self._mailed("reset"), visitor)
        yield from self._both("invitation_page", self._mailed("invite"), visitor, name="Invited")

    def _mailed(self, page: str) -> str:
        """Return the path of the latest link to the page that was sent by email."""
        self.deliver()
        links = [urlsplit(link).path for link in self.box.links()]
        return next(link for link in reversed(links) if f"/{page}/" in link)
