"""What every run is asked: token prompts, one chat message and one small image. Standard library only."""

from __future__ import annotations

import base64
import struct
import zlib

NEW_TOKENS = 8
CHAT = "hello"
SIDE = 64


def prompts() -> list[list[int]]:
    """Four prompts of twelve token ids that every small vocabulary of the test checkpoints has."""
    return [[(7 * i + 13 * j) % 290 + 3 for i in range(12)] for j in range(4)]


def picture() -> bytes:
    """A gradient of 64 by 64 RGB pixels as a PNG file."""
    rows = (bytes(v for x in range(SIDE) for v in (x * 4 % 256, y * 4 % 256, 168)) for y in range(SIDE))
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def image_url() -> str:
    """The picture as a data URL."""
    return "data:image/png;base64," + base64.b64encode(picture()).decode()
