"""Comments of columns in the words of the documentation. Only the comments change, so no table is rebuilt.

SQLite does not store comments.

Revision: 0038
Follows: 0037
"""

import re

from alembic import op
from sqlalchemy import inspect

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None

COMMENTS = {
    "access_tokens": {
        "credential_id": "secret that it was issued with",
        "grant_id": "NULL for client_credentials, which have no user",
        "parent_id": "token it was exchanged for (RFC 8693), and is revoked with",
    },
    "account_links": {
        "address": "email that it verifies, as typed; NULL for a password reset",
        "bound_digest": "digest of what must not change before it is used: password, email",
        "is_mailed": "whether the link was only emailed, so that its use verifies the email",
    },
    "app_role_assignments": {
        "holder_id": "user_id or group_id: the one that is set",
    },
    "audit_chains": {
        "anchor": "mac of the last deleted link",
        "mac": "MAC of both ends",
        "removed": "position up to which links and their events were deleted after their retention",
    },
    "audit_events": {
        "actor_label": "email or client name at the time of the event",
        "actor_organization": "organization of the actor; another one for users and clients of root",
    },
    "audit_links": {
        "mac": "MAC of the previous link, the position and the event",
    },
    "authorization_codes": {
        "acr": "authentication context class of the sign-in",
        "attempt": "attempt that claimed it, to distinguish a lost response from theft",
        "dpop_jkt": "thumbprint of the key that must redeem it (RFC 9449 section 10)",
        "grant_ends_at": "expiry of the consent, and so of everything issued for the code",
        "grant_id": "chosen when the code is issued, stored when it is redeemed; a replay revokes it",
    },
    "authorization_requests": {
        "browser_digest": "browser that started it",
        "network": "network that rate limits count by",
        "pushed_request_id": "pushed request, used up with this one; it may have been deleted, hence no foreign key",
        "selected_session_id": "session chosen for prompt=select_account",
        "shown_digest": "digest of what the consent page showed: user, client, scopes",
    },
    "client_access": {
        "decided_at": "after a withdrawal: tokens issued before are revoked",
        "message": "message to the developer",
    },
    "client_credentials": {
        "confirmed_at": "when a secret from before a restore was confirmed",
        "notified_at": "when its owners were notified that it expires while it is used",
        "previous_expires_at": "expiry that cancelling the rotation restores",
        "takes_tokens": "whether its tokens are revoked when it expires",
        "tokens_not_before": "tokens issued with it before are revoked; a revocation only moves it forward",
        "tokens_revoked_at": "set if no token issued with it is active",
    },
    "client_logos": {
        "digest": "digest of the image, which is its name in URLs",
        "picture": "re-encoded PNG, at most 256x256",
        "source_digest": "digest of the logo_uri that it was fetched from",
    },
    "client_registrations": {
        "address_digest": "digest of the document's URL; NULL after the client was deleted",
        "idle_check_at": "when to check whether it is still used; NULL after it was deleted",
        "registration_token_id": "initial access token, which may have been deleted",
    },
    "client_requests": {
        "is_open": "true while it is undecided, then NULL",
        "message": "message of the administrator to the member",
        "reason": "message of the member",
        "scope": "scopes that the client requested, space-separated",
        "user_id": "requesting member",
    },
    "clients": {
        "metadata_document_uri": "client_id of a client that is identified by the URL of its metadata document",
        "tokens_not_before": "what was issued before is revoked; a revocation only moves it forward",
        "version": "incremented by each change of the client or its credentials",
    },
    "consents": {
        "declined": "optional scopes that the user declined, space-separated",
        "scope": "allowed scopes, space-separated",
        "shown": "metadata of the client at that time: its name, and digests of the rest",
    },
    "device_codes": {
        "address": "IP address of the device",
        "attempt": "attempt that claimed it, to distinguish a lost response from a second use",
        "grant_ends_at": "expiry of the consent, and so of everything issued for the code",
        "grant_id": "chosen when the code is issued, stored when it is redeemed",
        "interval_seconds": "seconds between two polls; increased by each slow_down",
        "network": "network that rate limits count by",
        "next_poll_at": "time before which a poll is too early",
        "scope": "requested scopes, after approval the allowed ones",
        "shown_digest": "digest of what the consent page showed: session, client, scopes",
        "user_code_digest": "keyed digest, because eight letters could be guessed",
        "user_id": "user who approved it",
    },
    "failed_requests": {
        "description": "the error description of the response",
        "error": "the error code of the response",
        "expected": "the values that would have been accepted",
        "parameters": "parameters of the request, without secrets",
        "request_id": "req_…, as shown on the error page",
    },
    "grants": {
        "allowed_at": "when the code was issued or the device approved; cutoffs are compared with it",
        "credential_id": "secret that the code was redeemed with; no foreign key, because it may have been deleted",
        "expires_at": "absolute expiry; rotation never extends it",
        "idle_expires_at": "expiry of the current refresh token",
        "previous_digest": "previous refresh token",
        "refreshed_at": "last use of the refresh token; NULL without one, and for older rows",
        "sealed_answer": "last response, sealed with the presented token (RF-3)",
    },
    "idempotency_keys": {
        "status": "NULL while the first request is in progress",
    },
    "invitations": {
        "created_by_id": "usr_ or cli_ id of the inviter, whose permission is checked again; NULL for the service",
        "is_mailed": "whether the link was only emailed, so that its use verifies the email",
    },
    "known_browsers": {
        "address": "IP address of that sign-in",
        "code_failed_at": "time of the last one",
        "code_failures": "incorrect codes in a row",
        "digest": "digest of the value in its cookie",
        "factor_given_at": "when a second factor was last verified in it; NULL: never",
        "last_used_at": "time of the last complete sign-in",
    },
    "organization_logos": {
        "digest": "digest of the image, which is its name in URLs",
        "picture": "re-encoded PNG, at most 256x256",
    },
    "organizations": {
        "admins_factor_demanded_at": "since when it requires one of administrators",
        "data_key": "data key, wrapped with the master key; NULL after the purge",
        "factor_demanded_at": "since when the policy requires a second factor of all users",
        "moving_until": "end of the pause while it is being moved: requests get 503",
        "passwords_not_before": "passwords set before must be reset",
        "sessions_not_before": "sessions from before are revoked; a revocation only moves it forward",
        "settings": "only settings that differ from the defaults",
        "slug": "immutable, never reused",
        "tokens_not_before": "what was issued before is revoked; a revocation only moves it forward",
        "tokens_valid_from": "when it was restored: tokens and sessions from before are revoked",
        "version": "incremented by each change that invalidates cached snapshots",
    },
    "outbox": {
        "available_at": "time of the next attempt, or the end of the lease while it is being delivered",
        "expires_at": "time of the last attempt",
        "receiver": "public id of the receiver, which is skipped for a while if it does not respond",
    },
    "passkeys": {
        "aaguid": "model of the authenticator as reported; zero if unknown",
        "sign_count": "signature counter of the last use; must increase, unless it stays 0",
        "signs_in_alone": "discoverable and verifies the user, so it can sign in without email and password",
        "transports": "transports: internal, usb …",
        "user_agent": "browser in which it was created",
    },
    "pending_sign_ins": {
        "amr": "authentication methods so far (RFC 8176)",
        "browser_digest": "browser that completed the first step",
        "known_browser_id": "known browser in which it was started; NULL: unknown; no foreign key, because it may exist longer",
    },
    "playground_runs": {
        "browser_digest": "browser that started it",
        "state_digest": "digest of the state in its authorization request",
        "user_id": "user who started it; users of root belong to another organization, hence no foreign key",
    },
    "pushed_requests": {
        "expires_at": "until when a browser can use it",
        "network": "network that rate limits count by",
    },
    "registration_tokens": {
        "max_uses": "NULL: limited only by the organization's number of clients",
    },
    "registrations": {
        "address": "IP address of the request",
        "digest": "digest of the token in the link",
        "is_mailed": "whether the link was only emailed",
    },
    "request_counts": {
        "bucket": "digest of the kind of limit and the client, user or network",
        "process_id": "process that counted; each has a new id",
    },
    "resources": {
        "access_token_format": "opaque or jwt; NULL: the client's or organization's default",
        "access_token_ttl_seconds": "NULL: the organization's default",
        "version": "incremented by each change of the API or its scopes",
    },
    "revocation_log": {
        "expires_at": "when everything it names has expired",
        "not_before": "what was issued before is revoked",
    },
    "revocation_receipts": {
        "counts": "number of active objects, each count capped",
        "created_by_id": "public id of the requester",
        "expires_at": "kept as long as audit events",
        "issued_before": "what was issued before is revoked",
        "sessions": "whether sessions were revoked too",
        "settled_at": "when the rows of revoked sessions were deleted and clients were notified",
        "subject": "public id of the selected object, which may have been deleted since",
    },
    "sampled_requests": {
        "parameters": "parameters of the request, without secrets",
    },
    "scopes": {
        "is_identity": "whether it is a scope of OpenID Connect",
        "resource_id": "API that the scope belongs to; NULL: no particular one",
        "title": "title on the consent page; NULL until one is entered",
        "version": "incremented by each change of its texts",
    },
    "second_factor_tries": {
        "failed_at": "time of the last one",
        "total": "incorrect codes since the last correct one, or since a month without any",
    },
    "session_clients": {
        "expires_at": "when the session has expired",
        "session_id": "session whose end it is notified of; no foreign key, because it is read after that",
        "sid": "session named in its ID token, which a later one may have replaced",
    },
    "sessions": {
        "expires_at": "absolute expiry",
    },
    "settings_ceilings": {
        "factor_demanded_at": "since when an instance limit requires second factors",
        "name": "key of the only row: instance",
    },
    "signing_keys": {
        "sealed_private_key": "PKCS 8, sealed with the organization's data key",
        "slot": "the state, of which only one key can exist; NULL once retired",
    },
    "used_identifiers": {
        "attempt": "attempt that wrote it, to distinguish a lost response from a replay",
        "digest": "purpose, owner and value",
    },
    "user_import_refusals": {
        "number": "number of the row in the file",
    },
    "user_imports": {
        "digest": "digest of the whole file",
        "importer": "actor who started it, with their permissions",
        "is_foreground": "whether the command line runs it instead of a server",
        "name": "name of the file",
        "position": "completed parts",
    },
    "users": {
        "email_canonical": "canonical form of the email, equal for all of its spellings",
        "made_unproven": "email not verified yet: verifying it removes what was set up before",
        "password_hash": "argon2id, or the hash of another system",
        "password_scheme": "kind and cost of another system's hash; NULL once it was replaced",
        "profile": "standard claims besides name and email",
        "tokens_not_before": "what was issued before is revoked; a revocation only moves it forward",
    },
    "view_changes": {
        "is_for_all": "whether it concerns all organizations",
    },
    "webhook_deliveries": {
        "message_id": "message of the outbox, which may have been deleted",
        "response_headers": "some headers, truncated",
        "response_status": "NULL without a complete response",
        "status": "pending, delivered, failed; also pending if the outbox gave up",
    },
    "webhooks": {
        "deleted_at": "the row is deleted after its deliveries",
        "sealed_previous_secret": "previous signing secret, also used until previous_secret_until",
        "sealed_secret": "signing secret; NULL after the webhook was deleted",
    },
}


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        return
    existing = set(inspect(connection).get_table_names())
    for table, comments in COMMENTS.items():
        if table not in existing:
            continue
        _, created = connection.exec_driver_sql(f"SHOW CREATE TABLE `{table}`").one()
        changes = []
        for line in created.splitlines():
            column = re.match(r"\s*`(\w+)` ", line)
            if column is None or column[1] not in comments:
                continue
            # The definition as the server writes it, with another comment.
            comment = comments[column[1]].replace("'", "''")
            definition, count = re.subn(r" COMMENT '(?:[^']|'')*'", lambda _, text=comment: f" COMMENT '{text}'", line.strip())
            if count == 1:
                changes.append(f"MODIFY COLUMN {definition.rstrip(',')}")
        if changes:
            connection.exec_driver_sql(f"ALTER TABLE `{table}` {', '.join(changes)}")


def downgrade() -> None:
    """Leave the comments: no release reads them."""
