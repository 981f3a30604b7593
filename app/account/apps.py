"""Connected apps: what the user allowed, and removing access."""

from __future__ import annotations

from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.account.context import AccountContext, account_page
from app.operations.authorization.connected_apps import ConsentRecord, list_consents, withdraw_consent
from app.operations.clients.login_uris import find_login_urls
from app.operations.clients.scopes import ScopeRecord, list_scopes
from app.rules.errors import NotFound
from app.web.languages import translate


@account.get("/organizations/<organization>/account/apps")
@account_page
def apps_page(context: AccountContext) -> Response:
    """List the apps with access to the account and what each may do."""
    apps = list_consents(context.actor)
    login_urls = find_login_urls(context.actor, [app.client_id for app in apps])
    return context.render(
        "account/apps.html", apps=apps, login_urls=login_urls, titles=_scope_titles(context)
    )


@account.get("/organizations/<organization>/account/apps/<consent_id>/remove")
@account_page
def remove_app_page(context: AccountContext, consent_id: str) -> Response:
    """Show what the app will no longer be able to do."""
    app = _find(context, consent_id)
    return context.render("account/app_remove.html", app=app, titles=_scope_titles(context))


@account.post("/organizations/<organization>/account/apps/<consent_id>/remove")
@account_page
def remove_app(context: AccountContext, consent_id: str) -> Response:
    """Remove the app's access."""
    withdraw_consent(context.actor, _find(context, consent_id).id)
    return context.done("/apps", "removed")


def _find(context: AccountContext, consent_id: str) -> ConsentRecord:
    for app in list_consents(context.actor):
        if app.public_id == consent_id:
            return app
    raise NotFound("This app is no longer connected.")


def _scope_titles(context: AccountContext) -> dict[str, str]:
    return {scope.name: _title(scope) for scope in list_scopes(context.actor)}


def _title(scope: ScopeRecord) -> str:
    """Return the title of a scope; only titles of built-in scopes are translated."""
    title = scope.title or scope.name
    return translate(title) if scope.is_identity else title
