"""Attacks of one organization on another. Each attack yields one finding, good or bad."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from app.cli.isolation.visitor import Reply
from app.cli.isolation.world import Side, filled

_METHODS = ("get", "post", "put", "delete")


class Finding(Struct, frozen=True):
    """An attack and its result; ``breach`` describes a successful one and is empty otherwise."""

    group: str
    attack: str
    breach: str = ""


def on_the_api(attacker: Side, victim: Side, document: dict[str, Any]) -> Iterator[Finding]:
    """Call every operation with the attacker's token and ids of the victim: all are not found (TN-1, TN-2, TN-6)."""
    for path, item in document["paths"].items():
        for method in _METHODS:
            operation = item.get(method)
            if operation is not None and _is_management(operation, path):
                yield from _on_operation(attacker, victim, path, method, item, operation)


def on_oauth_endpoints(attacker: Side, victim: Side) -> Iterator[Finding]:
    """Use the victim's codes, tokens and clients at the attacker's endpoints (MX-3, TN-6, TN-15, IT-1, RV-1, RV-2)."""

    def tell(attack: str, is_good: bool, reply: Reply) -> Finding:
        leaks = reply.holds(victim.corner.marker)
        breach = "" if is_good and not leaks else f"answered {reply.status}: {reply.body[:200]!r}"
        return Finding("OAuth", attack, breach)

    send, here = attacker.visitor.send, attacker.issuer_path
    tokens = victim.tokens()
    access, refresh = str(tokens["access_token"]), str(tokens["refresh_token"])
    refresh_form = {"grant_type": "refresh_token", "refresh_token": refresh}
    for place in ("", here):
        reply = send(
            "POST", f"{place}/oauth/token", basic=attacker.app, form=victim.redemption(victim.code())
        )
        yield tell(f"a code of the other's at {place}/oauth/token", reply.status == 400, reply)
        reply = send("POST", f"{place}/oauth/token", basic=attacker.app, form=refresh_form)
        yield tell(f"a refresh token of the other's at {place}/oauth/token", reply.status == 400, reply)
        reply = send("POST", f"{place}/oauth/introspect", basic=attacker.app, form={"token": access})
        yield tell("introspection of the other's access token", reply.document == {"active": False}, reply)
        reply = send("POST", f"{place}/oauth/revoke", basic=attacker.app, form={"token": refresh})
        yield tell("revocation of the other's refresh token reveals nothing", reply.status == 200, reply)
    own_client = {"grant_type": "client_credentials"}
    known = send("POST", f"{here}/oauth/token", basic=victim.machine, form=own_client)
    unknown = send("POST", f"{here}/oauth/token", basic=(victim.absent("clientId"), "x"), form=own_client)
    yield tell("the other's client at this issuer is an unknown one", known.seen() == unknown.seen(), known)
    reply = send("GET", f"{here}/oauth/userinfo", bearer=access)
    yield tell("the other's access token at this issuer's userinfo", reply.status == 401, reply)
    for name in (victim.slug, victim.absent("id")):
        body = {"organization_id": name, "token_type": "refresh_token", "token": refresh}
        reply = send("POST", "/api/v1/revoke", bearer=attacker.bearer, body=body)
        yield tell("revocation that names the other organization", reply.status == 400, reply)
    body = {"organization_id": attacker.slug, "token_type": "refresh_token", "token": refresh}
    reply = send("POST", "/api/v1/revoke", bearer=attacker.bearer, body=body)
    yield tell("revocation of the other's token as one's own", reply.status == 200, reply)
    keys = [_kids(send("GET", f"{side.issuer_path}/oauth/jwks")) for side in (attacker, victim)]
    shared = keys[0] & keys[1]
    yield Finding("OAuth", "signing keys are not shared", f"shared: {shared}" if shared else "")
    # The victim's own token is still active: the attacks above did not revoke it.
    reply = victim.visitor.send("POST", "/oauth/token", basic=victim.app, form=refresh_form)
    good = reply.status == 200
    breach = "" if good else f"the victim's refresh token was revoked: {reply.body[:200]!r}"
    yield Finding("OAuth", "the victim's tokens stay valid", breach)


