"""Turn the users that another product exported into a file to import, one JSON object per line.

python3 users_for_import.py keycloak realm-export.json >users.ndjson
python3 users_for_import.py auth0 export.ndjson >users.ndjson
python3 users_for_import.py firebase users.json SIGNER_KEY SALT_SEPARATOR ROUNDS MEM_COST >users.ndjson

Users without an email, and the groups to create before the import, are listed on standard error. The organization
needs the custom attribute old_id.
"""

import json
import sys


def from_keycloak(text):
    for user in json.loads(text)["users"]:
        passwords = [entry for entry in user.get("credentials", ()) if entry.get("type") == "password"]
        built_in = ("offline_access", "uma_authorization")
        roles = [
            role
            for role in user.get("realmRoles", ())
            if role not in built_in and not role.startswith("default-roles-")
        ]
        yield {
            "email": user.get("email"),
            "email_verified": user.get("emailVerified", False),
            "status": "active" if user.get("enabled", True) else "disabled",
            "given_name": user.get("firstName"),
            "family_name": user.get("lastName"),
            "preferred_username": user.get("username"),
            "groups": [*user.get("groups", ()), *roles],
            "password_hash": passwords[0] if passwords else None,
            "attributes": {"old_id": user["id"]},
        }


def from_auth0(text):
    for user in map(json.loads, text.splitlines()):
        # The file of password hashes names some fields otherwise than the export of users.
        yield {
            "email": user.get("email"),
            "email_verified": user.get("email_verified", False),
            "status": "disabled" if user.get("blocked") else "active",
            "name": user.get("name"),
            "given_name": user.get("given_name"),
            "family_name": user.get("family_name"),
            "password_hash": user.get("passwordHash"),
            "attributes": {"old_id": user.get("user_id") or "auth0|" + user["_id"]["$oid"]},
        }


def from_firebase(text, signer_key, salt_separator, rounds, mem_cost):
    for user in json.loads(text)["users"]:
        cost = f"ln={mem_cost},r={rounds},p=1"
        parts = (
            "",
            "firescrypt",
            cost,
            user.get("salt"),
            user.get("passwordHash"),
            salt_separator,
            signer_key,
        )
        yield {
            "email": user.get("email"),
            "email_verified": user.get("emailVerified", False),
            "status": "disabled" if user.get("disabled") else "active",
            "name": user.get("displayName"),
            "phone_number": user.get("phoneNumber"),
            "password_hash": "$".join(parts) if user.get("passwordHash") else None,
            "attributes": {"old_id": user["localId"]},
        }


def main(product, path, *parameters):
    read = {"keycloak": from_keycloak, "auth0": from_auth0, "firebase": from_firebase}[product]
    groups = set()
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for user in read(text, *parameters):
        groups.update(user.get("groups", ()))
        if user["email"]:
            print(json.dumps({name: value for name, value in user.items() if value is not None}))
        else:
            print("no email:", user["attributes"]["old_id"], file=sys.stderr)
    for name in sorted(groups):
        print("group:", name, file=sys.stderr)


main(*sys.argv[1:])
