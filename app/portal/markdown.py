"""Markdown as HTML: the guides in ``docs`` and the quickstarts, with highlighted code."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup
from markupsafe import escape as markup_escape
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, String
from pygments.util import ClassNotFound

from app.web.languages import gettext

# Class of the style sheet by kind of token. Everything else keeps the colour of the text.
_CLASSES = (
    (Comment, "c"),
    (String, "s"),
    (Number, "v"),
    (Name.Variable, "v"),
    (Keyword, "k"),
    (Name.Tag, "k"),
    (Name.Builtin, "k"),
    (Name.Function, "k"),
)
_FENCE = re.compile(r"^```(\w+)(?: ([^\n]*))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# It logs each rule for each line.
logging.getLogger("markdown_it").setLevel(logging.WARNING)

Link = Callable[[str], str | None]


@functools.lru_cache(maxsize=512)
def highlight(code: str, language: str) -> Markup:
    """Return the code as HTML, with the style sheet's classes; plain for an unknown language."""
    try:
        tokens = get_lexer_by_name(language, stripnl=False).get_tokens(code)
    except ClassNotFound:
        return markup_escape(code)
    parts: list[tuple[str, str]] = []
    for kind, text in tokens:
        name = _class_of(kind) if text.strip() else parts[-1][0] if parts else ""
        if parts and parts[-1][0] == name:
            parts[-1] = (name, parts[-1][1] + text)
        else:
            parts.append((name, text))
    html = (
        f'<span class="{name}">{escape(text, quote=False)}</span>' if name else escape(text, quote=False)
        for name, text in parts
    )
    return Markup("".join(html))  # noqa: S704 - escaped above


def code_block(code: str, language: str, title: str = "") -> Markup:
    """Return a block of code with a button to copy it; the title names a file or says what it is."""
    label = escape(gettext("Copy %(label)s", label=title or gettext("the code")))
    return Markup(  # noqa: S704 - escaped here and in highlight
        f'<div class="code" data-copy><header><span>{escape(title or _LANGUAGES.get(language, ""))}</span>'
        f'<button class="btn s" type="button" hidden aria-label="{label}">{escape(gettext("Copy"))}</button></header>'
        f'<pre tabindex="0" data-title="{escape(title)}"><code>{highlight(code, language)}</code></pre></div>'
    )


_LANGUAGES = {
    "sh": "Shell", "python": "Python", "javascript": "JavaScript", "json": "JSON", "go": "Go", "java": "Java",
    "properties": "Properties", "apache": "Apache", "http": "HTTP", "html": "HTML",
}  # fmt: skip


def code_blocks(text: str) -> list[tuple[str, str, str]]:
    """Return the language, the title and the code of each fenced block."""
    return [(language, title or "", code) for language, title, code in _FENCE.findall(text)]


def to_html(text: str, *, link: Link = lambda target: target) -> Markup:
    """Render Markdown without raw HTML.

    ``link`` returns where a link leads on the page, or None to show its text only.
    """
    return Markup(_PARSER.render(text, {"link": link}))  # noqa: S704 - the parser escapes, and takes no HTML


def title_of(text: str) -> str:
    """Return the first heading."""
    return text.partition("\n")[0].removeprefix("# ")


def heading_id(text: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


class _Renderer(RendererHTML):
    """HTML for the portal's style sheet."""

    def fence(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        """Render a block of code; the words after the language are its title."""
        language, _, title = tokens[index].info.strip().partition(" ")
        return code_block(tokens[index].content, language or "text", title)

    def heading_open(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        """Give each heading its anchor."""
        return f'<{tokens[index].tag} id="{escape(heading_id(tokens[index + 1].content))}">'

    def table_open(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        """Let wide tables scroll by themselves."""
        label = escape(gettext("Table"))
        return f'<div class="scroll" tabindex="0" role="group" aria-label="{label}"><table>'

    def table_close(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        """End the scrolling part."""
        return "</table></div>"

    def link_open(self, tokens: Sequence[Token], index: int, options: Any, env: Mapping[str, Link]) -> str:
        """Render a link to where it leads on this page."""
        target = env["link"](str(tokens[index].attrs["href"]))
        return "<span>" if target is None else f'<a href="{escape(target)}">'

    def link_close(self, tokens: Sequence[Token], index: int, options: Any, env: Mapping[str, Link]) -> str:
        """End the link that ``link_open`` began."""
        opened = next(token for token in reversed(tokens[:index]) if token.type == "link_open")
        return "</span>" if env["link"](str(opened.attrs["href"])) is None else "</a>"


_PARSER = MarkdownIt("commonmark", {"html": False}, renderer_cls=_Renderer).enable("table")


def _class_of(kind: Any) -> str:
    return next((name for parent, name in _CLASSES if kind in parent), "")
