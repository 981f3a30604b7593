"""Names of what is counted: short names of grant types and the families that charts show, endpoints and outcomes."""

from __future__ import annotations

from app.rules.clients.client_types import DEVICE_CODE as DEVICE_CODE_URN
from app.rules.clients.client_types import TOKEN_EXCHANGE as TOKEN_EXCHANGE_URN

AUTHORIZATION_CODE, REFRESH_TOKEN = "authorization_code", "refresh_token"
CLIENT_CREDENTIALS, DEVICE_CODE, TOKEN_EXCHANGE = "client_credentials", "device_code", "token_exchange"
GRANTS = (AUTHORIZATION_CODE, DEVICE_CODE, REFRESH_TOKEN, CLIENT_CREDENTIALS, TOKEN_EXCHANGE)
_SHORT_NAMES = {DEVICE_CODE_URN: DEVICE_CODE, TOKEN_EXCHANGE_URN: TOKEN_EXCHANGE}
SIGN_IN, REFRESH, SERVICE = "sign_in", "refresh", "service"
FAMILIES = {
    AUTHORIZATION_CODE: SIGN_IN,
    DEVICE_CODE: SIGN_IN,
    REFRESH_TOKEN: REFRESH,
    CLIENT_CREDENTIALS: SERVICE,
    TOKEN_EXCHANGE: TOKEN_EXCHANGE,
}
SUCCEEDED = ":succeeded"
REJECTED = ":failed"


def grant_name(grant_type: str) -> str:
    """Return the name of a grant type without the prefix of its URN."""
    return _SHORT_NAMES.get(grant_type, grant_type)
