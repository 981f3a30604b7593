"""Validation of authorization requests with PKCE, response mode and claims, once client and redirect URI are valid.

The first check that fails determines the error.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec import Struct

from app.rules.clients.client_coherence import PKCE_OPTIONAL, PKCE_OR_NONCE, PKCE_REQUIRED
from app.rules.clients.dpop import is_thumbprint
from app.rules.clients.redirect_uris import get_web_origin
from app.rules.clients.resource_indicators import parse_resources
from app.rules.errors import AuthorizationError, DomainError, InvalidTarget
from app.rules.scopes import SCOPE_OF_CLAIM, disallowed_scopes, parse_scope
from app.rules.sign_in.identity_providers import is_provider_slug
from app.rules.strict_json import load_object
from app.rules.tokens.claims import PROFILE_CLAIMS

MAX_LOGIN_HINT_LENGTH = 320
# An ID token may have 4 KiB of an app's claims, which base64 makes a third longer.
MAX_ID_TOKEN_HINT_LENGTH = 8 * 1024
MAX_UI_LOCALES_LENGTH = 200
_MAX_LOCALES = 10
# The form of BCP 47 tags. Whether a language is available is checked later.
_LOCALE = re.compile(r"[A-Za-z]{2,8}(?:-[A-Za-z0-9]{1,8}){0,6}")
METHOD = "S256"
# fullmatch, never ``^…$`` with match: that lets a line feed through at the end (PK-3).
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")
QUERY, FORM_POST = "query", "form_post"
RESPONSE_MODES = (QUERY, FORM_POST)
PROMPTS = ("none", "login", "consent", "select_account", "create")
MAX_STATE_BYTES = 2048
MAX_NONCE_BYTES = 2048
# Instead of PKCE. Its entropy cannot be measured, and OpenID Connect sets no length; libraries send ten and more.
MIN_NONCE_LENGTH = 8
MAX_MAX_AGE_SECONDS = 10 * 365 * 86400
MAX_ACR_VALUES = 20
# In bytes. Unauthenticated callers can have requests stored, so this limits their size.
MAX_REQUEST_BYTES = 12 * 1024
USERINFO, ID_TOKEN = "userinfo", "id_token"
PLACES = (USERINFO, ID_TOKEN)
# Claims about the sign-in. They are always in the ID token; requesting them sets conditions for the sign-in.
_SIGN_IN_CLAIMS = ("sub", "acr", "auth_time", "amr")
MAX_BYTES = 8 * 1024
_MAX_VALUES = 20
_MAX_VALUE_LENGTH = 255


def login_hint(sent: Mapping[str, str]) -> str | None:
    """Return the login hint, or None if it cannot be an email or username."""
    hint = sent.get("login_hint", "")
    return hint if 1 <= len(hint) <= MAX_LOGIN_HINT_LENGTH and hint.isprintable() else None


def id_token_hint(sent: Mapping[str, str]) -> str | None:
    """Return the ID token that names the requested user, unverified, or None."""
    hint = sent.get("id_token_hint")
    # A truncated ID token fails the later verification, which is intended.
    return hint if hint is None else hint[:MAX_ID_TOKEN_HINT_LENGTH]


def ui_locales(sent: Mapping[str, str]) -> tuple[str, ...]:
    """Return the preferred languages, most preferred first, without invalid tags."""
    tags = [
        tag for tag in sent.get("ui_locales", "")[:MAX_UI_LOCALES_LENGTH].split() if _LOCALE.fullmatch(tag)
    ]
    return tuple(dict.fromkeys(tags))[:_MAX_LOCALES]


def is_challenge(text: str) -> bool:
    """Return whether the text can be an S256 challenge: 43 base64url characters."""
    return _CHALLENGE.fullmatch(text) is not None


def challenge_of(verifier: str) -> str:
    """Return the S256 challenge of a verifier (RFC 7636 section 4.2)."""
    return urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


def is_verifier(text: str) -> bool:
    """Return whether the text has the form of a verifier (RFC 7636 section 4.1)."""
    return _VERIFIER.fullmatch(text) is not None


def is_verified(verifier: str | None, challenge: str) -> bool:
    """Return whether the verifier matches the challenge (PK-4)."""
    if verifier is None or not is_verifier(verifier):
        return False
    return hmac.compare_digest(challenge_of(verifier), challenge)


# The mode fragment is not offered, because scripts of the page and the browser's history could read the code.


def select_response_mode(sent: Mapping[str, str]) -> str:
    """Return the mode of any response, also of errors: the requested one if it is possible, else ``query``."""
    requested = sent.get("response_mode")
    return FORM_POST if requested == FORM_POST and _takes_forms(sent.get("redirect_uri", "")) else QUERY


def validate_response_mode(sent: Mapping[str, str]) -> str:
    """Return the requested mode. Raises AuthorizationError if it is not supported, or not for this redirect URI."""
    requested = sent.get("response_mode", QUERY)
    if requested not in RESPONSE_MODES:
        raise AuthorizationError("invalid_request", "The response_mode must be query or form_post.")
    if requested != select_response_mode(sent):
        raise AuthorizationError(
            "invalid_request", "Redirect URIs with a private scheme require the response_mode query."
        )
    return requested


def _takes_forms(redirect_uri: str) -> bool:
    # A form can be posted only to a web origin.
    return get_web_origin(redirect_uri) is not None


# The description and the cause.
_PKCE_MISSING = {
    PKCE_REQUIRED: ("PKCE is required: the parameter code_challenge is missing.", "pkce_missing"),
    PKCE_OR_NONCE: (
        "Send code_challenge (PKCE), or with openid a nonce of 8 characters or more, or change the setting oauth.pkce.",
        "pkce_or_nonce_missing",
    ),
}

# Unknown parameters are ignored (RFC 6749 section 3.1).
NAMES = (
    "response_type",
    "response_mode",
    "client_id",
    "redirect_uri",
    "scope",
    "state",
    "code_challenge",
    "code_challenge_method",
    "nonce",
    "prompt",
    "max_age",
    "login_hint",
    "id_token_hint",
    "acr_values",
    "claims",
    "ui_locales",
    "dpop_jkt",
    "resource",
    # The name in URLs of the identity provider to sign in with; not a standard.
    "identity_provider",
)


class AuthorizationParameters(Struct, frozen=True):
    """A valid request. ``max_age`` is in seconds; its default is the client's.

    ``resources`` are resource indicators (RFC 8707), ``bare_resources`` those without a requested scope, ``claims`` the
    known part of the claims parameter (OIDC Core 5.5), ``acr_values`` the requested context classes,
    ``id_token_hint`` an unverified ID token, ``dpop_jkt`` the thumbprint that the code is bound to (RFC 9449
    section 10). ``code_challenge`` is None without PKCE.
    """

    redirect_uri: str
    scopes: tuple[str, ...]
    code_challenge: str | None
    state: str | None = None
    nonce: str | None = None
    prompts: tuple[str, ...] = ()
    max_age: int | None = None
    login_hint: str | None = None
    response_mode: str = QUERY
    resources: tuple[str, ...] = ()
    bare_resources: tuple[str, ...] = ()
    claims: Mapping[str, Any] | None = None
    acr_values: tuple[str, ...] = ()
    id_token_hint: str | None = None
    ui_locales: tuple[str, ...] = ()
    dpop_jkt: str | None = None

    @property
    def consent_scopes(self) -> tuple[str, ...]:
        """The scopes that need consent: the requested ones, and those that release the requested claims."""
        return tuple(dict.fromkeys((*self.scopes, *required_scopes(self.claims))))


def parse_authorization_request(
    sent: Mapping[str, str],
    repeated: Collection[str],
    *,
    redirect_uri: str,
    client: Mapping[str, Any],
    code_protection: str = PKCE_REQUIRED,
    default_scopes: tuple[str, ...] = (),
) -> AuthorizationParameters:
    """Validate a request. Raises AuthorizationError (RFC 6749 section 4.1.2.1, OIDC Core 3.1.2.6).

    ``repeated`` are the names of parameters that were sent twice; ``client`` is the client's document.
    ``code_protection`` is what its codes need, one of CODE_PROTECTIONS. ``default_scopes`` are those of a request
    without ``scope`` (RFC 6749 section 3.3).
    """
    _require_each_once(repeated)
    _require_code(sent)
    _require_bounded(sent)
    claims = restrict_to_scopes(parse_claims(sent["claims"]), client["scopes"]) if "claims" in sent else None
    scopes = _scopes(sent, client["scopes"], default_scopes)
    nonce = _bounded(sent, "nonce", MAX_NONCE_BYTES)
    return AuthorizationParameters(
        redirect_uri=redirect_uri,
        scopes=scopes,
        code_challenge=_code_challenge(sent, scopes, nonce, code_protection),
        state=_bounded(sent, "state", MAX_STATE_BYTES),
        nonce=nonce,
        prompts=_prompts(sent),
        max_age=_max_age(sent, client.get("default_max_age")),
        response_mode=validate_response_mode(sent),
        claims=claims,
        acr_values=requested_contexts(claims)
        or _acr_values(sent)
        or tuple(client.get("default_acr_values") or ()),
        login_hint=login_hint(sent),
        id_token_hint=id_token_hint(sent),
        ui_locales=ui_locales(sent),
        dpop_jkt=_dpop_jkt(sent),
        resources=_resources(sent),
    )


def known_parameters(sent: Mapping[str, str]) -> dict[str, str]:
    """Return the known parameters of a request, for storage, without hints that cannot be right."""
    known = {name: sent[name] for name in NAMES if name in sent}
    if login_hint(sent) is None:
        known.pop("login_hint", None)
    if not is_provider_slug(sent.get("identity_provider", "")):
        known.pop("identity_provider", None)
    for name, max_bytes in (
        ("id_token_hint", MAX_ID_TOKEN_HINT_LENGTH),
        ("ui_locales", MAX_UI_LOCALES_LENGTH),
    ):
        if name in known:
            known[name] = known[name][:max_bytes]
    return known


def _require_bounded(sent: Mapping[str, str]) -> None:
    if sum(len(value.encode()) for value in known_parameters(sent).values()) > MAX_REQUEST_BYTES:
        raise AuthorizationError(
            "invalid_request", f"All parameters together are longer than {MAX_REQUEST_BYTES} bytes."
        )


def _require_each_once(repeated: Collection[str]) -> None:
    if repeated:
        raise AuthorizationError("invalid_request", "A parameter was sent more than once.").with_cause(
            "parameter_repeated", received=", ".join(sorted(repeated))
        )


def _require_code(sent: Mapping[str, str]) -> None:
    if "response_type" not in sent:
        raise AuthorizationError(
            "invalid_request", "The parameter response_type is missing. It must be code."
        ).with_cause("parameter_missing", expected="response_type=code")
    if sent["response_type"] != "code":
        raise AuthorizationError("unsupported_response_type", "The response_type must be code.").with_cause(
            "response_type_unsupported", received=sent["response_type"], expected="code"
        )


def is_code_protected(
    protection: str, *, has_challenge: bool, nonce: str | None, scopes: Collection[str]
) -> bool:
    """Return whether a code with this challenge or nonce has the ``protection`` that its client needs.

    A nonce only protects a code that an ID token is issued for, which repeats it (OAuth 2.1 section 7.5.1), and only if
    it cannot be guessed (OpenID Connect Core section 15.5.2): a blank or short one does not.
    """
    if has_challenge or protection == PKCE_OPTIONAL:
        return True
    is_guessable = (
        nonce is None or sum(char.isprintable() and char != " " for char in nonce) < MIN_NONCE_LENGTH
    )
    return protection == PKCE_OR_NONCE and not is_guessable and "openid" in scopes


def _code_challenge(
    sent: Mapping[str, str], scopes: Collection[str], nonce: str | None, protection: str
) -> str | None:
    challenge = sent.get("code_challenge")
    if challenge is None:
        if "code_challenge_method" in sent:
            # Somebody may have removed the challenge on its way here.
            raise AuthorizationError(
                "invalid_request",
                "The parameter code_challenge is missing, but code_challenge_method was sent.",
            ).with_cause("pkce_missing")
        if not is_code_protected(protection, has_challenge=False, nonce=nonce, scopes=scopes):
            description, cause = _PKCE_MISSING[protection]
            raise AuthorizationError("invalid_request", description).with_cause(cause)
        return None
    if sent.get("code_challenge_method") != METHOD:
        raise AuthorizationError(
            "invalid_request", "The parameter code_challenge_method must be S256."
        ).with_cause("pkce_method_unsupported", received=sent.get("code_challenge_method"), expected=METHOD)
    if not is_challenge(challenge):
        raise AuthorizationError(
            "invalid_request", "The code_challenge must be 43 base64url characters."
        ).with_cause("pkce_method_unsupported", received=challenge, expected="43 base64url characters")
    return challenge


def _dpop_jkt(sent: Mapping[str, str]) -> str | None:
    jkt = sent.get("dpop_jkt")
    if jkt is not None and not is_thumbprint(jkt):
        raise AuthorizationError("invalid_request", "The dpop_jkt must be 43 base64url characters.")
    return jkt


def _scopes(
    sent: Mapping[str, str], client_scopes: Collection[str], default_scopes: tuple[str, ...]
) -> tuple[str, ...]:
    text = sent.get("scope", "")
    scopes = parse_scope(text) if text else default_scopes
    if scopes is None:
        raise AuthorizationError("invalid_scope", "The parameter scope is malformed.").with_cause(
            "parameter_malformed", received="scope"
        )
    if not scopes:
        raise AuthorizationError(
            "invalid_scope", "The parameter scope is missing, and the client has no default scopes."
        ).with_cause("parameter_missing", expected="scope")
    refused = disallowed_scopes(scopes, client_scopes)
    if refused:
        raise AuthorizationError(
            "invalid_scope", "The client is not registered for a requested scope."
        ).with_cause("scope_not_allowed", received=" ".join(refused), expected=client_scopes)
    return scopes


def _resources(sent: Mapping[str, str]) -> tuple[str, ...]:
    try:
        return parse_resources(sent.get("resource", ""))
    except InvalidTarget as refused:
        raise AuthorizationError(refused.code, refused.description).with_cause(
            "resource_not_allowed", received=sent.get("resource")
        ) from refused


def _bounded(sent: Mapping[str, str], name: str, max_bytes: int) -> str | None:
    value = sent.get(name)
    if value is not None and len(value.encode()) > max_bytes:
        raise AuthorizationError(
            "invalid_request", f"The parameter {name} is longer than {max_bytes} bytes."
        ).with_cause("parameter_malformed", received=f"{name} of {len(value.encode())} bytes")
    return value


def _prompts(sent: Mapping[str, str]) -> tuple[str, ...]:
    prompts = tuple(sent.get("prompt", "").split())
    if any(prompt not in PROMPTS for prompt in prompts):
        raise AuthorizationError(
            "invalid_request", "The parameter prompt contains an unknown value."
        ).with_cause("parameter_malformed", received=sent["prompt"], expected=PROMPTS)
    if "none" in prompts and len(prompts) > 1:
        raise AuthorizationError(
            "invalid_request", "The prompt none cannot be combined with others."
        ).with_cause("parameter_malformed", received=sent["prompt"], expected="none")
    return tuple(dict.fromkeys(prompts))


def _acr_values(sent: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(sent.get("acr_values", "").split()))[:MAX_ACR_VALUES]


def _max_age(sent: Mapping[str, str], default: int | None) -> int | None:
    text = sent.get("max_age")
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 10 or int(text) > MAX_MAX_AGE_SECONDS:
        raise AuthorizationError(
            "invalid_request", "The parameter max_age must be a number of seconds."
        ).with_cause("parameter_malformed", received=f"max_age={text}")
    return int(text)


def parse_claims(text: str) -> dict[str, Any] | None:
    """Return the known claims of the parameter, or None if there are none.

    Raises AuthorizationError (``invalid_request``) unless it is a JSON object as in section 5.5.
    """
    if len(text.encode()) > MAX_BYTES:
        raise _malformed(f"is longer than {MAX_BYTES} bytes")
    try:
        sent = load_object(text.encode())
    except DomainError as error:
        raise _malformed("is not a JSON object") from error
    known = {place: _claims(sent[place]) for place in PLACES if sent.get(place) is not None}
    return {place: claims for place, claims in known.items() if claims} or None


def requested_names(claims: Mapping[str, Any] | None, place: str) -> tuple[str, ...]:
    """Return the claims requested for ``userinfo`` or ``id_token``."""
    return tuple((claims or {}).get(place) or ())


def required_scopes(claims: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the scopes that release the requested claims, which the user must allow."""
    scopes = (
        SCOPE_OF_CLAIM[name]
        for place in PLACES
        for name in requested_names(claims, place)
        if name in SCOPE_OF_CLAIM
    )
    return tuple(dict.fromkeys(scope for scope in scopes if scope != "openid"))


