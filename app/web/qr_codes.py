"""QR codes as SVG of our own, within the page: no image of a secret has an address.

The library is read when the first code is drawn: most workers never draw one.
"""

from __future__ import annotations

from markupsafe import Markup


def qr_svg(text: str) -> Markup:
    """The code as markup that the content security policy allows: attributes, no style.

    It is black on white in every theme, with the margin that readers need.
    """
    import segno

    code = segno.make(text, error="m", micro=False)
    drawn = code.svg_inline(
        border=4, dark="#000", light="#fff", omitsize=True, svgclass="qr", lineclass=None, title="QR code"
    )
    # Drawn by the library from squares; the text itself is no part of it but as those.
    return Markup(drawn.replace("<svg ", '<svg role="img" ', 1))  # noqa: S704
