"""What stands between an authorization request and its answer, in front of this browser's sign-in."""

from __future__ import annotations

from dataclasses import dataclass

from app.operations import clock
from app.operations.directory import ClientView
from app.operations.people.sessions import SessionView
from app.operations.protocol import consents, id_token_hints
from app.operations.protocol.authorization_requests import AuthorizationRequestView
from app.operations.protocol.subjects import subject_of
from app.rules.people.registration import is_open
from app.rules.protocol.authentication_contexts import reached_by
from app.rules.protocol.authorization_request import AuthorizationParameters
from app.rules.protocol.claims_parameter import wanted_subject
from app.rules.protocol.interaction import Circumstances, SignIn, Step, needs_consent, next_step

NATIVE = "native"


@dataclass(frozen=True, slots=True)
class Interaction:
    """The next step; ``allowed`` are the scopes of a consent that stands."""

    step: Step
    allowed: tuple[str, ...]


def next_interaction(
    client: ClientView,
    parameters: AuthorizationParameters,
    session: SessionView | None,
    stored: AuthorizationRequestView | None,
) -> Interaction:
    """What the request needs next; ``stored`` is its record, None when it has just arrived.

    Raises AuthorizationRefusal when it can never be answered by a code in this way.
    """
    allowed = consents.allowed_scopes(client, session.user_id) if session is not None else ()
    asks = needs_consent(
        parameters,
        trust=client.trust,
        is_public=client.is_public or client.type == NATIVE,
        allowed=allowed,
        settings=client.organization.settings,
        is_unreviewed=client.is_unreviewed,
    )
    now = clock.now()
    subject, is_unknown = _subject_meant(client, parameters)
    step = next_step(
        parameters,
        _sign_in(client, session, stored),
        Circumstances(
            began_at=stored.created_at if stored is not None else now,
            now=now,
            needs_consent=asks,
            subject=subject,
            is_hint_unknown=is_unknown,
            can_register=is_open(client.organization.settings),
        ),
    )
    return Interaction(step, allowed)


def _sign_in(
    client: ClientView, session: SessionView | None, stored: AuthorizationRequestView | None
) -> SignIn | None:
    if session is None:
        return None
    return SignIn(
        began_at=session.created_at,
        authenticated_at=session.authenticated_at,
        subject=subject_of(client, session.user_id),
        selected=stored is not None and stored.selected_session_id == session.id,
        context=reached_by(session.amr),
    )


def _subject_meant(client: ClientView, parameters: AuthorizationParameters) -> tuple[str | None, bool]:
    """(the one user whom the request is about, whether its hint names nobody known)."""
    wanted = wanted_subject(parameters.claims)
    if parameters.id_token_hint is None:
        return wanted, False
    hinted = id_token_hints.read_hint(client.organization, parameters.id_token_hint)
    if hinted is None or hinted.client_id != client.client_id:
        return wanted, True
    return wanted or hinted.subject, False
