# Made by generate.py from the same file of corral/_async; not to be changed by hand.
"""Files that become texts, PDF, pictures, parts or facts."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Sequence

from .. import models
from .._archive import MAX_BYTES, unpack
from .._request import Attachments, form_body, path_of, query_of
from .._transport.blocking import in_thread
from .wire import Deadline

if TYPE_CHECKING:
    from .client import Corral

Target = Literal["text", "pdf", "safe-pdf", "png", "parts", "facts"]

# The service lets one question wait for a minute.
_WAIT_SECONDS = 50


class Conversions:
    """`corral.conversions`"""

    def __init__(self, corral: Corral) -> None:
        self._corral = corral

    def start(
        self,
        files: Attachments,
        to: Target,
        *,
        ocr: str | None = None,
        dpi: int | None = None,
        passwords: Sequence[str] = (),
        timeout: float | None = None,
        memory_bytes: int | None = None,
        disk_bytes: int | None = None,
    ) -> str:
        """
        Sends files, as `attachments` of a run, and answers with the id of their conversion. `timeout`: seconds for each file;
        absent, as the other limits: what its size allows.
        """
        order: models.ConversionOrder = {"to": to}
        if ocr is not None:
            order["ocr"] = ocr
        if dpi is not None:
            order["dpi"] = dpi
        if passwords:
            order["passwords"] = list(passwords)
        if timeout is not None:
            order["timeoutMs"] = max(1000, round(timeout * 1000))
        if memory_bytes is not None:
            order["memoryBytes"] = memory_bytes
        if disk_bytes is not None:
            order["diskBytes"] = disk_bytes
        answer = self._corral.wire.ask("POST", path_of("conversions"), form_body(order, files), timeout=None)
        return models.StartedConversion.from_json(answer).conversion

    def list(self) -> list[models.Conversion]:
        """The newest first."""
        answer = self._corral.wire.ask("GET", path_of("conversions"))
        return [models.Conversion.from_json(one) for one in answer.get("conversions", [])]

    def show(self, id: str) -> models.ShownConversion:
        """What became of each file until now."""
        return self._shown(id, 0)

    def wait(self, id: str, *, timeout: float | None = None) -> models.ShownConversion:
        """The same when it has ended. @raises TimedOut"""
        deadline = Deadline(timeout, f"conversion {id}")
        while True:
            shown = self._shown(id, int(deadline.within(_WAIT_SECONDS)))
            if shown.state != "running":
                return shown
            deadline.check()

    def download(self, id: str, directory: str | os.PathLike[str]) -> Sequence[Path]:
        """
        Writes the results into `directory`, which is made or is empty, and answers with their paths: a folder for each file,
        `report.html` and `results.jsonl`. An archive that leads out of the folder is refused whole.
        """
        with tempfile.TemporaryFile() as file:
            self._corral.wire.save(path_of("conversions", id, "files"), file, MAX_BYTES)
            file.seek(0)
            return in_thread(unpack, file, directory)

    def remove(self, id: str) -> None:
        """Stops it, and removes its files and results from the service."""
        self._corral.wire.ask("DELETE", path_of("conversions", id), timeout=None)

    def _shown(self, id: str, seconds: int) -> models.ShownConversion:
        wire = self._corral.wire
        target = path_of("conversions", id) + query_of(wait=seconds)
        return models.ShownConversion.from_json(wire.ask("GET", target, timeout=wire.timeout + seconds))
