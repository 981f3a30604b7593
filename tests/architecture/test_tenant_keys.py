"""Keys of what a process remembers begin with the organization's id (TN-9).

Every container that outlives a request is found by its form: made at a module's or an object's beginning, or around a
function. It is a ``BoundedCache`` or a ``ValidatedCache``, whose keys begin with the organization by what they are,
or it is listed below: with a key that begins so although it is written by hand, or as the instance's own, with
the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BY_ORGANIZATION = {"BoundedCache", "ValidatedCache"}
KEEPING = {
    "Counter", "OrderedDict", "defaultdict", "deque", "dict", "list", "set", "WeakKeyDictionary", "WeakValueDictionary",
    "Lock", "RLock", "Semaphore", "BoundedSemaphore", "Condition", "Places",
}  # fmt: skip
ASKING = {"get", "put", "remove", "load"}

# What is keyed by hand, and the type that says by what; the organization's id is the first part.
WRITTEN_BY_HAND = {
    "operations/clients/client_keys.py:_fetching": "set[_Key]",
    "operations/store/outgoing_http.py:Places._taken": "Counter[tuple[str, ...]]",
    "operations/sign_in/passwords.py:_Queue._held": "Counter[tuple[str, str]]",
    "operations/maintenance/dispatcher.py:Dispatcher._organizations": "Counter[str]",
    "operations/maintenance/dispatcher.py:Dispatcher._receivers": "set[tuple[str, str]]",
    "web/failed_requests.py:FailedRequests._counts": "Counter[tuple[str, ...]]",
}
# The instance's own: nothing of one organization can be met by another there.
OF_THE_INSTANCE = {
    "api/endpoints.py:ENDPOINTS": "the routes of the API, declared at import",
    "api/representations.py:_getters": "by model of the API",
    "rules/shapes.py:_unique_lists": "by model of a request",
    "fast_path/cache.py:BoundedCache._values": "what BoundedCache is made of; its methods ask for the organization",
    "fast_path/cache_invalidation.py:_known_changes": "ids of changes that were applied, of any organization",
    "fast_path/cache_invalidation.py:_mapped": "one file of stamps for each instance folder",
    "fast_path/cache_invalidation.py:_mapping": "held while the file of stamps is mapped",
    "fast_path/cache_invalidation.py:_poll_states": "one for each database",
    "fast_path/compiled_query.py:CompiledQuery._compiled": "SQL texts by dialect",
    "fast_path/compiled_query.py:_ThreadConnections.by_engine": "a thread's connection to each database",
    "operations/clients/client_keys.py:_change": "a condition; each waiting thread checks its own key",
    "operations/clients/authenticated_client_cache.py:_proven": "found by the digest of the words, which are a secret of one "
    "client; whose it is, is read from what was found and held against the path's organization",
    "operations/directory/lookups.py:_ids_by_slug": "finds the organization by its slug",
    "operations/store/outgoing_http.py:Places._lock": "held for one addition",
    "operations/store/outgoing_http.py:_deliveries": "counts by organization inside",
    "operations/store/outgoing_http.py:_fetches": "counts by organization inside",
    "operations/store/outgoing_http.py:_lookups": "threads of the machine; who asks has a place of its organization",
    "operations/sign_in/passwords.py:_Queue._lock": "held for one addition",
    "operations/sign_in/passwords.py:_hashing": "cores of the machine; the queue before it is shared out",
    "operations/grants/key_rotation.py:_generation_locks": "by organization and algorithm; held while a key is generated",
    "operations/maintenance/dispatcher.py:Dispatcher._lock": "held for one addition",
    "operations/maintenance/dispatcher.py:Dispatcher._turn": "one thread looks for the next message",
    "operations/store/outbox.py:_deliveries": "kinds of messages, written at the start",
    "operations/store/outbox.py:_receiver_types": "kinds of messages, written at the start",
    "operations/store/outbox.py:_to_strangers": "kinds of messages, written at the start",
    "tenant_fence.py:Fence._good": "texts of statements, without their values",
    "web/failed_requests.py:FailedRequests._waiting": "what waits half a second to be written; counted by organization "
    "before it comes in",
    "web/body_deadline.py:_direct_slots": "numbers; limits the direct reads of the process",
    "web/body_deadline.py:_idle_readers": "threads of the process; none keeps anything of a request",
}
# What lives as long as a request, a file or a refusal does, and tables that never change.
SHORT_LIVED = {
    "oauth/protocol_request.py:ProtocolRequest.parameters",
    "oauth/registration.py:RegistrationRequest.document",
    "operations/maintenance/archive.py:ArchiveWriter._waiting",
    "rules/errors.py:DomainError.details",
    "rules/fields.py:ValidationErrors._errors",
    "rules/organizations/settings.py:NO_BOUNDS",
}
# Functions that remember what they answered: a matter of their arguments alone, the same for whoever asks.
OF_ARGUMENTS = {
    "api/service.py:_document",
    "operations/directory/lookups.py:_effective_settings",
    # Conditions without values: which rows they are asked for stands in each statement.
    "operations/grants/grants.py:grant_issued_after_cutoffs",
    "operations/grants/grants.py:token_issued_after_cutoffs",
    # The first argument is a key of the organization itself.
    "operations/store/keyring.py:_derived",
    "operations/mail/compose.py:_pages",
    "operations/mail/compose.py:_texts",
    "operations/store/outgoing_http.py:_trust",
    "rules/identifiers.py:parse_client_id",
    "rules/languages/catalogs.py:catalog_of",
    "rules/sign_in/passwords.py:_records",
    "rules/sign_in/imported_hashes.py:dummy",
    "rules/sign_in/passwords.py:_common_words",
    "rules/sign_in/passwords.py:dummy_hash",
    "rules/users/profile.py:_zones",
    "web/headers.py:program_headers",
}
# Jobs of the instance, each done by one process at a time; the import of an organization begins with its id.
LEASES = {"LEASE", "LEASE_NAME", "AUDIT_LEASE", "job"}
CACHES = {"cache", "lru_cache"}
# What the first argument of a BoundedCache or a ValidatedCache is called, wherever one is asked.
ORGANIZATIONS = {"organization_id", "organization.id", "client.organization.id", "actor.organization_id"}
ORGANIZATIONS |= {"parsed[0]", "*key"}


def maker(value: ast.expr | None) -> str | None:
    """The name of what makes a container, or None when the value is none; a display that holds something is a table."""
    if isinstance(value, ast.Dict | ast.List):
        is_empty = not (value.keys if isinstance(value, ast.Dict) else value.elts)
        return type(value).__name__.lower() if is_empty else None
    if not isinstance(value, ast.Call):
        return None
    called = value.func.value if isinstance(value.func, ast.Subscript) else value.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    if name == "tuple" and value.args and isinstance(value.args[0], ast.GeneratorExp):
        return maker(value.args[0].elt)
    return name if name in KEEPING | BY_ORGANIZATION else None


def places(source: str, where: str) -> Iterator[tuple[str, str, str]]:
    """(place, what makes it, its annotation) of each container that outlives a request."""
    tree = ast.parse(source)
    for node in tree.body:
        yield from _assigned(node, where)
    for kind in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for method in kind.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                for node in ast.walk(method):
                    yield from _assigned(node, where, kind.name)
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for mark in function.decorator_list:
            called = mark.func if isinstance(mark, ast.Call) else mark
            if (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) in CACHES:
                yield f"{where}:{function.name}", "cache", ""


def _assigned(node: ast.AST, where: str, kind: str | None = None) -> Iterator[tuple[str, str, str]]:
    if isinstance(node, ast.Assign):
        targets, annotation = node.targets, ""
    elif isinstance(node, ast.AnnAssign):
        targets, annotation = [node.target], ast.unparse(node.annotation)
    else:
        return
    made_by = maker(node.value)
    for target in targets:
        name = None
        if kind is None and isinstance(target, ast.Name):
            name = target.id
        elif kind is not None and isinstance(target, ast.Attribute):
            name = f"{kind}.{target.attr}"
        if made_by is not None and name is not None and name != "__all__":
            yield f"{where}:{name}", made_by, annotation


def asked_by(source: str, where: str) -> Iterator[str]:
    """``place: first argument`` of each cache use that does not begin with an organization."""
    kept = {
        place.rpartition(":")[2].rpartition(".")[2]
        for place, made_by, _ in places(source, where)
        if made_by in BY_ORGANIZATION
    }
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        holder = node.func.value
        name = holder.attr if isinstance(holder, ast.Attribute) else getattr(holder, "id", None)
        if node.func.attr in ASKING and name in kept:
            first = ast.unparse(node.args[0]) if node.args else "nothing"
            if first not in ORGANIZATIONS:
                yield f"{where}: {name}.{node.func.attr}({first})"


def modules() -> Iterator[tuple[str, str]]:
    """(source, path below app) of each module."""
    for path in sorted((ROOT / "app").rglob("*.py")):
        yield path.read_text(), path.relative_to(ROOT / "app").as_posix()


def test_tn9_containers_are_keyed_by_organization() -> None:
    """TN-9: a new cache, limiter or lock fails here until it begins so, or says why it is the instance's."""
    found = {place: (made_by, kind) for module in modules() for place, made_by, kind in places(*module)}
    loose = {place for place, (made_by, _) in found.items() if made_by not in BY_ORGANIZATION}
    known = WRITTEN_BY_HAND.keys() | OF_THE_INSTANCE.keys() | SHORT_LIVED | OF_ARGUMENTS
    assert loose - known == set(), (
        "a BoundedCache or a ValidatedCache, whose keys begin with the organization's id?"
    )
    assert known - loose == set(), "these are there no more"
    assert {place: found[place][1] for place in WRITTEN_BY_HAND} == WRITTEN_BY_HAND
    assert all(OF_THE_INSTANCE.values())


