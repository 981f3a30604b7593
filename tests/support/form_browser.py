"""A browser without scripts: follows redirects, fills in real forms, keeps cookies."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qs, urljoin, urlsplit

import requests

MAX_REDIRECTS = 12


@dataclass(slots=True)
class Form:
    """A form of a page: its action, its values, and its buttons by id."""

    action: str
    method: str
    values: list[tuple[str, str]] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)
    buttons: dict[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """The page shown, or in ``left`` the external URL that the browser was sent to."""

    url: str
    status: int = 0
    text: str = ""
    left: str | None = None

    @property
    def query(self) -> dict[str, str]:
        """Return the query of the external URL."""
        return {name: values[0] for name, values in parse_qs(urlsplit(self.left or self.url).query).items()}

    def form_with(self, element_id: str) -> Form:
        """Return the form that contains the element with this id."""
        reader = Forms()
        reader.feed(self.text)
        for form in reader.forms:
            if element_id in form.ids or element_id in form.buttons:
                return form
        raise AssertionError(f"no form with #{element_id} on {self.url} ({self.status}):\n{self.text[:3000]}")

    def has(self, element_id: str) -> bool:
        """Return whether an element has this id."""
        return f'id="{element_id}"' in self.text


class FormBrowser:
    """One browser. Redirects within ``home`` and ``app`` are followed; any other one ends in ``left``.

    ``app`` is the URL of a client's site. ``ca_path`` is the authority to trust if one is an https server of the tests.
    """

    def __init__(self, home: str, *, app: str | None = None, ca_path: Path | None = None) -> None:
        self.home = home
        self._sites = (home,) if app is None else (home, app)
        self.session = requests.Session()
        if ca_path is not None:
            # Environment variables for certificates would take precedence.
            self.session.trust_env = False
            self.session.verify = str(ca_path)

    def visit(self, url: str) -> Page:
        """Open the URL, follow redirects and return the page."""
        return self._follow("GET", urljoin(self.home, url), [])

    def press(self, page: Page, button: str, **typed: str) -> Page:
        """Press the button with this id and return the page; ``typed`` are field values by id."""
        form = page.form_with(button)
        names = {form.ids[element]: value for element, value in typed.items()}
        values = [(name, value) for name, value in form.values if name not in names]
        values += list(names.items())
        name, value = form.buttons[button]
        if name:
            values.append((name, value))
        return self._follow(form.method, urljoin(page.url, form.action or page.url), values)

    def sign_in(self, page: Page, email: str, password: str) -> Page:
        """Fill in and submit the sign-in form."""
        return self.press(page, "login-submit", username=email, password=password)

    def _follow(self, method: str, url: str, values: list[tuple[str, str]]) -> Page:
        for _ in range(MAX_REDIRECTS):
            if not url.startswith(self._sites):
                return Page(url, left=url)
            # Forms post to their own site, and each site starts with its origin.
            site = next(site for site in self._sites if url.startswith(site))
            headers = {"Origin": site, "Sec-Fetch-Site": "same-origin"} if method == "POST" else {}
            answer = self.session.request(
                method,
                url,
                data=values if method == "POST" else None,
                params=values if method == "GET" and values else None,
                headers=headers,
                allow_redirects=False,
                timeout=60,
            )
            if answer.is_redirect:
                url, method, values = urljoin(url, answer.headers["Location"]), "GET", []
                continue
            return Page(answer.url, answer.status_code, answer.text)
        raise AssertionError(f"more than {MAX_REDIRECTS} redirects, now at {url}")


class Forms(HTMLParser):
    """Reads the forms of a page into ``forms``."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._select: str | None = None

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        if tag == "form":
            self.forms.append(Form(given.get("action", ""), given.get("method", "get").upper()))
            return
        if (
            tag == "option"
            and self._select is not None
            and (self._select not in dict(self.forms[-1].values) or "selected" in given)
        ):
            self.forms[-1].values = [pair for pair in self.forms[-1].values if pair[0] != self._select]
            self.forms[-1].values.append((self._select, given.get("value", "")))
        if not self.forms or tag not in {"input", "button", "textarea", "select"}:
            return
        form, name, kind = self.forms[-1], given.get("name", ""), given.get("type", "")
        if tag == "button" or kind == "submit":
            form.buttons[given.get("id", name)] = (name, given.get("value", ""))
            return
        if "id" in given:
            form.ids[given["id"]] = name
        if tag == "select":
            # The selected option gives the value, or the first one.
            self._select = name or None
        elif name and (kind not in {"checkbox", "radio"} or "checked" in given):
            form.values.append((name, given.get("value", "on" if kind == "checkbox" else "")))

    def handle_endtag(self, tag: str) -> None:
        if tag == "select":
            self._select = None
