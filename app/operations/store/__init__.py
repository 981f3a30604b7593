"""Transactions, clock, outbox, audit.record, limits, outgoing HTTP."""
