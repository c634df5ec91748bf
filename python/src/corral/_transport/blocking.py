"""HTTP over `http.client`, and what waits in a thread. `aio.py` has the same names."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from typing import Annotated, Any, Callable, Iterator, TypeVar

from .._address import Address
from .._request import Request
from ..errors import ProtocolError, TimedOut, Unreachable
from .limits import CONNECT_SECONDS, READ_BYTES

T = TypeVar("T")
Maybe = Annotated[T, "never awaited"]
"""What a function of the user answers with."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Response:
    """An answer whose body is read as it comes."""

    def __init__(self, connection: http.client.HTTPConnection, sock: socket.socket, answer: http.client.HTTPResponse):
        self._connection = connection
        self._sock = sock
        self._answer = answer
        self.status = answer.status

    def header(self, name: str) -> str:
        return self._answer.headers.get(name, "")

    def read_some(self, timeout: float) -> bytes:
        """The next bytes; empty at the end."""
        with _named(f"nothing came from the service for {timeout:.0f} s"):
            if self._sock.fileno() >= 0:
                self._sock.settimeout(max(timeout, 0.001))
            piece = self._answer.read1(READ_BYTES)
            # `http.client` says nothing of an answer that is shorter than its length.
            if not piece and not self._answer.chunked and self._answer.length:
                raise ConnectionResetError("the answer broke off")
            return piece

    def close(self) -> None:
        # A thread that reads is woken up by this, and not by `close` alone.
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._answer.close()
        self._connection.close()


class Transport:
    """A connection for each request: none can be one that the service has closed meanwhile."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._tls = ssl.create_default_context() if address.scheme == "https" else None

    def open(self, request: Request, timeout: float) -> Response:
        with _named(f"{self._address} did not answer in {timeout:.0f} s", f"{self._address} cannot be reached"):
            connection = self._connection()
            try:
                connection.connect()
                sock: socket.socket = connection.sock
                sock.settimeout(timeout)
                self._send(connection, request)
                answer = connection.getresponse()
                # The end of such an answer could not be told from a connection that broke.
                if answer.status != 204 and not answer.chunked and answer.length is None:
                    raise ConnectionResetError("the answer has no length")
                return Response(connection, sock, answer)
            except BaseException:
                connection.close()
                raise

    def _connection(self) -> http.client.HTTPConnection:
        host, port, path = self._address.host, self._address.port, self._address.path
        if path is not None:
            return _UnixConnection(path, CONNECT_SECONDS)
        if self._tls is not None:
            return http.client.HTTPSConnection(host, port, timeout=CONNECT_SECONDS, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=CONNECT_SECONDS)

    def _send(self, connection: http.client.HTTPConnection, request: Request) -> None:
        connection.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", self._address.host_header)
        connection.putheader("Connection", "close")
        for name, value in request.headers.items():
            connection.putheader(name, value)
        body = request.body
        if body is not None:
            connection.putheader("Content-Type", body.content_type)
            connection.putheader("Content-Length", str(body.length))
        connection.endheaders()
        if body is None:
            return
        # A service that refuses an upload answers before it has all of it.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for piece in body.pieces():
                connection.send(piece)


@contextlib.contextmanager
def _named(slow: str, broken: str = "the connection to the service broke") -> Iterator[None]:
    """Errors of sockets as errors of this package. Those of `http.client` could hold what was sent, so they are not kept."""
    try:
        yield
    except TimeoutError:
        raise TimedOut(slow) from None
    except (http.client.IncompleteRead, http.client.RemoteDisconnected):
        raise Unreachable(broken) from None
    except http.client.BadStatusLine as error:
        # A head that broke off looks like a wrong one.
        if not "HTTP/1.".startswith(str(error.args[0])[:7]):
            raise ProtocolError("the answer is not HTTP") from None
        raise Unreachable(broken) from None
    except http.client.HTTPException as error:
        raise ProtocolError(f"the answer is not HTTP that is understood ({type(error).__name__})") from None
    except OSError as error:
        raise Unreachable(f"{broken}: {error.strerror or type(error).__name__}") from None
    except ValueError:
        # A response that another thread has closed.
        raise Unreachable(broken) from None


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def called(function: Callable[..., T], *args: Any) -> T:
    return function(*args)


def in_thread(function: Callable[..., T], *args: Any) -> T:
    return function(*args)


class Flag:
    """Set once; those who wait continue then."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        return self._event.wait(seconds)


class Background:
    """A function that runs beside what is done here."""

    def __init__(self, function: Callable[[], None], name: str) -> None:
        self._thread = threading.Thread(target=function, name=name, daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Waits for its end, at most so long; what hangs then does so in a thread that ends with the process."""
        self._thread.join(seconds)
