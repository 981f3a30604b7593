"""A bare Flask view: what the framework alone costs."""

from __future__ import annotations

from flask import Flask

app = Flask(__name__)


@app.get("/hello")
def hello() -> dict[str, str]:
    """The smallest JSON answer."""
    return {"hello": "world"}
