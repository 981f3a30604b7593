"""A bare Flask view: the cost of the framework alone."""

from __future__ import annotations

from flask import Flask

app = Flask(__name__)


@app.get("/hello")
def hello() -> dict[str, str]:
    """Return the smallest JSON response."""
    return {"hello": "world"}
