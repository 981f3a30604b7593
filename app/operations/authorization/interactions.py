"""What stands between an authorization request and its answer, in front of this browser's sign-in."""

from __future__ import annotations

from dataclasses import dataclass

from app.operations.authorization.authorization_requests import AuthorizationRequestView
from app.operations.authorization.consents import NOTHING_STANDS, Standing, standing_consent
from app.operations.directory.lookups import ClientSnapshot
from app.operations.sign_in.second_factors import find_methods_of_user
from app.operations.sign_in.sessions import SessionRecord
from app.operations.store import clock
from app.operations.tokens import logout
from app.operations.tokens.id_tokens import subject_of
from app.rules.authorization.authorization_request import AuthorizationParameters
from app.rules.authorization.claims_parameter import wanted_subject
from app.rules.authorization.interaction import (
    MULTI_FACTOR,
    Circumstances,
    SignIn,
    Step,
    needs_consent,
    next_step,
    reached_by,
    rests_on_consent,
)
from app.rules.clients.client_types import may_allow
from app.rules.sign_in.second_factors import is_mfa_offered, used_second_factor
from app.rules.users.sign_up import is_registration_open

NATIVE = "native"
DECIDES = "clients:trust"


@dataclass(frozen=True, slots=True)
class Interaction:
    """The next step, what the person's consent for the client says now, and what a code without a page is for."""

    step: Step
    standing: Standing
    scopes: tuple[str, ...]


def next_interaction(
    client: ClientSnapshot,
    parameters: AuthorizationParameters,
    session: SessionRecord | None,
    stored: AuthorizationRequestView | None,
) -> Interaction:
    """What the request needs next; ``stored`` is its record, None when it has just arrived.

    Raises AuthorizationError when it can never be answered by a code in this way.
    """
    standing = NOTHING_STANDS if session is None else standing_consent(client, session.user_id)
    now = clock.now()
    subject, is_unknown = _subject_meant(client, parameters)
    step = next_step(
        parameters,
        _sign_in(client, parameters, session, stored),
        Circumstances(
            began_at=stored.created_at if stored is not None else now,
            now=now,
            needs_consent=must_ask(client, parameters, standing),
            subject=subject,
            is_hint_unknown=is_unknown,
            can_register=is_registration_open(client.organization.settings),
            may_allow=session is None or may_allow_client(client, session),
        ),
    )
    return Interaction(step, standing, scopes_without_page(client, parameters, standing))


def must_ask(client: ClientSnapshot, parameters: AuthorizationParameters, standing: Standing) -> bool:
    """Whether the person is asked on a consent page, whichever flow led there."""
    return needs_consent(
        parameters,
        trust=client.trust,
        is_public=client.is_public or client.type == NATIVE,
        allowed=standing.scopes,
        declined=standing.declined,
        settings=client.organization.settings,
        is_unreviewed=client.is_unreviewed,
        approval=client.approval,
        approved_scopes=client.document.get("approved_scopes") or (),
    )


def scopes_without_page(
    client: ClientSnapshot, parameters: AuthorizationParameters, standing: Standing
) -> tuple[str, ...]:
    """What the client gets of what it asks for where nobody is asked, whichever flow led there."""
    if not rests_on_consent(
        parameters,
        trust=client.trust,
        settings=client.organization.settings,
        approval=client.approval,
        approved_scopes=client.document.get("approved_scopes") or (),
    ):
        return parameters.consent_scopes
    return tuple(scope for scope in parameters.consent_scopes if scope not in standing.declined)


def may_allow_client(client: ClientSnapshot, session: SessionRecord) -> bool:
    """Whether the person who is signed in may allow the client something without asking an administrator."""
    return may_allow(
        approval=client.approval,
        trust=client.trust,
        setting=client.organization.settings["oauth"]["consent"]["members_may_allow"],
        decides=DECIDES in session.permissions,
    )


def _sign_in(
    client: ClientSnapshot,
    parameters: AuthorizationParameters,
    session: SessionRecord | None,
    stored: AuthorizationRequestView | None,
) -> SignIn | None:
    if session is None:
        return None
    return SignIn(
        began_at=session.created_at,
        authenticated_at=session.authenticated_at,
        subject=subject_of(client, session.user_id),
        selected=stored is not None and stored.selected_session_id == session.id,
        contexts=reached_by(session.amr),
        within_reach=_within_reach(client, session) if parameters.acr_values else (),
    )


def _within_reach(client: ClientSnapshot, session: SessionRecord) -> tuple[str, ...]:
    """What the person would reach by signing in with the second factor that they have."""
    if used_second_factor(session.amr) or not is_mfa_offered(client.organization.settings):
        return ()
    return (MULTI_FACTOR,) if find_methods_of_user(client.organization.id, session.user_id) else ()


def _subject_meant(client: ClientSnapshot, parameters: AuthorizationParameters) -> tuple[str | None, bool]:
    """(the one user whom the request is about, whether its hint names nobody known)."""
    wanted = wanted_subject(parameters.claims)
    if parameters.id_token_hint is None:
        return wanted, False
    hinted = logout.read_hint(client.organization, parameters.id_token_hint)
    if hinted is None or hinted.client_id != client.client_id:
        return wanted, True
    return wanted or hinted.subject, False
