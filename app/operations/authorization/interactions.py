"""The next interaction of an authorization request, given the browser's session and the user's consent."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from app.operations.authorization import playground
from app.operations.authorization.authorization_requests import AuthorizationRequestRecord
from app.operations.authorization.consents import (
    NO_CONSENT,
    ConsentState,
    depends_on_user,
    get_consent_state,
)
from app.operations.directory.snapshots import ClientSnapshot
from app.operations.sign_in.second_factors import find_methods_of_user
from app.operations.sign_in.sessions import SessionRecord
from app.operations.store import clock
from app.operations.tokens import logout
from app.operations.tokens.id_tokens import subject_of
from app.rules.authorization.authorization_request import AuthorizationParameters, requested_subjects
from app.rules.authorization.interaction import (
    MULTI_FACTOR,
    InteractionContext,
    SignIn,
    Step,
    contexts_reached,
    needs_consent,
    next_step,
)
from app.rules.clients.client_types import NATIVE, can_user_allow
from app.rules.sign_in.second_factors import is_mfa_offered, used_second_factor
from app.rules.users.profile import is_registration_open

DECIDE_PERMISSION = "clients:trust"


class Interaction(Struct, frozen=True):
    """The next step, the state of the user's consent, and the scopes of a code issued without a page.

    ``trial_ends_at`` is set for a user who tries a client in the playground that they could not allow: the access ends
    then, and no consent is stored.
    """

    step: Step
    consent_state: ConsentState
    scopes: tuple[str, ...]
    trial_ends_at: datetime | None = None

    def limit_end(self, ends_at: datetime | None) -> datetime | None:
        """Return when the access ends, at the latest with the trial; None: it does not end by itself."""
        return min((end for end in (ends_at, self.trial_ends_at) if end is not None), default=None)


def next_interaction(
    client: ClientSnapshot,
    parameters: AuthorizationParameters,
    session: SessionRecord | None,
    stored: AuthorizationRequestRecord | None,
    *,
    is_playground: bool = False,
) -> Interaction:
    """Return the next interaction; ``stored`` is the request's record, None if it has just arrived.

    With ``is_playground``, a user who may change the client tries it, which needs no approval. Raises
    AuthorizationError if the request cannot be granted.
    """
    consent_state = NO_CONSENT if session is None else get_consent_state(client, session.user_id)
    now = clock.now()
    subjects, is_unknown = _requested_subjects(client, parameters)
    may_allow = session is None or can_allow_client(client, session)
    step = next_step(
        parameters,
        _sign_in(client, parameters, session, stored),
        InteractionContext(
            began_at=stored.created_at if stored is not None else now,
            now=now,
            needs_consent=requires_consent_page(client, parameters, consent_state),
            subjects=subjects,
            is_hint_unknown=is_unknown,
            can_register=is_registration_open(client.organization.settings),
            may_allow=may_allow or is_playground,
        ),
    )
    return Interaction(
        step,
        consent_state,
        scopes_without_page(client, parameters, consent_state),
        trial_ends_at=None if may_allow else now + playground.LIFETIME,
    )


def requires_consent_page(
    client: ClientSnapshot, parameters: AuthorizationParameters, consent_state: ConsentState
) -> bool:
    """Return whether the consent page must be shown, in any flow."""
    settings = client.organization.settings
    return needs_consent(
        parameters,
        trust=client.trust,
        is_public=client.is_public or client.type == NATIVE,
        allowed=consent_state.scopes,
        declined=consent_state.declined,
        settings=settings,
        is_unreviewed=not client.remembers_consent,
        approval=client.approval,
        approved_scopes=client.document.get("approved_scopes") or (),
    )


def scopes_without_page(
    client: ClientSnapshot, parameters: AuthorizationParameters, consent_state: ConsentState
) -> tuple[str, ...]:
    """Return the scopes that the client receives without a consent page, in any flow."""
    if not depends_on_user(client, parameters.consent_scopes):
        return parameters.consent_scopes
    return tuple(scope for scope in parameters.consent_scopes if scope not in consent_state.declined)


def can_allow_client(client: ClientSnapshot, session: SessionRecord) -> bool:
    """Return whether the signed-in user may allow the client without administrator approval."""
    return can_user_allow(
        approval=client.approval,
        trust=client.trust,
        setting=client.organization.settings["oauth"]["consent"]["members_may_allow"],
        decides=DECIDE_PERMISSION in session.permissions,
    )


def _sign_in(
    client: ClientSnapshot,
    parameters: AuthorizationParameters,
    session: SessionRecord | None,
    stored: AuthorizationRequestRecord | None,
) -> SignIn | None:
    if session is None:
        return None
    return SignIn(
        created_at=session.created_at,
        authenticated_at=session.authenticated_at,
        subject=subject_of(client, session.user_id),
        selected=stored is not None and stored.selected_session_id == session.id,
        contexts=contexts_reached(session.amr),
        reachable_contexts=_reachable_contexts(client, session) if parameters.acr_values else (),
    )


def _reachable_contexts(client: ClientSnapshot, session: SessionRecord) -> tuple[str, ...]:
    """Return the context classes that the user would reach by signing in with their second factor."""
    if used_second_factor(session.amr) or not is_mfa_offered(client.organization.settings):
        return ()
    return (MULTI_FACTOR,) if find_methods_of_user(client.organization.id, session.user_id) else ()


def _requested_subjects(
    client: ClientSnapshot, parameters: AuthorizationParameters
) -> tuple[frozenset[str] | None, bool]:
    """Return (the requested subjects or None for any, whether the hint names an unknown user)."""
    requested = requested_subjects(parameters.claims)
    if parameters.id_token_hint is None:
        return requested, False
    hinted = logout.read_hint(client.organization, parameters.id_token_hint)
    if hinted is None or hinted.client_id != client.client_id:
        return requested, True
    named = frozenset({hinted.subject})
    return named if requested is None else named & requested, False
