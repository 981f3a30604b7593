"""Redirect URIs: which can be registered (RU-3, RU-6), and which one a request matches (RU-1, RU-2).

This is an allowlist of our own, because Authlib's check accepts ``javascript://``, wildcards and a trailing
line feed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote, unquote_plus, urlsplit

from app.rules.fields import FieldProblem
from app.rules.languages.translation import lazy_gettext

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
MAX_URI_LENGTH = 2000
_LOOPBACK_HOSTS = ("127.0.0.1", "[::1]", "localhost")
_DANGEROUS_SCHEMES = {
    "javascript",
    "data",
    "vbscript",
    "file",
    "blob",
    "about",
    "view-source",
    "ws",
    "wss",
    "ftp",
}
# The authorization response adds these to the query. A registered one would appear twice (RU-6).
_RESERVED_PARAMETERS = {
    "code", "state", "iss", "error", "error_description", "error_uri", "id_token", "response",
    "access_token", "token_type", "session_state",
}  # fmt: skip
_CHARACTERS = re.compile(r"[A-Za-z0-9._~:/?\[\]@!$&'()+,;=%-]+")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ESCAPED_CONTROL = re.compile(r"%(?:[01][0-9A-Fa-f]|7[Ff])")
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/?]*))?([^?]*)(?:\?(.*))?", re.DOTALL)
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PRIVATE_SCHEME = re.compile(r"[a-z][a-z0-9-]*(?:\.[a-z0-9-]+)+")
_LOOPBACK = re.compile(
    r"(http://(?:127\.0\.0\.1|\[::1\]|localhost))(?::([1-9][0-9]{0,4}))?([/?].*)?", re.DOTALL
)
PAIRWISE = "pairwise"


def match_redirect_uri(sent: str, registered: Iterable[str], *, client_type: str) -> str | None:
    """Return the registered redirect URI that matches the requested one, or None.

    The match is exact (RFC 9700 section 4.1.3). Only a native client can use another port with a loopback URI
    (RFC 8252 section 7.3). Path and query must still be equal.
    """
    registered_uris = tuple(registered)
    if sent in registered_uris:
        return sent
    if client_type != "native":
        return None
    without_port = _without_loopback_port(sent)
    if without_port is None:
        return None
    return next((uri for uri in registered_uris if _without_loopback_port(uri) == without_port), None)


def redirect_uri_problem(
    value: object, *, client_type: str, allowed_hosts: Sequence[str] = ()
) -> FieldProblem | None:
    """Return why the value cannot be registered as a redirect URI, or None.

    ``allowed_hosts`` are the organization's (exact, or ``*.example.com``). An empty list allows every host.
    Loopback and private-use schemes are exempt, because they stay on the user's device.
    """
    if not isinstance(value, str):
        return FieldProblem("wrong_type", "A redirect URI must be a string.")
    problem = _characters_problem(value)
    if problem is not None:
        return problem
    match = _URI.fullmatch(value)
    if match is None:
        return FieldProblem("not_absolute", "Enter the complete URL, beginning with https://.")
    scheme, authority, path, query = match[1], match[2], match[3], match[4]
    problem = _scheme_problem(scheme, authority, client_type)
    if problem is None and authority is not None:
        problem = _authority_problem(scheme, authority, allowed_hosts)
    if problem is None:
        problem = _path_problem(path) or _query_problem(query)
    return problem


def web_url_problem(value: object) -> FieldProblem | None:
    """Return why the value is not an https URL with a host name (client_uri, jwks_uri …), or None."""
    if not isinstance(value, str):
        return FieldProblem("wrong_type", "A URL must be a string.")
    problem = _characters_problem(value)
    match = _URI.fullmatch(value)
    if problem is None and (match is None or match[1] != "https" or not match[2]):
        problem = FieldProblem("not_https", "Enter the complete URL, beginning with https://.")
    if problem is None and match is not None:
        problem = _authority_problem("https", match[2], ()) or _path_problem(match[3])
        if problem is None and match[2].partition(":")[0] in ("localhost", "127.0.0.1", "["):
            problem = FieldProblem(
                "loopback",
                "This URL leads to the device that opens it. Enter a host name that other devices can reach.",
            )
    return problem


def is_loopback(uri: str) -> bool:
    """Return whether the URI leads to the user's own device by http, where any local process may listen."""
    return _LOOPBACK.fullmatch(uri) is not None


