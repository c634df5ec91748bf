"""A run that the service has started."""

from __future__ import annotations

from typing import TYPE_CHECKING, AsyncIterator, Callable, Literal

from .. import models
from .._request import path_of, query_of
from .._transport.aio import Maybe, called, sleep
from ..errors import Conflict, CorralError, TimedOut
from ..events import Event
from ..results import Result, refuse
from .approvals import AsyncAnswering, OnQuestion
from .wire import Deadline

if TYPE_CHECKING:
    from .client import AsyncCorral

OnEvent = Callable[[Event], Maybe[object]]
OnOutput = Callable[[str], Maybe[object]]

# An answer to `wait` comes at the latest after so many seconds.
_WAIT_SECONDS = 30
_WAIT_BESIDE_QUESTIONS = 1
_SHORT_PAUSE = 0.05
_MAX_KEPT_OUTPUT = 8 * 1024**2


class AsyncRun:
    """A run, by its id. Nothing is asked before one of its methods is used."""

    def __init__(self, corral: AsyncCorral, id: str, project: str | None = None) -> None:
        self._corral = corral
        self.id = id
        self.project = project
        self.is_over = False

    def __repr__(self) -> str:
        return f"AsyncRun({self.id!r})"

    async def show(self) -> models.Run:
        """What the history has of it."""
        return models.Run.from_json(await self._corral.wire.ask("GET", path_of("runs", self.id)))

    def events(self, *, after: int = 0, timeout: float | None = None) -> AsyncIterator[Event]:
        """Its events and those of the runs below it, until the last: none is lost and none comes twice, over broken connections too."""
        deadline = Deadline(timeout, f"run {self.id}")
        return self._corral.wire.events(path_of("runs", self.id, "events"), after, deadline)

    def output(self, stream: Literal["stdout", "stderr"] = "stdout") -> AsyncIterator[bytes]:
        """What it prints, as it comes, until it ends. It is what a worker wrote: escape it where it is shown."""
        query = query_of(stream=stream, follow=True)
        return self._corral.wire.bytes_of(path_of("runs", self.id, "output") + query)

    async def stop(self) -> models.StoppedRun:
        """Stops it. It ends as `cancelled`, and what it wrote waits."""
        return models.StoppedRun.from_json(await self._corral.wire.ask("DELETE", path_of("runs", self.id)))

    async def wait(
        self,
        *,
        timeout: float | None = None,
        on_event: OnEvent | None = None,
        on_output: OnOutput | None = None,
        on_question: OnQuestion | None = None,
        check: bool = False,
    ) -> Result:
        """
        Its result, when it has ended. After `timeout` seconds it raises `TimedOut`, and the run continues. `on_question` answers
        what it asks: True, False, "once", "tree", "no", or None to leave it to others.
        """
        deadline = Deadline(timeout, f"run {self.id}")
        if on_question is None:
            result = await self._ended(deadline, on_event, on_output, None)
        else:
            async with AsyncAnswering(self._corral, on_question, root=self.id) as answering:
                result = await self._ended(deadline, on_event, on_output, answering)
        self.is_over = True
        refuse(result)
        return result.check() if check else result

    async def _ended(
        self,
        deadline: Deadline,
        on_event: OnEvent | None,
        on_output: OnOutput | None,
        answering: AsyncAnswering | None,
    ) -> Result:
        if on_event is not None or on_output is not None:
            async for event in self._corral.wire.events(path_of("runs", self.id, "events"), 0, deadline):
                if answering is not None:
                    answering.check()
                if on_event is not None:
                    await called(on_event, event)
                if on_output is not None and event.type == "output" and event.run == self.id:
                    await called(on_output, event.text)
        most = _WAIT_SECONDS if answering is None else _WAIT_BESIDE_QUESTIONS
        while True:
            if answering is not None:
                answering.check()
            seconds = int(deadline.within(most))
            result = await self._result(seconds)
            if result is not None:
                return result
            deadline.check()
            if seconds == 0:
                await sleep(deadline.within(_SHORT_PAUSE))

    async def result(self) -> Result | None:
        """Its result; None if it has not ended."""
        result = await self._result(0)
        return None if result is None else refuse(result)

    async def _result(self, seconds: int) -> Result | None:
        wire = self._corral.wire
        target = path_of("runs", self.id, "result") + query_of(wait=seconds)
        try:
            return Result.from_json(await wire.ask("GET", target, timeout=wire.timeout + seconds))
        except Conflict as error:
            if error.code == "RUN_NOT_OVER":
                return None
            if error.code != "NO_EVENTS":
                raise
        record = await self.show()
        if record.status == "running":
            raise CorralError(f"run {self.id} was not started by this service, so it cannot be waited for")
        stdout, stderr = [await self._printed(one) for one in ("stdout", "stderr")]
        return Result.of_record(record, stdout, stderr)

    async def _printed(self, stream: str) -> str:
        kept = bytearray()
        query = query_of(stream=stream)
        async for piece in self._corral.wire.bytes_of(path_of("runs", self.id, "output") + query):
            kept += piece[: _MAX_KEPT_OUTPUT - len(kept)]
        return kept.decode("utf-8", "replace")

    async def stop_quietly(self) -> None:
        """For a caller that fails already."""
        try:
            await self._corral.wire.ask("DELETE", path_of("runs", self.id), timeout=10)
        except (CorralError, TimedOut):
            pass
