"""The audit log, failed requests, webhooks and leak reports."""
