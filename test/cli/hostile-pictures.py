"""Pictures as a container that was taken over could make them, and what `pixels_of` of the packaged project takes from each."""

import json
import os
import struct
import sys
import tempfile
import zlib

sys.dont_write_bytecode = True
sys.path.insert(0, "/program")

import pages  # noqa: E402
from work import NotPossible  # noqa: E402

WIDTH, HEIGHT = 1700, 900
ROWS = b"".join(bytes([y % 5]) + os.urandom(WIDTH * 3) for y in range(HEIGHT))
PACKED = zlib.compress(ROWS)
PARTS = [PACKED[at : at + 70_001] for at in range(0, len(PACKED), 70_001)]


def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(width=WIDTH, height=HEIGHT, kind=2, parts=PARTS, further=b"", depth=8, interlaced=0):
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlaced))
    return b"\x89PNG\r\n\x1a\n" + head + further + b"".join(chunk(b"IDAT", part) for part in parts) + chunk(b"IEND", b"")


def taken(data, link=False):
    path = os.path.join(tempfile.mkdtemp(), "page")
    with open(path, "wb") as file:
        file.write(data)
    if link:
        os.symlink(path, f"{path}-link")
        path += "-link"
    try:
        width, height, colours, packed = pages.pixels_of(path)
    except NotPossible:
        return "refused"
    return "its pixels" if zlib.decompress(packed) == ROWS and (width, height, colours) == (WIDTH, HEIGHT, 3) else "something else"


print(
    json.dumps(
        {
            "plain": taken(png()),
            "with words around them": taken(png(parts=[PACKED + b"/JavaScript"], further=chunk(b"tEXt", b"/JavaScript"))),
            "a row more": taken(png(height=HEIGHT - 1)),
            "a row less": taken(png(height=HEIGHT + 1)),
            "a filter that is none": taken(png(parts=[zlib.compress(ROWS[: 1 + 3 * WIDTH] + b"\7" + ROWS[2 + 3 * WIDTH :])])),
            "a palette": taken(png(kind=3)),
            "16 bits": taken(png(depth=16)),
            "interlaced": taken(png(interlaced=1)),
            "more than it says": taken(png(parts=[zlib.compress(bytes(200 << 20))])),
            "no picture": taken(b"%PDF-1.4 /JavaScript"),
            "a link": taken(png(), link=True),
            "a side that is too long": taken(png(width=1 << 30)),
        }
    )
)
