"""A valid request for each endpoint of SCIM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from app.operations.sign_in.provisioning_tokens import create_provisioning_token
from tests.factories import bearer_header
from tests.support.request_world import RequestWorld, ValidRequest

URN = "urn:ietf:params:scim:schemas:core:2.0:"
PATCH = {"schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"]}
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
ALWAYS_REFUSED = {(f"scim.{name}", method) for name in ("unsupported", "unknown") for method in _METHODS}
"""Routes that only say that there is nothing."""


class ScimRequests(RequestWorld):
    """What an identity provider sends to provision users."""

    def provisioning(self) -> Iterator[ValidRequest]:
        """The endpoints of SCIM."""
        with self.app.app_context():
            actor = self.make.actor(self.organization)
            new = create_provisioning_token(actor, self.spare_provider)
        headers = bearer_header(new.token)

        def request(name: str, method: str, path: str, body: Any = None) -> ValidRequest:
            return ValidRequest(
                f"scim.{name}", method, f"{self.home}/scim/v2{path}", headers=headers, json=body
            )

        for name, path in (
            ("show_configuration", "/ServiceProviderConfig"),
            ("list_resource_types", "/ResourceTypes"),
            ("show_resource_type", "/ResourceTypes/User"),
            ("list_schemas", "/Schemas"),
            ("show_schema", f"/Schemas/{URN}User"),
            ("list_users", '/Users?filter=userName eq "scim@example.com"'),
            ("list_groups", '/Groups?filter=displayName eq "Crew"'),
        ):
            yield request(name, "GET", path)
        user = {"schemas": [f"{URN}User"], "userName": "scim@example.com", "externalId": "1"}
        made = request("create_user", "POST", "/Users", user)
        yield made
        user_id = request(
            "", "POST", "/Users", user | {"userName": "s2@example.com", "externalId": "2"}
        ).send(self.app)
        of_user = f"/Users/{user_id.get_json()['id']}"
        yield request("search_users", "POST", "/Users/.search", {"count": 1})
        yield request("show_user", "GET", of_user)
        renamed = user | {
            "userName": "s3@example.com",
            "externalId": "3",
            "displayName": "S",
            "active": False,
        }
        yield request("replace_user", "PUT", of_user, renamed)
        active = {"op": "Replace", "path": "active", "value": "True"}
        yield request("patch_user", "PATCH", of_user, PATCH | {"Operations": [active]})
        member = [{"value": self.secured.public_id}]
        group = {"schemas": [f"{URN}Group"], "displayName": "Crew", "externalId": "1", "members": member}
        yield request("create_group", "POST", "/Groups", group)
        second = request("", "POST", "/Groups", group | {"displayName": "Ops", "externalId": "2"}).send(
            self.app
        )
        of_group = f"/Groups/{second.get_json()['id']}"
        yield request("search_groups", "POST", "/Groups/.search", {"count": 1})
        yield request("show_group", "GET", of_group)
        yield request("replace_group", "PUT", of_group, group | {"displayName": "Band", "externalId": "3"})
        remove = {"op": "remove", "path": "members", "value": member}
        yield request("patch_group", "PATCH", of_group, PATCH | {"Operations": [remove]})
        yield request("delete_group", "DELETE", of_group)
        yield request("delete_user", "DELETE", of_user)
