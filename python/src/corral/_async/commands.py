"""A command of a session that was started, and is not waited for."""

from __future__ import annotations

import base64
import codecs
from typing import TYPE_CHECKING, AsyncIterator, Callable

from .. import models
from .._decode import as_text
from .._request import bytes_body, json_body, path_of, query_of
from .._transport.aio import Maybe, Response, called
from ..errors import TimedOut, Unreachable
from ..events import Event, EventParser
from ..results import CommandResult
from .wire import SILENCE_SECONDS, Deadline

if TYPE_CHECKING:
    from .client import AsyncCorral

# Of one request; the service takes no more.
_INPUT_BYTES = 1024**2
_WAIT_SECONDS = 30

OnText = Callable[[str], Maybe[object]]


def printed(event: Event) -> bytes:
    """The bytes of an event `printed`."""
    return base64.b64decode(as_text(event.data.get("base64"), "base64"))


class TextOfStreams:
    """The text of what a command prints. The functions get it as it comes."""

    def __init__(self, on_stdout: OnText | None, on_stderr: OnText | None) -> None:
        self._functions = {"stdout": on_stdout, "stderr": on_stderr}
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in self._functions}
        self._parts: dict[str, list[str]] = {name: [] for name in self._functions}

    @property
    def all(self) -> dict[str, str]:
        return {name: "".join(parts) for name, parts in self._parts.items()}

    async def take(self, stream: str, piece: bytes, is_end: bool = False) -> None:
        text, function = self._decoders[stream].decode(piece, is_end), self._functions[stream]
        self._parts[stream].append(text)
        if text and function is not None:
            await called(function, text)

    async def end(self) -> None:
        for stream in self._functions:
            await self.take(stream, b"", is_end=True)


async def followed(response: Response, on_stdout: OnText | None, on_stderr: OnText | None) -> CommandResult:
    """How a command ended whose events this answer has, with all of its output."""
    texts = TextOfStreams(on_stdout, on_stderr)
    parser = EventParser()
    while piece := await response.read_some(SILENCE_SECONDS):
        for event in parser.feed(piece):
            if event.type == "printed":
                await texts.take(event.stream, printed(event))
            elif event.type == "ended":
                await texts.end()
                return CommandResult.read("".join(texts.all.values()), {**event.data, **texts.all})
    raise Unreachable("the output of a command broke off before its end")


class AsyncCommand:
    """A command in the background of a session, by its id. It runs until it ends, is signalled, or the session ends."""

    def __init__(self, corral: AsyncCorral, session: str, about: models.SessionCommand) -> None:
        self._corral = corral
        self._session = session
        self.about = about
        self.missing_bytes = 0
        """How much of its output came before what was kept when `output` was read."""

    def __repr__(self) -> str:
        return f"AsyncCommand({self.about.command!r})"

    @property
    def id(self) -> str:
        return self.about.id

    def _path(self, *parts: str) -> str:
        return path_of("sessions", self._session, "commands", self.id, *parts)

    async def show(self) -> models.SessionCommand:
        """How it is now: `running`, or how it ended."""
        self.about = models.SessionCommand.from_json(await self._corral.wire.ask("GET", self._path()))
        return self.about

    async def output(self) -> AsyncIterator[tuple[str, bytes]]:
        """Pairs of `stdout` or `stderr` and what came there, from the oldest that is kept (the last MiB) to its end."""
        async for event in self._corral.wire.events(self._path("output"), 0, Deadline(None)):
            if event.type == "printed":
                missing = event.data.get("missingBytes")
                self.missing_bytes += missing if isinstance(missing, int) else 0
                yield event.stream, printed(event)

    @property
    def stdout(self) -> AsyncIterator[bytes]:
        return self._one("stdout")

    @property
    def stderr(self) -> AsyncIterator[bytes]:
        return self._one("stderr")

    async def _one(self, wanted: str) -> AsyncIterator[bytes]:
        async for stream, piece in self.output():
            if stream == wanted:
                yield piece

    async def wait(self, *, timeout: float | None = None) -> models.SessionCommand:
        """How it ended. After `timeout` seconds it raises `TimedOut`, and the command continues."""
        deadline = Deadline(timeout, f"command {self.id}")
        while True:
            seconds = int(deadline.within(_WAIT_SECONDS))
            target = self._path() + query_of(wait=seconds)
            answer = await self._corral.wire.ask("GET", target, timeout=self._corral.wire.timeout + seconds)
            self.about = models.SessionCommand.from_json(answer)
            if self.about.status != "running":
                return self.about
            deadline.check()
            if timeout is not None and seconds == 0:
                raise TimedOut(f"command {self.id} takes longer than it was given")

    async def signal(self, name: str = "TERM") -> None:
        """Sends it and all that it has started a signal, such as `KILL`."""
        await self._corral.wire.ask("POST", self._path("signal"), json_body({"signal": f"SIG{name.removeprefix('SIG')}"}))

    async def write(self, content: bytes | str, *, end: bool = False) -> None:
        """Writes to its input, if it was started with `input=True`. `end`: there is no more."""
        given = content.encode() if isinstance(content, str) else content
        pieces = [given[at : at + _INPUT_BYTES] for at in range(0, len(given), _INPUT_BYTES)] or [b""]
        for number, piece in enumerate(pieces):
            query = query_of(end=True if end and number == len(pieces) - 1 else None)
            await self._corral.wire.ask("POST", self._path("input") + query, bytes_body(piece))
