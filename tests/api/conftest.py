"""Fixtures of the route and role matrices."""

from __future__ import annotations

import pytest
from flask import Flask
from flask.testing import FlaskClient

from tests.factories import Factory
from tests.support.matrix import World, world_of


@pytest.fixture
def world(app: Flask, http: FlaskClient, make: Factory) -> World:
    """Return two organizations, and every operation with a valid body."""
    return world_of(app, http, make)