def on_the_pages(
    attacker: Side, victim: Side, pages: list[tuple[str, str]], fill: Callable[[str], str]
) -> Iterator[Finding]:
    """Request every page of the victim with the attacker's session cookie, also under the victim's name (TN-16)."""
    own, [stolen] = attacker.cookies, victim.cookies
    disguised = {**own, stolen: next(iter(own.values()))}
    for method, page in pages:
        path = fill(page)
        for label, cookies in (("own cookie", own), ("cookie renamed", disguised)):
            form = {"name": "Taken over", "confirm": "yes"} if method == "POST" else None
            reply = attacker.visitor.send(method, path, cookies=cookies, form=form)
            breach = ""
            # A redirect to the sign-in page contains the URL of the requested page.
            if reply.holds(victim.corner.marker, besides=path):
                breach = f"answered {reply.status} with data of the victim"
            elif reply.status >= 500:
                breach = f"answered {reply.status}"
            yield Finding("pages", f"{method} {page}, {label}", breach)


def _on_operation(
    attacker: Side, victim: Side, path: str, method: str, item: dict[str, Any], operation: dict[str, Any]
) -> Iterator[Finding]:
    body: dict[str, Any] | None = {} if "requestBody" in operation else None

    def ask(ids: dict[str, str], query: dict[str, str] | None = None) -> Reply:
        target = filled(path, ids) or path
        return attacker.visitor.send(method, target, bearer=attacker.bearer, body=body, query=query)

    named = f"{method.upper()} {path}"
    parameters = [name for name in victim.ids if f"{{{name}}}" in path]
    if filled(path, victim.ids) is None:
        yield Finding("not tried", named, "")
        return
    for name in parameters:
        reply = ask({**attacker.ids, name: victim.ids[name]})
        never = ask({**attacker.ids, name: attacker.absent(name)})
        yield Finding("api", f"{named}, {name} of the other's", _difference(reply, never, victim))
    if parameters:
        reply, never = ask(victim.ids), ask({name: attacker.absent(name) for name in parameters})
        yield Finding("api", f"{named}, all ids of the other's", _difference(reply, never, victim))
    names = {parameter.get("name", parameter.get("$ref", "")) for parameter in _parameters(item, operation)}
    if any(name.rpartition("/")[2] in {"organization_id", "organization"} for name in names):
        reply = ask(attacker.ids, {"organization_id": victim.slug})
        never = ask(attacker.ids, {"organization_id": attacker.absent("id")})
        yield Finding("api", f"{named}, organization_id of the other's", _difference(reply, never, victim))
    cursor = _cursor(victim, path) if method == "get" else None
    if cursor is not None:
        reply = ask(attacker.ids, {"cursor": cursor})
        is_good = reply.status == 400 and not reply.holds(victim.corner.marker)
        yield Finding("api", f"{named}, cursor of the other's", "" if is_good else f"answered {reply.status}")


def _difference(reply: Reply, never: Reply, victim: Side) -> str:
    if reply.holds(victim.corner.marker):
        return f"answered {reply.status} with what is the other's"
    if reply.seen() != never.seen():
        return f"answered {reply.status}, and {never.status} for what never was"
    return "" if reply.status in {400, 404} else f"answered {reply.status}"


def _cursor(side: Side, path: str) -> str | None:
    target = filled(path, side.ids)
    if target is None:
        return None
    answer = side.visitor.send("GET", target, bearer=side.bearer, query={"limit": "1"}).document
    meta = answer.get("meta") if isinstance(answer, dict) else None
    return meta.get("next_cursor") if isinstance(meta, dict) else None


def _parameters(item: dict[str, Any], operation: dict[str, Any]) -> list[dict[str, Any]]:
    return [*item.get("parameters", ()), *operation.get("parameters", ())]


def _is_management(operation: dict[str, Any], path: str) -> bool:
    return "/oauth/" not in path and any("bearer" in one for one in operation.get("security", ()))


def _kids(reply: Reply) -> set[str]:
    return {str(key["kid"]) for key in (reply.document or {}).get("keys", ())}
