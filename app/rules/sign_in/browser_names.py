"""Readable names of browsers and systems from a User-Agent header, for lists shown to users."""

from __future__ import annotations

from app.rules.languages.translation import lazy_gettext, lazy_value

# The first match is used, because Edge and Opera also mention Chrome, and Chrome also mentions Safari.
_BROWSERS = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("Chromium/", "Chromium"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
    ("python", "a Python program"),
    ("Werkzeug/", "a test program"),
)
_SYSTEMS = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


def printable_user_agent(header: str) -> str:
    """Return the header's printable characters, as many as are stored."""
    return "".join(char for char in header if char.isprintable())[:255]


def browser_name(user_agent: str) -> str:
    """Return a name such as ``Firefox on Windows``, or the part of it that is known."""
    browser = next((name for mark, name in _BROWSERS if mark.lower() in user_agent.lower()), None)
    system = next((name for mark, name in _SYSTEMS if mark in user_agent), None)
    if browser and system:
        return lazy_gettext("%(browser)s on %(system)s", browser=browser, system=system)
    if browser:
        return browser
    return (
        lazy_gettext("A browser on %(system)s", system=system) if system else lazy_value("An unknown browser")
    )
