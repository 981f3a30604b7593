"""Transactions, clock, outbox, audit.record, rate limits and outgoing HTTP."""
