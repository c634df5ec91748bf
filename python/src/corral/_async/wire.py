"""Requests and answers of one service."""

from __future__ import annotations

import json
import time
from typing import Any, AsyncIterator, BinaryIO

from .._address import Address, Secret
from .._decode import as_object
from .._request import Body, Request
from .._transport.aio import Response, Transport, in_thread, sleep
from .._transport.limits import MAX_JSON_BYTES
from ..errors import ProtocolError, TimedOut, Unavailable, Unreachable, service_error
from ..events import Event, EventParser

# The service sends something every 15 s on a stream that is idle.
SILENCE_SECONDS = 50.0
# An output sends nothing while its worker prints nothing, which may compute for hours: no sign tells that from a host that is gone.
_OUTPUT_SILENCE_SECONDS = 24 * 3600.0
_FIRST_PAUSE = 0.05
_MAX_PAUSE = 2.0


class AsyncWire:
    """`patience`: for how many seconds what only reads is tried again while the service cannot be reached."""

    def __init__(self, address: Address, token: Secret | None, timeout: float, patience: float) -> None:
        self.address = address
        self.timeout = timeout
        self._token = token
        self._patience = patience
        self._transport = Transport(address)

    async def ask(self, method: str, target: str, body: Body | None = None, timeout: float | None = None) -> dict[str, Any]:
        """The JSON of an answer. A request that reads is sent again if the connection breaks, another one never."""
        if method == "GET":
            return await self._patiently(method, target, timeout)
        return await self._once(method, target, body, timeout)

    async def _patiently(self, method: str, target: str, timeout: float | None) -> dict[str, Any]:
        trouble = Trouble(self._patience)
        while True:
            try:
                return await self._once(method, target, None, timeout)
            except Unreachable as error:
                await trouble.pause(error)
            except Unavailable as error:
                if error.code != "STOPPING":
                    raise
                await trouble.pause(error)

    async def _once(self, method: str, target: str, body: Body | None, timeout: float | None) -> dict[str, Any]:
        response = await self.open(method, target, body, timeout=timeout)
        try:
            return as_object(await self._json(response, timeout), "the body")
        finally:
            await response.close()

    async def open(
        self,
        method: str,
        target: str,
        body: Body | None = None,
        headers: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> Response:
        """An answer with a status below 300; the caller closes it. @raises ServiceError for another one"""
        sent = {"Accept": "*/*", "User-Agent": "corral-python", **(headers or {})}
        if self._token is not None:
            sent["Authorization"] = f"Bearer {self._token.value}"
        limit = self.timeout if timeout is None else timeout
        response = await self._transport.open(Request(method, self.address.prefix + target, sent, body), limit)
        if 200 <= response.status < 300:
            return response
        try:
            body_of_error = await self._json(response, limit) if response.header("content-type") else {}
        except (ProtocolError, TimedOut, Unreachable):
            body_of_error = {}
        finally:
            await response.close()
        raise service_error(response.status, body_of_error)

    async def _json(self, response: Response, timeout: float | None) -> Any:
        content = bytearray()
        while piece := await response.read_some(self.timeout if timeout is None else timeout):
            content += piece
            if len(content) > MAX_JSON_BYTES:
                raise ProtocolError(f"an answer has more than {MAX_JSON_BYTES} bytes")
        try:
            return json.loads(content)
        except ValueError:
            raise ProtocolError("the answer is not JSON: is this a Corral service?") from None

    async def events(self, target: str, after: int, deadline: Deadline) -> AsyncIterator[Event]:
        """Every event once, from the one after `after` to the last, over as many connections as it takes."""
        last, trouble = after, Trouble(self._patience)
        while True:
            headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": str(last)} if last > 0 else {})
            response: Response | None = None
            try:
                response = await self.open("GET", target, None, headers, deadline.within(self.timeout))
                if response.status == 204:
                    return
                parser, before = EventParser(), last
                while piece := await response.read_some(deadline.within(SILENCE_SECONDS)):
                    for event in parser.feed(piece):
                        last = event.id
                        trouble = Trouble(self._patience)
                        yield event
                        deadline.check()
                if last == before:
                    raise Unreachable("a stream of events ended before its end")
            except (Unreachable, TimedOut, Unavailable) as error:
                deadline.check()
                await trouble.pause(error)
            finally:
                if response is not None:
                    await response.close()

    async def bytes_of(self, target: str) -> AsyncIterator[bytes]:
        """The bytes of an answer that is the same each time. After a broken connection it continues after what it gave."""
        given, trouble = 0, Trouble(self._patience)
        while True:
            response: Response | None = None
            try:
                response = await self.open("GET", target)
                left = given
                while piece := await response.read_some(_OUTPUT_SILENCE_SECONDS):
                    fresh = piece[left:]
                    left = max(0, left - len(piece))
                    if fresh:
                        given += len(fresh)
                        trouble = Trouble(self._patience)
                        yield fresh
                return
            except (Unreachable, TimedOut, Unavailable) as error:
                await trouble.pause(error)
            finally:
                if response is not None:
                    await response.close()

    async def save(self, target: str, file: BinaryIO, max_bytes: int) -> None:
        """Writes the body of an answer to a file as it comes."""
        response = await self.open("GET", target)
        total = 0
        try:
            while piece := await response.read_some(self.timeout):
                total += len(piece)
                if total > max_bytes:
                    raise ProtocolError(f"the answer has more than {max_bytes} bytes")
                await in_thread(file.write, piece)
        finally:
            await response.close()


class Deadline:
    """The end of a wait; None: there is none."""

    def __init__(self, seconds: float | None, what: str = "") -> None:
        self._at = None if seconds is None else time.monotonic() + seconds
        self._what = what

    def within(self, seconds: float) -> float:
        """So many seconds, or what is left of them."""
        return seconds if self._at is None else max(0.001, min(seconds, self._at - time.monotonic()))

    def check(self) -> None:
        if self._at is not None and time.monotonic() >= self._at:
            raise TimedOut(f"{self._what} takes longer than it was given")


class Trouble:
    """Counts how long a service cannot be reached, and waits a little longer each time."""

    def __init__(self, patience: float) -> None:
        self._until = time.monotonic() + patience
        self._pause = _FIRST_PAUSE

    async def pause(self, error: Exception) -> None:
        if time.monotonic() + self._pause > self._until:
            raise error
        await sleep(self._pause)
        self._pause = min(self._pause * 2, _MAX_PAUSE)


__all__ = ["AsyncWire", "Deadline", "Trouble"]
