"""Pictures of strangers: read within limits and made anew, so that no byte of theirs reaches a browser (PO-2)."""

from __future__ import annotations

import io
import struct

MOST_BYTES = 256 * 1024
MOST_PIXELS = 2048 * 2048
SIDE = 256
# No SVG: it is a program. What else Pillow could read is not tried.
FORMATS = ("PNG", "JPEG", "GIF", "WEBP")


class NoPicture(ValueError):
    """The bytes are no picture of the kinds and sizes that are taken."""


def as_logo(content: bytes, *, formats: tuple[str, ...] = FORMATS, max_bytes: int = MOST_BYTES) -> bytes:
    """A PNG of at most 256x256 pixels, with nothing of the original but its first frame's colours.

    Raises NoPicture for anything but the ``formats``, more than ``max_bytes``, and more than four million pixels,
    which are counted before a single one is unpacked.
    """
    # Read when there is a picture at last: it is megabytes of memory that most workers never need.
    from PIL import Image

    if len(content) > max_bytes:
        raise NoPicture(f"it is larger than {max_bytes // 1024} KiB")
    try:
        with Image.open(io.BytesIO(content), formats=formats) as found:
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
        raise NoPicture(f"it cannot be read as {_listed(formats)}") from error
    drawn.thumbnail((SIDE, SIDE))
    # A new canvas: whatever the reader noted of the file, colour profile and comments too, stays behind.
    logo = Image.new("RGBA", drawn.size)
    logo.paste(drawn)
    made = io.BytesIO()
    logo.save(made, "PNG", optimize=True)
    return made.getvalue()


def _listed(formats: tuple[str, ...]) -> str:
    words = ["WebP" if name == "WEBP" else name for name in formats]
    return f"{', '.join(words[:-1])} or {words[-1]}"
