"""Flask's session as a small signed cookie that is read and written only when it is used."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator
from typing import Any

from flask import Flask, Request, Response
from flask.sessions import SessionInterface, SessionMixin
from itsdangerous import BadSignature, URLSafeSerializer

from app.operations.store.keyring import derive_instance_key


class AnonymousSession(SessionMixin):
    """A session that is loaded on first access."""

    def __init__(self, load: Callable[[], dict[str, Any]]) -> None:
        self._load = load
        self._values: dict[str, Any] | None = None
        self.modified = False
        self.accessed = False
        self.new = False

    @property
    def loaded(self) -> dict[str, Any]:
        """Return the content."""
        if self._values is None:
            self.accessed = True
            self._values = self._load()
        return self._values

    def __getitem__(self, key: str) -> Any:
        return self.loaded[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.loaded[key] = value
        self.modified = True

    def __delitem__(self, key: str) -> None:
        del self.loaded[key]
        self.modified = True

    def __iter__(self) -> Iterator[str]:
        return iter(self.loaded)

    def __len__(self) -> int:
        return len(self.loaded)


class AnonymousCookie(SessionInterface):
    """A signed session cookie: HttpOnly, SameSite=Lax, deleted with the browser session. It holds no secret."""

    def __init__(self, name: str, *, is_secure: bool) -> None:
        self.name = name
        self.is_secure = is_secure

    def open_session(self, app: Flask, request: Request) -> AnonymousSession:
        return AnonymousSession(lambda: self._read(request))

    def save_session(self, app: Flask, session: SessionMixin, response: Response) -> None:
        if not session.modified:
            return
        value = self._signer().dumps(dict(session))
        response.set_cookie(self.name, value, secure=self.is_secure, httponly=True, samesite="Lax", path="/")

    def _read(self, request: Request) -> dict[str, Any]:
        value = request.cookies.get(self.name)
        if not value:
            return {}
        try:
            values = self._signer().loads(value)
        except BadSignature:
            return {}
        return values if isinstance(values, dict) else {}

    @staticmethod
    def _signer() -> URLSafeSerializer:
        return URLSafeSerializer(
            derive_instance_key("anonymous cookie"),
            salt="gatehouse",
            signer_kwargs={"digest_method": hashlib.sha256},
        )


def new_browser_id() -> str:
    """Return 256 random bits."""
    return secrets.token_urlsafe(32)