def is_private_scheme(uri: str) -> bool:
    """Return whether the URI leads to an app by a private-use scheme (RFC 8252 section 7.1)."""
    scheme = uri.partition(":")[0]
    return _PRIVATE_SCHEME.fullmatch(scheme) is not None


def add_query_parameters(uri: str, parameters: Mapping[str, str | None]) -> str:
    """Add parameters to the URI's query (RFC 6749 section 3.1.2).

    The existing query stays byte for byte (RU-6). Parameters that are None are left out. Values are encoded
    so that they decode to the same UTF-8 (ST-1).
    """
    pairs = [
        f"{quote(name, safe='')}={quote(value, safe='')}"
        for name, value in parameters.items()
        if value is not None
    ]
    separator = "" if uri.endswith(("?", "&")) else "&" if "?" in uri else "?"
    return f"{uri}{separator}{'&'.join(pairs)}" if pairs else uri


def get_display_host(uri: str) -> str:
    """Return where the browser goes, for display: the host, or the scheme of an app's own URI."""
    scheme, _, rest = uri.partition("://")
    if scheme in {"http", "https"}:
        return rest.split("/", 1)[0].split("?", 1)[0]
    return uri.partition(":")[0]


def get_display_hosts(uris: Iterable[str] | None) -> tuple[str, ...]:
    """Return where the browser can go, each once."""
    return tuple(dict.fromkeys(map(get_display_host, uris or ())))


def get_web_origin(uri: str) -> str | None:
    """Return the web origin of an http or https URI (RFC 6454), or None for an app's own scheme."""
    scheme = uri.partition("://")[0]
    if scheme not in _DEFAULT_PORTS:
        return None
    # Browsers omit the default port in Origin.
    return f"{scheme}://{get_display_host(uri).removesuffix(_DEFAULT_PORTS[scheme])}"


def find_sector(document: Mapping[str, Any]) -> str | None:
    """Return the host that identifies the client's sector, or None.

    It is the host of its ``sector_identifier_uri``, or else the common host of its redirect URIs.
    """
    uri = document.get("sector_identifier_uri")
    if uri:
        return urlsplit(str(uri)).hostname
    hosts = {
        urlsplit(uri).hostname if get_web_origin(uri) else None for uri in document.get("redirect_uris") or ()
    }
    return hosts.pop() if len(hosts) == 1 else None


def sector_problem(document: Mapping[str, Any]) -> FieldProblem | None:
    """Return why a pairwise client's sector cannot be determined, or None."""
    if document.get("subject_type") != PAIRWISE or find_sector(document) is not None:
        return None
    return FieldProblem(
        "inconsistent",
        "A pairwise client needs redirect URIs with one common host, or a sector_identifier_uri.",
    )


def sector_document_problem(listed: Any, document: Mapping[str, Any]) -> FieldProblem | None:
    """Return why the sector document does not cover the client's redirect URIs, or None.

    ``listed`` is the document's content, which must be an array that contains each of them.
    """
    if not isinstance(listed, list):
        return FieldProblem("bad_document", "There is no JSON array of redirect URIs at this URL.")
    missing = [uri for uri in document.get("redirect_uris") or () if uri not in listed]
    if missing:
        return FieldProblem(
            "not_listed",
            lazy_gettext("The array at this URL does not contain %(missing)s.", missing=missing[0]),
        )
    return None


def _characters_problem(uri: str) -> FieldProblem | None:
    if not uri:
        return FieldProblem("required", "This must not be empty.")
    if len(uri) > MAX_URI_LENGTH:
        return FieldProblem(
            "too_long",
            lazy_gettext(
                "This has %(count)s characters, and at most %(max_uri_length)s are allowed.",
                count=len(uri),
                max_uri_length=MAX_URI_LENGTH,
            ),
        )
    if not uri.isascii():
        return FieldProblem(
            "not_ascii", "Only ASCII is allowed. Write an international host name in its xn-- form."
        )
    if any(char <= " " or char == "\x7f" for char in uri):
        return FieldProblem(
            "forbidden_character", "This contains a space, a line break or a control character."
        )
    for char, code, message in (
        ("\\", "backslash", "Use / instead of \\. Browsers treat both as the same."),
        ("#", "fragment", "Remove the part from # on. A fragment is not allowed (RFC 6749 section 3.1.2)."),
        ("*", "wildcard", "Wildcards are not allowed. Register each URI."),
    ):
        if char in uri:
            return FieldProblem(code, message)
    if _CHARACTERS.fullmatch(uri) is None:
        return FieldProblem(
            "forbidden_character", "This contains a character that must be percent-encoded in a URI."
        )
    if _BROKEN_ESCAPE.search(uri):
        return FieldProblem("broken_escape", "Each % must be followed by two hexadecimal digits.")
    if _ESCAPED_CONTROL.search(uri):
        return FieldProblem("forbidden_character", "This contains a percent-encoded control character.")
    return None


