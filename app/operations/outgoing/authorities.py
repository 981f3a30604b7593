"""The authorities that servers of clients are believed by, as the operator's file has them."""

from __future__ import annotations

import ssl
from pathlib import Path


def count_authorities(ca_bundle: Path) -> int:
    """How many authorities the file holds. Raises OSError when it cannot be read, ValueError when it is no PEM."""
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        trust.load_verify_locations(cafile=ca_bundle)
    except ssl.SSLError as error:
        raise ValueError("the file holds no certificates in PEM") from error
    return trust.cert_store_stats()["x509_ca"]
