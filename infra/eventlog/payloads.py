"""Large values outside the log: files named by their digest, under the artifact folder.

Enters: bytes. Leaves: a pointer of some 200 bytes, and the bytes again for it. A file is written beside its place, fsynced and
renamed, so that a reader finds all of it or nothing; the same bytes are one file, however often they are put. What can go wrong:
`Retry` when the folder cannot be written or read now, `Poison` for a file that is missing or has other bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
import uuid
from pathlib import Path

from contracts.errors import Poison, Retry
from infra.disk import sync

MARK = b"\x00slipstream-payload\x00"
"""No record begins with it: records are JSON."""

_POINTER = re.compile(re.escape(MARK) + rb'\{"uri":"payloads/([0-9a-f]{2})/(\1[0-9a-f]{62})","sha256":"\2","size":(\d{1,15})\}')
_DRAFT = ".draft-"
_DRAFTS_KEPT_S = 3600.0


class Payloads:
    """`root` is the folder itself; every process of a deployment that reads the log must see the same one."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, value: bytes) -> bytes:
        """Durable when it returns; answers the pointer."""
        sha256 = hashlib.sha256(value).hexdigest()
        file = self._file(sha256)
        try:
            # Fresh again for retention; a file of another size is a broken one and is replaced.
            if not (file.is_file() and file.stat().st_size == len(value) and _touched(file)):
                _write(file, value)
        except OSError as error:
            raise Retry(f"The payload folder {self._root} cannot be written: {error.strerror or error}.") from error
        return MARK + b'{"uri":"payloads/%b/%b","sha256":"%b","size":%d}' % (
            *(sha256[:2].encode(), sha256.encode(), sha256.encode()),
            len(value),
        )

    def get(self, pointer: bytes) -> bytes:
        found = _POINTER.fullmatch(pointer)
        if found is None:
            raise Poison("bad_payload_pointer", "the value is marked as a pointer to a payload, but it is none")
        sha256, size = found[2].decode(), int(found[3])
        try:
            value = self._file(sha256).read_bytes()
        except FileNotFoundError:
            raise Poison("payload_missing", f"the payload {sha256} of {size} bytes is not under {self._root}") from None
        except OSError as error:
            raise Retry(f"The payload {sha256} cannot be read: {error.strerror or error}.") from error
        if len(value) != size or hashlib.sha256(value).hexdigest() != sha256:
            raise Poison("payload_altered", f"the payload {sha256} has {len(value)} other bytes than the {size} that were written")
        return value

    def trim(self, older_than_s: float, now_s: float | None = None) -> int:
        """Remove what nobody put for so long, and what a crash left half-written; answers how many payloads went."""
        now_s = time.time() if now_s is None else now_s
        gone = 0
        for file in self._root.glob("??/*"):
            draft = file.name.startswith(_DRAFT)
            try:
                if now_s - file.stat().st_mtime > (_DRAFTS_KEPT_S if draft else older_than_s):
                    file.unlink()
                    gone += not draft
            except OSError:
                continue  # another process was quicker, or it goes next time
        return gone

    def _file(self, sha256: str) -> Path:
        return self._root / sha256[:2] / sha256


def is_pointer(value: bytes) -> bool:
    return value.startswith(MARK) and _POINTER.fullmatch(value) is not None


def _touched(file: Path) -> bool:
    try:
        os.utime(file)
    except FileNotFoundError:
        return False
    return True


def _write(file: Path, value: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.parent / f"{_DRAFT}{uuid.uuid4().hex}"
    try:
        with draft.open("xb") as stream:
            stream.write(value)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync(file.parent)
