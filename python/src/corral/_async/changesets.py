"""Changes of runs that were not applied yet."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Sequence

from .. import models
from .._archive import MAX_BYTES, unpack
from .._request import json_body, path_of, query_of
from .._transport.aio import in_thread
from ..results import Listed

if TYPE_CHECKING:
    from .client import AsyncCorral


class AsyncChangesets:
    """`corral.changesets`"""

    def __init__(self, corral: AsyncCorral) -> None:
        self._corral = corral

    async def list(
        self, *, worker: str | None = None, limit: int = 1000, project: str | None = None
    ) -> Listed[models.ListedChangeset]:
        """The oldest first. `more` says whether there are others."""
        query = query_of(worker=worker, limit=limit, project=self._corral.project_or(project))
        answer = await self._corral.wire.ask("GET", path_of("changesets") + query)
        return Listed.from_json(answer, "changesets", models.ListedChangeset.from_json)

    async def show(self, id: str) -> models.Changeset:
        """Its changes, its diff, and the digest that a decision names."""
        return models.Changeset.from_json(await self._corral.wire.ask("GET", path_of("changesets", id)))

    async def diff(self, id: str) -> str:
        """A unified diff with the files as they are now."""
        return (await self.show(id)).diff

    async def apply(
        self,
        changeset: models.Changeset,
        *,
        only: Sequence[str] | None = None,
        which: Sequence[int] | None = None,
        host_executed: Sequence[str] | None = None,
    ) -> models.AppliedChangeset:
        """
        Applies it as `show` has shown it: all, `only` these paths, or `which` indexes. A change with `host_executed` waits, unless
        `host_executed` has its path. @raises Conflict if it is another one now
        """
        body: dict[str, Any] = {"digest": changeset.digest}
        if only is not None:
            body["only"] = list(only)
        if which is not None:
            body["which"] = list(which)
        if host_executed is not None:
            body["hostExecuted"] = list(host_executed)
        target = path_of("changesets", changeset.id, "apply")
        answer = await self._corral.wire.ask("POST", target, json_body(body), timeout=None)
        return models.AppliedChangeset.from_json(answer)

    async def discard(self, changeset: models.Changeset) -> None:
        """Discards it as `show` has shown it. What was applied before stays."""
        target = path_of("changesets", changeset.id, "discard")
        await self._corral.wire.ask("POST", target, json_body({"digest": changeset.digest}))

    async def download(self, id: str, directory: str | os.PathLike[str]) -> Sequence[Path]:
        """
        Writes the files that it would write into `directory`, which is made or is empty, and answers with their paths. Links are
        left out; an archive that leads out of the folder is refused whole.
        """
        with tempfile.TemporaryFile() as file:
            await self._corral.wire.save(path_of("changesets", id, "files"), file, MAX_BYTES)
            file.seek(0)
            return await in_thread(unpack, file, directory)
