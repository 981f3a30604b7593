"""The API's blueprint; it answers unprefixed, as the specification gives the paths, and under /api/v1."""

from __future__ import annotations

from app.web.json_api import blueprint

api = blueprint("api")
# What the specification fixes under /api/v1 stands there alone.
api_v1_only = blueprint("api_v1_only")
