"""openapi-generator -g python, as the README that it generates shows."""

import os

import openapi_client
from openapi_client.models import ClientChange, ErrorResponse, NewClientInOrganization


def rejected(call, *arguments):
    try:
        call(*arguments)
    except openapi_client.ApiException as error:
        return error.data
    raise SystemExit("The request succeeded.")


configuration = openapi_client.Configuration(host=os.environ["BASE"], access_token=os.environ["TOKEN"])
with openapi_client.ApiClient(configuration) as api_client:
    clients = openapi_client.ClientsApi(api_client)
    audit_log = openapi_client.AuditLogApi(api_client)

    made = clients.register_client(
        NewClientInOrganization(
            name="Orchard", redirect_uris=["https://orchard.example/callback"], scopes=["openid"]
        )
    ).data
    assert made.client_secret.startswith("gth_cs_") and made.access_token_format is None, made

    listed = clients.list_clients(limit=100, status="active")
    assert listed.meta.next_cursor is None
    assert ("Orchard", made.client_id) in [(client.name, client.client_id) for client in listed.data]

    changed = clients.update_client(made.client_id, ClientChange(name="Meadow", access_token_format="jwt"))
    assert changed.data.access_token_format == "jwt" and "name" in changed.meta.changed, changed

    events = {event.action: event for event in audit_log.list_audit_events(target=made.client_id).data}
    event = audit_log.get_audit_event(events["client.registered"].id).data
    assert event.before is None and event.after["name"] == "Orchard", event
    updated = events["client.updated"]
    assert (updated.before["name"], updated.after["name"]) == ("Orchard", "Meadow"), updated

    invalid = rejected(
        clients.update_client, made.client_id, ClientChange(redirect_uris=["http://meadow.example"])
    )
    assert isinstance(invalid, ErrorResponse) and invalid.error == "invalid_input", invalid
    assert [field.var_field for field in invalid.errors] == ["redirect_uris[0]"], invalid

    assert clients.delete_client(made.client_id).success
    assert rejected(clients.get_client, made.client_id).error == "not_found"
