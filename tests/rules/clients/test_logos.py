"""Untrusted images are re-encoded within limits (PO-2)."""

from __future__ import annotations

import io
import struct
import zlib

import pytest
from PIL import ExifTags, Image
from PIL.PngImagePlugin import PngInfo

from app.rules.clients.logos import MAX_BYTES, MAX_SCANS, InvalidImage, render_logo
from tests.support.cases import each


def make_image(kind: str, size: tuple[int, int] = (300, 150), **options: object) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, (200, 30, 30)).save(out, kind, **options)
    return out.getvalue()


@each("kind", ["PNG", "JPEG", "GIF", "WEBP"])
def test_image_becomes_a_small_png(kind: str) -> None:
    """PO-2: re-encoded as PNG with the same proportions."""
    with Image.open(io.BytesIO(render_logo(make_image(kind)))) as logo:
        assert (logo.format, logo.size) == ("PNG", (256, 128))
        red, green, blue, opaque = logo.convert("RGBA").getpixel((10, 10))
        assert red > 180 and green < 60 and blue < 60 and opaque == 255


def test_small_image_keeps_its_size() -> None:
    with Image.open(io.BytesIO(render_logo(make_image("PNG", (16, 20))))) as logo:
        assert logo.size == (16, 20)


@each("orientation, size", [(1, (256, 128)), (6, (128, 256)), (b"Exif\0\0not readable", (256, 128))])
def test_image_is_turned_as_the_camera_was_held(orientation: object, size: tuple[int, int]) -> None:
    exif: Image.Exif | bytes = orientation if isinstance(orientation, bytes) else Image.Exif()
    if isinstance(exif, Image.Exif):
        exif[ExifTags.Base.Orientation] = orientation
    with Image.open(io.BytesIO(render_logo(make_image("JPEG", exif=exif)))) as logo:
        assert logo.size == size


def test_metadata_is_removed() -> None:
    words = PngInfo()
    words.add_text("Comment", "<script>secret</script>")
    exif = Image.Exif()
    exif[0x010E] = "taken at home"
    told = render_logo(make_image("PNG", pnginfo=words, icc_profile=b"a profile")) + render_logo(
        make_image("JPEG", exif=exif)
    )
    for trace in (b"script", b"profile", b"iCCP", b"tEXt", b"eXIf", b"home"):
        assert trace not in told


def test_trailing_data_is_removed() -> None:
    assert b"PK\x03\x04" not in render_logo(make_image("PNG") + b"PK\x03\x04<html>")


def _bomb(width: int, height: int) -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"\0" * 100_000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@each(
    "content",
    [
        b"",
        b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
        b"GIF89a",
        make_image("BMP", (4, 4)),
        make_image("TIFF", (4, 4)),
        make_image("ICO", (16, 16)),
        make_image("PNG")[:60],
        make_image("JPEG")[:300],
        make_image("PNG") + b"\0" * MAX_BYTES,
        _bomb(0, 0),
    ],
    ids=["empty", "svg", "head", "bmp", "tiff", "ico", "cut png", "cut jpeg", "long", "no size"],
)  # fmt: skip
def test_invalid_image_is_rejected(content: bytes) -> None:
    with pytest.raises(InvalidImage):
        render_logo(content)


@each("size", [(2049, 2048), (1, 4_194_305), (50_000, 50_000)])
def test_pixels_are_counted_before_decoding(size: tuple[int, int]) -> None:
    """PO-2: a small file may claim to be a very large image."""
    with pytest.raises(InvalidImage, match=r"pixels|cannot be read") as refusal:
        render_logo(_bomb(*size))
    # Pillow rejects the largest images before their size is checked.
    assert "pixels" in str(refusal.value) or isinstance(refusal.value.__cause__, Image.DecompressionBombError)


def _repeat_last_scan(jpeg: bytes, times: int) -> bytes:
    last = jpeg.rindex(b"\xff\xda")
    return jpeg[:last] + jpeg[last:-2] * times + jpeg[-2:]


def test_scans_are_counted_before_decoding() -> None:
    """PO-2: thousands of scans fit into a small JPEG, and each one may visit every pixel."""
    progressive = make_image("JPEG", progressive=True)
    assert render_logo(progressive)
    repeated = _repeat_last_scan(progressive, MAX_SCANS)
    with Image.open(io.BytesIO(repeated)) as image:
        image.load()
    with pytest.raises(InvalidImage, match="scans"):
        render_logo(repeated)
