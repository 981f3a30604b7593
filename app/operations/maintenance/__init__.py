"""Housekeeping: janitor, doctor, demo data, export and import of organizations."""