def restrict_to_scopes(claims: Mapping[str, Any] | None, scopes: Collection[str]) -> dict[str, Any] | None:
    """Return the claims that the scopes release, so that a client cannot get others than it registered for."""
    allowed = {
        place: {
            name: request
            for name, request in requested.items()
            if SCOPE_OF_CLAIM.get(name, "openid") in {"openid", *scopes}
        }
        for place, requested in (claims or {}).items()
    }
    return {place: requested for place, requested in allowed.items() if requested} or None


def requested_subjects(claims: Mapping[str, Any] | None) -> frozenset[str] | None:
    """Return the values of ``sub`` that satisfy the request (section 5.5.1), or None for any."""
    sets = [frozenset(values) for place in (ID_TOKEN, USERINFO) if (values := _values(claims, place, "sub"))]
    return frozenset.intersection(*sets) if sets else None


def requested_contexts(claims: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the requested ``acr`` values, most preferred first; empty for any."""
    return _values(claims, ID_TOKEN, "acr")


def are_contexts_essential(claims: Mapping[str, Any] | None) -> bool:
    """Return whether the request must fail if the sign-in reaches none of them (section 5.5.1.1).

    Without values, the claim is satisfied by any class: those of ``acr_values`` and of the client stay voluntary.
    """
    request = ((claims or {}).get(ID_TOKEN) or {}).get("acr") or {}
    return bool(request.get("essential") and request.get("values"))


def _values(claims: Mapping[str, Any] | None, place: str, name: str) -> tuple[str, ...]:
    request = ((claims or {}).get(place) or {}).get(name) or {}
    return tuple(request.get("values") or ())


def _claims(sent: Any) -> dict[str, Any]:
    if not isinstance(sent, dict):
        raise _malformed("contains a member that is not an object")
    return {
        name: _claim_request(name, request)
        for name, request in sent.items()
        if name in PROFILE_CLAIMS or name in _SIGN_IN_CLAIMS
    }


def _claim_request(name: str, sent: Any) -> dict[str, Any] | None:
    if sent is None:
        return None
    if not isinstance(sent, dict) or not isinstance(sent.get("essential", False), bool):
        raise _malformed("contains a claim that is neither null nor an object")
    values = sent.get("values", [])
    if not isinstance(values, list) or ("value" in sent and "values" in sent):
        raise _malformed("contains values that are not an array, or both value and values")
    request: dict[str, Any] = {"essential": True} if sent.get("essential") else {}
    # Other claims have one value, which is released whatever value was requested.
    if name in {"sub", "acr"}:
        request["values"] = _texts([sent["value"]] if "value" in sent else values)
    return {key: value for key, value in request.items() if value} or None


def _texts(values: Iterable[Any]) -> list[str]:
    texts = [value for value in values if isinstance(value, str) and 1 <= len(value) <= _MAX_VALUE_LENGTH]
    if len(texts) != len(list(values)) or len(texts) > _MAX_VALUES:
        raise _malformed("contains too many values of sub or acr, or one that is not a short string")
    return texts


def _malformed(what: str) -> AuthorizationError:
    return AuthorizationError("invalid_request", f"The parameter claims {what}.")
