"""Counts that pages show by themselves, such as ``12 clients``. A count within a sentence belongs to its message."""

from __future__ import annotations


def lazy_ngettext(singular: str, plural: str) -> tuple[str, str]:
    """Mark a message with a number for translation; ``%(num)s`` is the number."""
    return singular, plural


COUNTS: dict[str, tuple[str, str]] = {
    "access token": lazy_ngettext("%(num)s access token", "%(num)s access tokens"),
    "active access token": lazy_ngettext("%(num)s active access token", "%(num)s active access tokens"),
    "active secret": lazy_ngettext("%(num)s active secret", "%(num)s active secrets"),
    "active session": lazy_ngettext("%(num)s active session", "%(num)s active sessions"),
    "active token": lazy_ngettext("%(num)s active token", "%(num)s active tokens"),
    "authorization code": lazy_ngettext("%(num)s authorization code", "%(num)s authorization codes"),
    "client": lazy_ngettext("%(num)s client", "%(num)s clients"),
    "connected app": lazy_ngettext("%(num)s connected app", "%(num)s connected apps"),
    "consent": lazy_ngettext("%(num)s consent", "%(num)s consents"),
    "day": lazy_ngettext("%(num)s day", "%(num)s days"),
    "failed request": lazy_ngettext("%(num)s failed request", "%(num)s failed requests"),
    "grant": lazy_ngettext("%(num)s grant", "%(num)s grants"),
    "member": lazy_ngettext("%(num)s member", "%(num)s members"),
    "open access request": lazy_ngettext("%(num)s open access request", "%(num)s open access requests"),
    "open client request": lazy_ngettext("%(num)s open client request", "%(num)s open client requests"),
    "organization": lazy_ngettext("%(num)s organization", "%(num)s organizations"),
    "other session": lazy_ngettext("%(num)s other session", "%(num)s other sessions"),
    "pending sign-up": lazy_ngettext("%(num)s pending sign-up", "%(num)s pending sign-ups"),
    "permission": lazy_ngettext("%(num)s permission", "%(num)s permissions"),
    "recovery code": lazy_ngettext("%(num)s recovery code", "%(num)s recovery codes"),
    "refresh token": lazy_ngettext("%(num)s refresh token", "%(num)s refresh tokens"),
    "row": lazy_ngettext("%(num)s row", "%(num)s rows"),
    "scope": lazy_ngettext("%(num)s scope", "%(num)s scopes"),
    "secret": lazy_ngettext("%(num)s secret", "%(num)s secrets"),
    "session": lazy_ngettext("%(num)s session", "%(num)s sessions"),
    "setting": lazy_ngettext("%(num)s setting", "%(num)s settings"),
    "time": lazy_ngettext("%(num)s time", "%(num)s times"),
    "token": lazy_ngettext("%(num)s token", "%(num)s tokens"),
    "user": lazy_ngettext("%(num)s user", "%(num)s users"),
    "verification method": lazy_ngettext("%(num)s verification method", "%(num)s verification methods"),
}
