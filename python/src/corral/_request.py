"""Requests, before any byte is sent. What comes from arguments is quoted or refused here."""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Iterator, Mapping, Sequence, Union
from urllib.parse import quote, urlencode

Attachment = Union[str, os.PathLike[str], tuple[str, Union[bytes, str, os.PathLike[str]]]]
"""The path of a file; or the name that the worker sees, with a path or with bytes."""
Attachments = Union[Sequence[Attachment], Mapping[str, Union[bytes, str, os.PathLike[str]]]]

PIECE_BYTES = 256 * 1024
MAX_ATTACHMENTS = 1000


@dataclass(frozen=True)
class Body:
    """`pieces` begins anew with each call; together they have `length` bytes."""

    content_type: str
    length: int
    content: bytes | Form | _File

    def pieces(self) -> Iterator[bytes]:
        return iter((self.content,)) if isinstance(self.content, bytes) else self.content.pieces()


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Body | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"/[\x21-\x7e]*", self.target):
            raise ValueError("the path of a request has a character that must be quoted")
        for name, value in self.headers.items():
            if not re.fullmatch(r"[\w-]+", name) or not re.fullmatch(r"[\x20-\x7e]*", value):
                raise ValueError(f"the header {name!r} has a character that no header may have")


def path_of(*parts: str) -> str:
    """`/v1/…`, each part quoted whole: a `/` in it leads nowhere."""
    for part in parts:
        if part in ("", ".", ".."):
            raise ValueError("an id or a name is empty, or is that of a folder")
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def query_of(**fields: object) -> str:
    """`?name=…` of the fields that are not None."""
    given = {name: _query_text(value) for name, value in fields.items() if value is not None}
    return f"?{urlencode(given, quote_via=quote)}" if given else ""


def _query_text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def json_body(value: object) -> Body:
    content = _json(value)
    return Body("application/json", len(content), content)


def bytes_body(content: bytes | str | os.PathLike[str]) -> Body:
    """Bytes, or the file of a path, which is read while it is sent."""
    file = _file("content", content)
    return Body("application/octet-stream", file.length, file)


def form_body(request: object, attachments: Attachments) -> Body:
    """The JSON as the part `request`, and every file. Files are read while they are sent."""
    pairs = attachments.items() if isinstance(attachments, Mapping) else [_named(one) for one in attachments]
    files = [_file(name, content) for name, content in pairs]
    if len(files) > MAX_ATTACHMENTS:
        raise ValueError(f"a run has at most {MAX_ATTACHMENTS} attachments")
    form = Form(_json(request), files)
    return Body(f"multipart/form-data; boundary={form.boundary}", form.length, form)


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")


def _named(one: Attachment) -> tuple[str, Any]:
    if isinstance(one, tuple):
        return one
    return os.path.basename(os.fspath(one)), one


@dataclass(frozen=True)
class _File:
    name: str
    length: int
    source: bytes | Path

    def pieces(self) -> Iterator[bytes]:
        if isinstance(self.source, bytes):
            if self.source:
                yield self.source
            return
        left = self.length
        with self.source.open("rb") as file:
            while left > 0:
                piece = _read(file, min(PIECE_BYTES, left))
                if not piece:
                    raise OSError(f"{self.source} became shorter while it was sent")
                left -= len(piece)
                yield piece


def _read(file: BinaryIO, most: int) -> bytes:
    return file.read(most)


def _file(name: str, content: bytes | str | os.PathLike[str]) -> _File:
    if not isinstance(name, str) or not name or name in (".", "..") or re.search(r"[/\\\x00-\x1f\x7f-\x9f]", name):
        raise ValueError("an attachment needs a name without a folder and without control characters")
    if isinstance(content, (bytes, bytearray, memoryview)):
        return _File(name, len(content), bytes(content))
    path = Path(content)
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise ValueError(f"{path} is not a regular file")
    return _File(name, about.st_size, path)


class Form:
    """`multipart/form-data`, made piece by piece."""

    def __init__(self, request: bytes, files: Sequence[_File]) -> None:
        self.boundary = f"corral-{secrets.token_hex(16)}"
        self._request = request
        self._files = files
        self.length = len(self._begin()) + sum(len(self._head(f)) + f.length for f in files) + len(self._end())

    def pieces(self) -> Iterator[bytes]:
        yield self._begin()
        for file in self._files:
            yield self._head(file)
            yield from file.pieces()
        yield self._end()

    def _begin(self) -> bytes:
        head = f'--{self.boundary}\r\ncontent-disposition: form-data; name="request"\r\n\r\n'
        return head.encode("ascii") + self._request

    def _head(self, file: _File) -> bytes:
        # A name that is not plain is sent in percent form: no character of it can end the header or the quotes.
        plain = re.fullmatch(r"[A-Za-z0-9 ._()+,=@-]+", file.name) is not None
        name = f'filename="{file.name}"' if plain else f"filename*=utf-8''{quote(file.name, safe='')}"
        return (
            f'\r\n--{self.boundary}\r\ncontent-disposition: form-data; name="file"; {name}\r\n'
            "content-type: application/octet-stream\r\n\r\n"
        ).encode("ascii")

    def _end(self) -> bytes:
        return f"\r\n--{self.boundary}--\r\n".encode("ascii")
