"""Images for upload tests, valid and malicious."""

from __future__ import annotations

import io
import struct
import zlib

from PIL import Image


def picture(
    colour: tuple[int, int, int] = (200, 40, 40), size: tuple[int, int] = (400, 200), kind: str = "PNG"
) -> bytes:
    """Return an image of one color."""
    out = io.BytesIO()
    Image.new("RGB", size, colour).save(out, kind)
    return out.getvalue()


def bomb(width: int = 60_000, height: int = 60_000) -> bytes:
    """Return a PNG of a few hundred bytes that claims billions of pixels."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    data = zlib.compress(b"\0" * 1000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


PNG = picture()
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
