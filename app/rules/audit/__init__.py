"""Audit log and its chain, failed requests, webhooks, leaked secrets."""