def _scheme_problem(scheme: str, authority: str | None, client_type: str) -> FieldProblem | None:
    lowered = scheme.lower()
    if lowered in _DANGEROUS_SCHEMES:
        return FieldProblem(
            "forbidden_scheme", lazy_gettext("The scheme %(lowered)s is not allowed.", lowered=lowered)
        )
    if scheme != lowered:
        return FieldProblem("upper_case", "Write scheme and host in lowercase, as browsers send them.")
    if scheme in ("https", "http"):
        if not authority:
            return FieldProblem("no_host", lazy_gettext("A host must follow %(scheme)s://.", scheme=scheme))
        return None
    if _PRIVATE_SCHEME.fullmatch(scheme) is None:
        return FieldProblem(
            "forbidden_scheme",
            "Use https, or for an app a scheme based on your domain, like com.example.app:/callback.",
        )
    if client_type != "native":
        return FieldProblem("forbidden_scheme", "Only a client of type native may use an app's own scheme.")
    return None


def _authority_problem(scheme: str, authority: str, allowed_hosts: Sequence[str]) -> FieldProblem | None:
    if "@" in authority:
        return FieldProblem("userinfo", "Remove the user name before @.")
    host, port = _split_port(authority)
    if port is not None and (_PORT.fullmatch(port) is None or int(port) > 65535):
        return FieldProblem("bad_port", "The port must be a number from 1 to 65535.")
    if scheme not in ("https", "http"):
        return (
            None
            if host == "" or _HOST.fullmatch(host)
            else FieldProblem("bad_host", "This is not a host name.")
        )
    if host in _LOOPBACK_HOSTS:
        return None
    if host.startswith("[") or _NUMERIC_LABEL.fullmatch(host.rpartition(".")[2]):
        return FieldProblem(
            "ip_address", "Use a host name. The only IP addresses allowed are 127.0.0.1 and [::1]."
        )
    if host != host.lower():
        return FieldProblem("upper_case", "Write scheme and host in lowercase, as browsers send them.")
    if len(host) > 253 or _HOST.fullmatch(host) is None:
        return FieldProblem("bad_host", "This is not a valid host name.")
    if scheme == "http":
        return FieldProblem("not_https", "Use https. Only 127.0.0.1, [::1] and localhost can use http.")
    if allowed_hosts and not any(_host_allows(pattern, host) for pattern in allowed_hosts):
        return FieldProblem(
            "host_not_allowed",
            lazy_gettext(
                "This organization allows only these hosts: %(allowed_hosts)s.",
                allowed_hosts=", ".join(allowed_hosts),
            ),
        )
    return None


def _split_port(authority: str) -> tuple[str, str | None]:
    if authority.startswith("["):
        host, bracket, rest = authority.partition("]")
        host += bracket
        return (
            (host, rest[1:] if rest.startswith(":") else None)
            if not rest or rest[0] == ":"
            else (authority, None)
        )
    host, colon, port = authority.partition(":")
    return host, port if colon else None


def _host_allows(pattern: str, host: str) -> bool:
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


def _path_problem(path: str) -> FieldProblem | None:
    segments = re.split(r"[/\\]", unquote(path, "latin-1"))
    if any(segment in (".", "..") for segment in segments):
        return FieldProblem(
            "dot_segment", "Remove the . and .. segments. Browsers resolve them to another path."
        )
    if "\\" in unquote(path, "latin-1"):
        return FieldProblem("backslash", "An encoded backslash is not allowed in the path.")
    return None


def _query_problem(query: str | None) -> FieldProblem | None:
    for part in re.split("[&;]", query or ""):
        name = unquote_plus(part.partition("=")[0]).strip().lower()
        if name in _RESERVED_PARAMETERS:
            return FieldProblem(
                "reserved_parameter",
                lazy_gettext(
                    'The query must not contain "%(name)s", because the response adds it.', name=name
                ),
            )
    return None


def _without_loopback_port(uri: str) -> str | None:
    match = _LOOPBACK.fullmatch(uri)
    if match is None or int(match[2] or "1") > 65535:
        return None
    return match[1] + (match[3] or "")
