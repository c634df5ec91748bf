"""HTTP/1.1 over asyncio streams. `blocking.py` has the same names."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import inspect
import io
import ssl
from typing import Any, AsyncIterator, Awaitable, Callable, TypeVar, Union

from .._address import Address
from .._request import Request
from ..errors import ProtocolError, TimedOut, Unreachable
from .limits import CONNECT_SECONDS, MAX_HEAD_BYTES, READ_BYTES

T = TypeVar("T")
Maybe = Union[T, Awaitable[T]]
"""What a function of the user answers with: it may be `async` or not."""


class Response:
    """An answer whose body is read as it comes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: int, headers: Any) -> None:
        self._reader = reader
        self._writer = writer
        self._headers = headers
        self.status = status
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        self._is_over = status == 204
        self._is_chunked = coding is not None
        # Of the body, or of the chunk that is being read.
        self._left = 0
        if self._is_over:
            return
        if coding is None and length is None:
            # The end of such an answer could not be told from a connection that broke.
            raise ConnectionResetError("the answer has no length")
        if coding is None and length.isascii() and length.isdigit():
            self._left = int(length)
        elif coding is None or coding.lower() != "chunked" or length is not None:
            raise ProtocolError("the answer has a length that is not understood")

    def header(self, name: str) -> str:
        return str(self._headers.get(name, ""))

    async def read_some(self, timeout: float) -> bytes:
        """The next bytes; empty at the end."""
        async with _named(f"nothing came from the service for {timeout:.0f} s"):
            async with asyncio.timeout(timeout):
                return await self._next()

    async def _next(self) -> bytes:
        if self._is_over:
            return b""
        if self._is_chunked and self._left == 0:
            await self._begin_chunk()
            if self._is_over:
                return b""
        if self._left == 0:
            self._is_over = True
            return b""
        piece = await self._reader.read(min(READ_BYTES, self._left))
        if not piece:
            raise ConnectionResetError("the answer broke off")
        self._left -= len(piece)
        if self._is_chunked and self._left == 0 and await self._reader.readexactly(2) != b"\r\n":
            raise ProtocolError("a chunk of the answer does not end where it says")
        return piece

    async def _begin_chunk(self) -> None:
        size = (await self._reader.readuntil(b"\r\n"))[:-2].split(b";")[0].strip()
        if not size or len(size) > 15 or any(byte not in b"0123456789abcdefABCDEF" for byte in size):
            raise ProtocolError("the length of a chunk is not a number")
        self._left = int(size, 16)
        if self._left > 0:
            return
        while await self._reader.readuntil(b"\r\n") != b"\r\n":
            pass
        self._is_over = True

    async def close(self) -> None:
        _abandon(self._writer)


class Transport:
    """A connection for each request: none can be one that the service has closed meanwhile."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._tls = ssl.create_default_context() if address.scheme == "https" else None

    async def open(self, request: Request, timeout: float) -> Response:
        slow, broken = f"{self._address} did not answer in {timeout:.0f} s", f"{self._address} cannot be reached"
        async with _named(slow, broken):
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await self._connect()
            try:
                # A service that refuses an upload answers before it has all of it.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    await self._send(writer, request, timeout)
                async with asyncio.timeout(timeout):
                    return await _answer(reader, writer)
            except BaseException:
                _abandon(writer)
                raise

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port, path = self._address.host, self._address.port, self._address.path
        if path is not None:
            return await asyncio.open_unix_connection(path, limit=MAX_HEAD_BYTES)
        return await asyncio.open_connection(host, port, ssl=self._tls, limit=MAX_HEAD_BYTES)

    async def _send(self, writer: asyncio.StreamWriter, request: Request, timeout: float) -> None:
        fields = {"Host": self._address.host_header, "Connection": "close", **request.headers}
        body = request.body
        if body is not None:
            fields |= {"Content-Type": body.content_type, "Content-Length": str(body.length)}
        lines = [f"{request.method} {request.target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode("ascii"))
        pieces = iter(()) if body is None else body.pieces()
        while piece := await asyncio.to_thread(next, pieces, b""):
            writer.write(piece)
            async with asyncio.timeout(timeout):
                await writer.drain()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Response:
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        line, _, fields = head.partition(b"\r\n")
        version, _, rest = line.partition(b" ")
        if version != b"HTTP/1.1" or len(rest) < 3 or not rest[:3].isdigit():
            raise ProtocolError("the answer is not HTTP/1.1")
        status = int(rest[:3])
        if status >= 200:
            return Response(reader, writer, status, http.client.parse_headers(io.BytesIO(fields)))


def _abandon(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(Exception):
        writer.transport.abort()


@contextlib.asynccontextmanager
async def _named(slow: str, broken: str = "the connection to the service broke") -> AsyncIterator[None]:
    """Errors of sockets as errors of this package."""
    try:
        yield
    except TimeoutError:
        raise TimedOut(slow) from None
    except (asyncio.LimitOverrunError, http.client.HTTPException):
        raise ProtocolError("the head of the answer is too large") from None
    except EOFError:
        raise Unreachable(broken) from None
    except OSError as error:
        raise Unreachable(f"{broken}: {error.strerror or type(error).__name__}") from None


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def called(function: Callable[..., T | Awaitable[T]], *args: Any) -> T:
    """Functions of the user may be `async` or not."""
    answer = function(*args)
    return await answer if inspect.isawaitable(answer) else answer


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """For the disk: it may be slow."""
    return await asyncio.to_thread(function, *args)


class Flag:
    """Set once; those who wait continue then."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    async def wait(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        return self._event.is_set()


class Background:
    """A function that runs beside what is done here."""

    def __init__(self, function: Callable[[], Awaitable[None]], name: str) -> None:
        self._task = asyncio.ensure_future(function())

    async def join(self, seconds: float) -> None:
        """Waits for its end; after so many seconds it is cancelled."""
        await asyncio.wait([self._task], timeout=seconds)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
