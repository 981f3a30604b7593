"""Imports of people: a file is taken in parts, and brought in a part at a time, whoever dies in between."""
