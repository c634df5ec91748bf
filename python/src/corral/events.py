"""Server-sent events, without any I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Iterator

from .errors import ProtocolError

_MAX_EVENT_BYTES = 32 * 1024**2


@dataclass(frozen=True, slots=True)
class Event:
    """What happened in a run or a fleet. Its texts may come from a worker."""

    id: int
    """To continue after it."""
    type: str
    at: str
    """ISO 8601, UTC."""
    data: dict[str, Any] = field(repr=False)
    """All fields."""

    @property
    def run(self) -> str | None:
        """The run that it is about: the one that is followed, or one below it."""
        value = self.data.get("run")
        return value if isinstance(value, str) else None

    @property
    def text(self) -> str:
        """What was printed, of an event `output`; else empty."""
        value = self.data.get("text")
        return value if isinstance(value, str) else ""

    @property
    def stream(self) -> str:
        """`stdout` or `stderr`, of an event `output`; else empty."""
        value = self.data.get("stream")
        return value if isinstance(value, str) else ""


class EventParser:
    """Takes bytes as they come and gives whole events. The rest of one that broke off is never an event."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._id = ""

    def feed(self, piece: bytes) -> Iterator[Event]:
        *whole, rest = piece.split(b"\n")
        for part in whole:
            self._line += part
            line = bytes(self._line)
            self._line.clear()
            event = self._take(line.removesuffix(b"\r"))
            if event is not None:
                yield event
        self._line += rest
        self._bound(len(self._line))

    def _take(self, line: bytes) -> Event | None:
        if not line:
            return self._whole()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value)
            self._bound(self._size)
        elif name == b"id":
            self._id = value.decode("ascii", "replace")
        return None

    def _whole(self) -> Event | None:
        data, given = b"\n".join(self._data), self._id
        self._data, self._size, self._id = [], 0, ""
        if not data:
            return None
        try:
            fields = json.loads(data)
        except ValueError:
            raise ProtocolError("an event of the service is not JSON") from None
        if not isinstance(fields, dict) or not given.isascii() or not given.isdigit():
            raise ProtocolError("an event of the service has no id or no fields")
        return Event(int(given), str(fields.get("type", "")), str(fields.get("at", "")), fields)

    def _bound(self, size: int) -> None:
        if size > _MAX_EVENT_BYTES:
            raise ProtocolError(f"an event has more than {_MAX_EVENT_BYTES} bytes")