def test_tn9_caches_are_read_by_organization() -> None:
    """TN-9."""
    assert [use for module in modules() for use in asked_by(*module)] == []


def test_tn9_leases_are_keyed_by_organization() -> None:
    """TN-9: locks in the database; the tables of limiters have the organization first in their primary keys."""
    for source, where in modules():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"leases.take", "leases.keep"}:
                assert ast.unparse(node.args[0]) in LEASES, where
    importing = (ROOT / "app/operations/maintenance/transfer.py").read_text()
    assert 'job, me = f"{organization_id} ' in importing


@pytest.mark.parametrize(
    "line",
    [
        "_seen: dict[str, int] = {}",
        "_seen = set()",
        "_seen = collections.OrderedDict()",
        "_seen = tuple(threading.Lock() for _ in range(8))",
        "@functools.lru_cache(maxsize=8)\ndef _seen(): pass",
        "class Limiter:\n    def __init__(self):\n        self._seen = Counter[str]()",
    ],
)
def test_tn9_new_container_is_detected(line: str) -> None:
    assert [place.rpartition(":")[2].rpartition(".")[2] for place, *_ in places(line, "new.py")] == ["_seen"]


@pytest.mark.parametrize("first", ["client_id", "(organization_id, client_id)", "address"])
def test_tn9_key_without_organization_is_detected(first: str) -> None:
    made = (
        f"_kept: BoundedCache[int] = BoundedCache(10)\ndef find(): return _kept.get({first}, organization_id)"
    )
    assert len(list(asked_by(made, "new.py"))) == 1
