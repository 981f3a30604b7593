"""Logos of clients and organizations: re-encoded, so that nothing but the picture is left."""

from __future__ import annotations

import io
import struct
from contextlib import suppress

MAX_BYTES = 256 * 1024
MAX_PIXELS = 2048 * 2048
MAX_SIDE = 256
# Of a JPEG. Each scan may visit every pixel and takes 17 bytes, and a progressive image of a camera has ten.
MAX_SCANS = 100
_JPEG, _SCAN = b"\xff\xd8", b"\xff\xda"
# No SVG, because it can contain scripts. Pillow tries no other formats.
FORMATS = ("PNG", "JPEG", "GIF", "WEBP")


class InvalidImage(ValueError):
    """The content is not an image of an accepted format and size."""


def render_logo(content: bytes, *, formats: tuple[str, ...] = FORMATS, max_bytes: int = MAX_BYTES) -> bytes:
    """Return a PNG of at most 256x256 pixels with the image's first frame, upright, and nothing else of the original.

    Raises InvalidImage for another format, more than ``max_bytes``, or more than four million pixels or a hundred
    scans, which are counted before decoding.
    """
    # Imported on first use, because it takes megabytes of memory that most workers never need.
    from PIL import Image, ImageOps

    # Pillow's decoders and its reader of metadata raise these for broken files.
    broken = (
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
    )
    if len(content) > max_bytes:
        raise InvalidImage(f"it is larger than {max_bytes // 1024} KiB")
    # Compressed data never contains the two bytes of a marker.
    if content.startswith(_JPEG) and (scans := content.count(_SCAN)) > MAX_SCANS:
        raise InvalidImage(f"it has {scans} scans")
    try:
        with Image.open(io.BytesIO(content), formats=formats) as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise InvalidImage(f"it has {width}x{height} pixels")
            frame = image.convert("RGBA")
    except InvalidImage:
        raise
    except broken as error:
        raise InvalidImage(f"it cannot be read as {_join_formats(formats)}") from error
    frame.thumbnail((MAX_SIDE, MAX_SIDE))
    # A camera stores how it was held instead of turning the pixels. Without readable metadata the picture is complete.
    with suppress(*broken):
        ImageOps.exif_transpose(frame, in_place=True)
    # A new image drops everything read from the file's metadata, such as colour profile and comments.
    logo = Image.new("RGBA", frame.size)
    logo.paste(frame)
    png = io.BytesIO()
    logo.save(png, "PNG", optimize=True)
    return png.getvalue()


def _join_formats(formats: tuple[str, ...]) -> str:
    words = ["WebP" if name == "WEBP" else name for name in formats]
    return f"{', '.join(words[:-1])} or {words[-1]}"
