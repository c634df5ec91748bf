"""A worker over many items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Sequence

from .. import models
from .._request import path_of, query_of
from .._transport.aio import Maybe, called, sleep
from ..errors import Conflict, CorralError
from ..events import Event
from ..results import ItemResult, Progress
from .wire import Deadline

if TYPE_CHECKING:
    from .client import AsyncCorral

OnProgress = Callable[[Progress], Maybe[object]]

_PAGE = 500
_POLL_SECONDS = 1.0
_OVER = ("done", "cancelled", "pending", "paused", "interrupted")


class AsyncFleet:
    """A fleet, by its id. Nothing is asked before one of its methods is used."""

    def __init__(
        self, corral: AsyncCorral, id: str, items: Sequence[Any] | None = None, *, cursor: int = 0
    ) -> None:
        self._corral = corral
        self._items = items
        self.id = id
        self.cursor = cursor
        """The last event that `results` has seen. Keep it with the id to continue after it in another process."""
        self.progress = Progress(len(items) if items is not None else 0, 0, 0)
        self.is_over = False
        # By the item's index, the attempt that was given out.
        self._given: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"AsyncFleet({self.id!r})"

    async def __aenter__(self) -> AsyncFleet:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not self.is_over:
            await self.cancel_quietly()

    async def show(self) -> models.Fleet:
        """Its state and counts; `raw` has groups of failures and the slowest items."""
        return models.Fleet.from_json(await self._corral.wire.ask("GET", path_of("fleets", self.id)))

    def events(self, *, after: int = 0, timeout: float | None = None) -> AsyncIterator[Event]:
        """Its events until the last: none is lost and none comes twice, over broken connections too."""
        deadline = Deadline(timeout, f"fleet {self.id}")
        return self._corral.wire.events(path_of("fleets", self.id, "events"), after, deadline)

    async def items(
        self,
        *,
        state: str | None = None,
        status: str | None = None,
        failed: bool | None = None,
        search: str | None = None,
    ) -> AsyncIterator[models.FleetItem]:
        """Its items in the order in which they were given, without what they printed."""
        cursor: int | None = 0
        while cursor is not None:
            query = query_of(state=state, status=status, failed=failed, search=search, cursor=cursor, limit=_PAGE)
            page = await self._corral.wire.ask("GET", path_of("fleets", self.id, "items") + query)
            for one in page.get("items", []):
                yield models.FleetItem.from_json(one)
            following = page.get("next")
            cursor = following if isinstance(following, int) else None

    async def item(self, key: str) -> models.ShownItem:
        """One item: its result, its request, what it printed, earlier attempts."""
        target = path_of("fleets", self.id, "item") + query_of(key=key)
        return models.ShownItem.from_json(await self._corral.wire.ask("GET", target))

    async def results(
        self,
        *,
        outputs: bool = True,
        on_progress: OnProgress | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[ItemResult]:
        """
        The result of each item once, as items end; failures too. It ends with the fleet, and continues where it was if it is
        asked again. Without `outputs` the output of each item is not fetched.
        """
        deadline = Deadline(timeout, f"fleet {self.id}")
        target = path_of("fleets", self.id, "events")
        is_whole = True
        try:
            async for event in self._corral.wire.events(target, self.cursor, deadline):
                self.cursor = event.id
                if event.type == "loaded":
                    self._count(total=_number(event.data.get("items")))
                elif event.type == "left_out":
                    is_whole = False
                elif event.type == "settled" and event.data.get("retryInMs") is None:
                    result = ItemResult.read(self.id, event.data, None)
                    if self._given.get(result.index) != result.attempt:
                        yield await self._give(result, outputs, on_progress)
        except Conflict as error:
            if error.code != "NO_EVENTS":
                raise
            is_whole = False
        if not is_whole:
            async for result in self._rest(outputs, on_progress, deadline):
                yield result
        self.is_over = True

    async def _rest(
        self, outputs: bool, on_progress: OnProgress | None, deadline: Deadline
    ) -> AsyncIterator[ItemResult]:
        """What the events do not have: those of the command line, and of a fleet with more events than are kept."""
        while True:
            fleet = await self.show()
            self._count(total=fleet.counts.total)
            async for item in self.items(state="done"):
                if self._given.get(item.index) != item.attempt:
                    about = {**item.raw, "error": None if item.code is None else {"code": item.code, "message": item.code}}
                    yield await self._give(ItemResult.read(self.id, about, None), outputs, on_progress)
            if fleet.state in _OVER:
                return
            deadline.check()
            await sleep(_POLL_SECONDS)

    async def _give(self, result: ItemResult, outputs: bool, on_progress: OnProgress | None) -> ItemResult:
        is_new = result.index not in self._given
        self._given[result.index] = result.attempt
        done, failed = self.progress.done + is_new, self.progress.failed + (not result.ok)
        self._count(done=done, failed=failed)
        if on_progress is not None:
            await called(on_progress, self.progress)
        about = result.raw
        if outputs:
            whole = (await self.item(result.key)).result
            # One that was retried meanwhile has another result already.
            about = whole.raw if whole is not None else about
        items = self._items
        value = items[result.index] if items is not None and 0 <= result.index < len(items) else None
        return ItemResult.read(self.id, about, value)

    def _count(self, *, total: int | None = None, done: int | None = None, failed: int | None = None) -> None:
        before = self.progress
        self.progress = Progress(
            before.total if total is None else total,
            before.done if done is None else done,
            before.failed if failed is None else failed,
        )

    async def resume(self) -> None:
        """Continues it, if no process runs it any more."""
        await self._again("resume")

    async def retry(self) -> None:
        """Runs its failed items again, in place. `results` then gives their new results."""
        await self._again("retry")

    async def _again(self, how: str) -> None:
        await self._corral.wire.ask("POST", path_of("fleets", self.id, how))
        self.is_over = False

    async def cancel(self) -> str:
        """Cancels the items that wait; those that run end. The outcome is `ended`, `removed` or `cancelled`."""
        answer = await self._corral.wire.ask("POST", path_of("fleets", self.id, "cancel"))
        return str(answer.get("outcome"))

    async def cancel_quietly(self) -> None:
        """For a caller that fails already."""
        try:
            await self._corral.wire.ask("POST", path_of("fleets", self.id, "cancel"), timeout=10)
        except CorralError:
            pass


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None
