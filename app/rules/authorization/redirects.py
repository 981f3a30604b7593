"""Answers by redirect: parameters are added to the client's URI and nothing of it is changed."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def with_parameters(uri: str, parameters: Mapping[str, str | None]) -> str:
    """The URI with the parameters in its query; its own query stays byte for byte (RFC 6749 section 3.1.2, RU-6).

    Parameters that are None are left out. Values are encoded so that they come back as the UTF-8 they were (ST-1).
    """
    pairs = [
        f"{quote(name, safe='')}={quote(value, safe='')}"
        for name, value in parameters.items()
        if value is not None
    ]
    separator = "" if uri.endswith(("?", "&")) else "&" if "?" in uri else "?"
    return f"{uri}{separator}{'&'.join(pairs)}" if pairs else uri


def host_of(uri: str) -> str:
    """What a person is told of where the browser goes: the host, or the scheme of an app's own address."""
    scheme, _, rest = uri.partition("://")
    if scheme in {"http", "https"}:
        return rest.split("/", 1)[0].split("?", 1)[0]
    return uri.partition(":")[0]


def origin_of(uri: str) -> str | None:
    """The web origin of an http or https URI (RFC 6454), or None for an app's own address."""
    scheme = uri.partition("://")[0]
    if scheme not in _DEFAULT_PORTS:
        return None
    # Browsers leave the default port out of Origin.
    return f"{scheme}://{host_of(uri).removesuffix(_DEFAULT_PORTS[scheme])}"
