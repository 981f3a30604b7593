"""Pictures of strangers: read within limits and made anew, so that no byte of theirs reaches a browser (PO-2)."""

from __future__ import annotations

import io
import struct

MOST_BYTES = 256 * 1024
MOST_PIXELS = 2048 * 2048
SIDE = 256
# No SVG: it is a program. What else Pillow could read is not tried.
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP")


class NoPicture(ValueError):
    """The bytes are no picture of the kinds and sizes that are taken."""


def as_logo(content: bytes) -> bytes:
    """A PNG of at most 256x256 pixels, with nothing of the original but its first frame's colours.

    Raises NoPicture for anything but PNG, JPEG, GIF and WebP, more than 256 KiB, and more than four million pixels,
    which are counted before a single one is unpacked.
    """
    # Read when there is a picture at last: it is megabytes of memory that most workers never need.
    from PIL import Image

    if len(content) > MOST_BYTES:
        raise NoPicture("it is larger than 256 KiB")
    try:
        with Image.open(io.BytesIO(content), formats=_FORMATS) as found:
            width, height = found.size
            if width * height > MOST_PIXELS:
                raise NoPicture(f"it has {width}x{height} pixels")
            drawn = found.convert("RGBA")
    except NoPicture:
        raise
    # What Pillow's readers raise for broken files.
    except (
        OSError,
        SyntaxError,
        ValueError,
        EOFError,
        IndexError,
        KeyError,
        TypeError,
        struct.error,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:
        raise NoPicture("it cannot be read as PNG, JPEG, GIF or WebP") from error
    drawn.thumbnail((SIDE, SIDE))
    # A new canvas: whatever the reader noted of the file, colour profile and comments too, stays behind.
    logo = Image.new("RGBA", drawn.size)
    logo.paste(drawn)
    made = io.BytesIO()
    logo.save(made, "PNG", optimize=True)
    return made.getvalue()
