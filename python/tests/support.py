"""What the tests share. test/python/client.test.ts starts the services and says where they are."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
import unittest
from typing import Any, Awaitable, Callable, TypeVar

from corral import AsyncCorral, Corral

T = TypeVar("T")


def env(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise unittest.SkipTest(f"{name} is not set: this needs a service")
    return value


def client(**how: Any) -> Corral:
    return Corral(env("CORRAL_TEST_URL"), token=env("CORRAL_TEST_TOKEN"), **how)


def async_client(**how: Any) -> AsyncCorral:
    return AsyncCorral(env("CORRAL_TEST_URL"), token=env("CORRAL_TEST_TOKEN"), **how)


def port_of_service() -> int:
    return int(env("CORRAL_TEST_URL").rsplit(":", 1)[1])


def running(body: Callable[[], Awaitable[T]]) -> T:
    async def main() -> T:
        return await body()

    return asyncio.run(main())


class Cutter:
    """
    A proxy on a port of its own that cuts connections after so many bytes of the body of an answer, as often as it is told.
    A number below 0 cuts the head, so many bytes after its beginning; 0 answers nothing.
    """

    def __init__(self, to: int, cuts: list[int], only: bytes = b"") -> None:
        self._to = to
        self._cuts = list(cuts)
        self._only = only
        self.made = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> Cutter:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(here,), daemon=True).start()

    def _serve(self, here: socket.socket) -> None:
        with here, socket.create_connection(("127.0.0.1", self._to)) as there:
            head = b""
            while b"\r\n\r\n" not in head:
                head += here.recv(65536)
            # The service knows its own name only.
            own, real = f"127.0.0.1:{self.port}".encode(), f"127.0.0.1:{self._to}".encode()
            there.sendall(head.replace(own, real))
            threading.Thread(target=self._upload, args=(here, there), daemon=True).start()
            left = self._cuts.pop(0) if self._cuts and self._only in head else None
            if left is not None and left > 0:
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    head += there.recv(1)
                here.sendall(head)
            left = None if left is None else abs(left)
            while left != 0 and (piece := there.recv(65536 if left is None else max(1, min(left, 65536)))):
                with contextlib.suppress(OSError):
                    here.sendall(piece)
                if left is not None:
                    left -= len(piece)
                    left = max(left, 0)
            self.made += left == 0
            # Closed alone, it would stay open as long as the other thread reads.
            for one in (here, there):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def _upload(self, here: socket.socket, there: socket.socket) -> None:
        try:
            while piece := here.recv(65536):
                there.sendall(piece)
        except OSError:
            pass


class Liar:
    """A server that answers every request with the same bytes, or what a function makes of the request."""

    def __init__(self, answer: bytes | Callable[[bytes], bytes]) -> None:
        self._answer = answer
        self.requests: list[bytes] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Liar:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._server.accept()
            except OSError:
                return
            with here:
                head = here.recv(1024**2)
                self.requests.append(head)
                here.sendall(self._answer if isinstance(self._answer, bytes) else self._answer(head))
                here.shutdown(socket.SHUT_WR)
                here.settimeout(1)
                try:
                    while here.recv(65536):
                        pass
                except OSError:
                    pass


def answer(body: object, status: str = "200 OK", headers: str = "") -> bytes:
    content = json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n{headers}\r\n"
    return head.encode() + content


def stream(content: bytes, *, is_whole: bool = True) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + f"{len(content):x}\r\n".encode() + content + b"\r\n" + (b"0\r\n\r\n" if is_whole else b"")
