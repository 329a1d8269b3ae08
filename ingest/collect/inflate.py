"""The body of a request, as its sender had it before compression, within a limit.

Enters: chunks of bytes and the name of an encoding. Leaves: bytes. What can go wrong: `TooLarge` as soon as more came out than is
allowed (a few kilobytes can stand for gigabytes, so nothing is inflated further than the limit); ValueError for what is not in
that encoding.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator

import zstandard

ENCODINGS = ("gzip", "zstd")

_WINDOW_BYTES = 2**23
"""What a decoder of zstd must be able to remember (RFC 8878); a frame that asks for more asks for our memory."""


_MEMBERS = 16


class TooLarge(ValueError):
    """More than a body may have. `seen`: what there was of it."""

    def __init__(self, message: str, seen: bytes = b"") -> None:
        super().__init__(message)
        self.seen = seen


async def read(chunks: AsyncIterator[bytes], most: int) -> bytes:
    found = bytearray()
    async for chunk in chunks:
        found += chunk
        if len(found) > most:
            raise TooLarge(f"a body may have {most} bytes", bytes(found))
    return bytes(found)


def inflate(body: bytes, encoding: str, most: int) -> bytes:
    """`encoding`: one of `ENCODINGS`."""
    return _gunzip(body, most) if encoding == "gzip" else _unzstd(body, most)


def _gunzip(body: bytes, most: int) -> bytes:
    """A few members may follow each other (RFC 1952); with many, each a few bytes, the rest would be copied many times."""
    found = b""
    rest = body
    for _ in range(_MEMBERS):
        if not rest:
            return found
        member = zlib.decompressobj(wbits=31)
        try:
            found += member.decompress(rest, most + 1 - len(found))
        except zlib.error as error:
            raise ValueError(f"the body is not gzip: {error}") from error
        if len(found) > most:
            raise TooLarge(f"a body may have {most} bytes, inflated", body)
        if not member.eof:
            raise ValueError("the body is not gzip: it ends too soon")
        rest = member.unused_data
    raise ValueError(f"the body is not gzip as it should be: more than {_MEMBERS} members")


def _unzstd(body: bytes, most: int) -> bytes:
    reader = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES).stream_reader(body, read_across_frames=True)
    try:
        found = reader.read(most + 1)
        more = reader.read(1) if len(found) <= most else b"."
    except zstandard.ZstdError as error:
        raise ValueError(f"the body is not zstd: {error}") from error
    if len(found) + len(more) > most:
        raise TooLarge(f"a body may have {most} bytes, inflated", body)
    return found
