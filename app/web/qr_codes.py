"""QR codes as inline SVG, so that no image of a secret has a URL.

The library is imported on first use, because most workers never draw a code.
"""

from __future__ import annotations

from markupsafe import Markup


def qr_svg(text: str) -> Markup:
    """Return the QR code as markup without inline styles, which the content security policy forbids.

    It is black on white in every theme, with the margin that scanners need.
    """
    import segno

    # To compare all eight masks takes ten times as long; scanners read any of them.
    code = segno.make(text, error="m", micro=False, mask=0)
    drawn = code.svg_inline(
        border=4, dark="#000", light="#fff", omitsize=True, svgclass="qr", lineclass=None, title="QR code"
    )
    # The library draws squares; the text itself is not part of the markup.
    return Markup(drawn.replace("<svg ", '<svg role="img" ', 1))  # noqa: S704
