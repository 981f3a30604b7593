"""Connected apps: what one allowed, and taking it back."""

from __future__ import annotations

from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.account.visit import Visit, own_account
from app.operations.authorization.connected_apps import ConsentRecord, list_consents, withdraw_consent
from app.operations.clients.login_uris import find_login_urls
from app.operations.clients.scopes import ScopeRecord, list_scopes
from app.rules.errors import NotFound
from app.web.languages import in_page_language


@account.get("/organizations/<organization>/account/apps")
@own_account
def apps_page(visit: Visit) -> Response:
    """The apps that may act for this person, with what each may do in words."""
    apps = list_consents(visit.actor)
    addresses = find_login_urls(visit.actor, [app.client_id for app in apps])
    return visit.render("account/apps.html", apps=apps, addresses=addresses, words=_words(visit))


@account.get("/organizations/<organization>/account/apps/<consent_id>/remove")
@own_account
def ask_to_remove(visit: Visit, consent_id: str) -> Response:
    """What will stop working."""
    app = _find(visit, consent_id)
    return visit.render("account/app_remove.html", app=app, words=_words(visit))


@account.post("/organizations/<organization>/account/apps/<consent_id>/remove")
@own_account
def remove(visit: Visit, consent_id: str) -> Response:
    """The app may do nothing more for this person."""
    withdraw_consent(visit.actor, _find(visit, consent_id).id)
    return visit.done("/apps", "removed")


def _find(visit: Visit, consent_id: str) -> ConsentRecord:
    for app in list_consents(visit.actor):
        if app.public_id == consent_id:
            return app
    raise NotFound("There is no such connected app.")


def _words(visit: Visit) -> dict[str, str]:
    return {scope.name: _title(scope) for scope in list_scopes(visit.actor)}


def _title(scope: ScopeRecord) -> str:
    """Ours in the page's language; an organization's own in the words that it chose."""
    title = scope.title or scope.name
    return in_page_language(title) if scope.is_identity else title
