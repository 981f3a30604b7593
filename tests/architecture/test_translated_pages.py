"""Every text of a page is marked for translation."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from jinja2 import Environment

from app.rules import errors
from tests.support.cases import each

ROOT = Path(__file__).parents[2]
_LEXER = Environment(extensions=["jinja2.ext.i18n"], autoescape=True)
TEMPLATES = sorted(
    str(path.relative_to(ROOT)) for path in (ROOT / "templates").rglob("*.html") if "mail" not in path.parts
)
MODULES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "app/portal").glob("*.py"))
# Names of products and protocols, and values of them, which are the same in every language.
SAME = {
    "Gatehouse", "GATEHOUSE_BASE_URL", "UserInfo", "Authorization: Bearer ", "Bearer ",
    "curl", "ms", "Shell", "Properties", "POST", "Python", "Node", "Next.js", "Go", "Java", "Apache",
    "Next.js (Auth.js)",
    "Flask (Authlib)",
    "Django (allauth)", "Express (openid-client)", "Spring Security", "ASP.NET Core", "Rails (OmniAuth)",
    "Laravel (Socialite)", "Vite (React, Vue, Svelte)", "Angular", "Create React App", "Electron",
    "WWW-Authenticate: ", "reset/…",
}  # fmt: skip
# The API reference is in English, and the portal puts the client's name into English titles of failures.
ENGLISH_TEXTS = {"app/portal/api_reference.py", "app/portal/requests.py"}
_MARKERS = {"_", "gettext", "ngettext"}
_MARKING_CALLS = {
    "gettext", "html_gettext", "ngettext", "lazy_gettext", "compile", "RuntimeError", "ValueError", "Markup",
    *(name for name in vars(errors) if name[0].isupper()),
}  # fmt: skip
# A sentence, a capitalized word, or a phrase.
_SENTENCE = re.compile(
    r"\s*(?!(?:GET|POST) /)(?:[A-Z][a-z'’]+(?:-[a-z]+)*$|APIs$|(?=.*[a-z])[A-Z][A-Za-z'’-]*[ .,:?!…].*$"
    r"|(?:the|a|an|or|and|by|in|of|no|is|as|with|from|this|your) [a-z])",
    re.DOTALL,
)
_LETTERS = re.compile(r"[A-Za-z]{2,}")
_TAG = re.compile(r"<[^>]*>")
_TEXT_ATTRIBUTE = re.compile(r'\b(?:aria-label|placeholder|title|alt|data-label)="([^"]*)"')
# Elements whose content is code.
_CODE = re.compile(r"<(code|pre|script|style|kbd)\b[^>]*>.*?</\1>", re.DOTALL)
_PLACEHOLDER = "\0"


@each("name", TEMPLATES)
def test_text_of_template_is_marked_for_translation(name: str) -> None:
    assert list(_unmarked_in_template((ROOT / name).read_text())) == []


@each("name", MODULES)
def test_label_of_portal_is_marked_for_translation(name: str) -> None:
    if name in ENGLISH_TEXTS:
        return
    assert list(_unmarked_in_module((ROOT / name).read_text())) == []


def test_unmarked_text_is_found() -> None:
    page = (
        '{% set a = "Some label" %}<p title="A title">Text {% trans %}marked{% endtrans %} {{ _("Marked") }}</p>'
        "<code>Code</code>"
    )
    assert sorted(_unmarked_in_template(page)) == ["A title", "Some label", "Text"]
    module = 'A = lazy_gettext("Marked")\nB = StringField("A label", description=f"Some {A}.")\nlog("x.y")\n'
    assert list(_unmarked_in_module(module)) == ["A label", "Some "]


def _unmarked_in_template(source: str) -> Iterator[str]:
    """Yield the texts and the strings of expressions that no marker encloses."""
    data: list[str] = []
    skipped_until, depth = "", 0
    tokens = [token for token in _LEXER.lex(source) if token[1] != "whitespace"]
    for index, (_, kind, value) in enumerate(tokens):
        if kind == "block_begin":
            words = [token[2] for token in tokens[index + 1 : index + 3]]
            if words[0] == "trans":
                skipped_until = "endtrans"
            elif words == ["block", "body_class"]:
                skipped_until = "endblock"
            elif words[0] == skipped_until:
                skipped_until = ""
        if skipped_until:
            continue
        if value in "()":
            # Inside of a marker, the depth of parentheses is above zero.
            is_marker = value == "(" and tokens[index - 1][2] in _MARKERS
            depth += (value == "(") - (value == ")") if depth else is_marker
        elif kind == "data":
            data.append(value)
        elif kind in {"variable_begin", "block_begin"}:
            data.append(_PLACEHOLDER)
        elif kind == "string" and not depth and _is_text(value[1:-1]):
            yield value[1:-1]
    markup = _CODE.sub("", "".join(data))
    for found in _TEXT_ATTRIBUTE.findall(markup):
        yield from _texts(found)
    yield from _texts(_TAG.sub(_PLACEHOLDER, markup))


def _is_text(value: str) -> bool:
    return _SENTENCE.match(value) is not None and value not in SAME and '="' not in value


def _texts(markup: str) -> Iterator[str]:
    for part in markup.split(_PLACEHOLDER):
        text = " ".join(re.sub(r"&\w+;", " ", part).split())
        if _LETTERS.search(text) and '="' not in text and text.strip(" ·:().,/") not in SAME:
            yield text


def _unmarked_in_module(source: str) -> Iterator[str]:
    """Yield the strings that look like a text for people outside of a marker, docstrings and annotations."""
    yield from _unmarked_in(ast.parse(source))


def _unmarked_in(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call):
        function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if function in _MARKING_CALLS:
            yield from (text for keyword in node.keywords for text in _unmarked_in(keyword.value))
            return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str) and _is_text(node.value):
            yield node.value
        return
    if isinstance(node, ast.Dict):
        # Keys are not shown.
        yield from (text for value in node.values for text in _unmarked_in(value))
        return
    annotations = {id(getattr(node, name, None)) for name in ("annotation", "returns")}
    for child in ast.iter_child_nodes(node):
        if id(child) not in annotations:
            yield from _unmarked_in(child)
