# Made by generate.py from the same file of corral/_async; not to be changed by hand.
"""The sandbox of a worker, used by its tools."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
from typing import TYPE_CHECKING, Any, BinaryIO, Mapping, Sequence

from .. import models
from .._archive import folder_archive, most_for
from .._request import bytes_body, json_body, path_of, query_of
from .._decode import as_text
from .._transport.blocking import in_thread
from ..errors import CorralError, ToolRefused
from ..results import CommandResult
from .approvals import Answering, OnQuestion
from .commands import Command, OnText, followed

if TYPE_CHECKING:
    from .client import Corral

# A tool may wait for a person, and a command may take long: the service has its own limits.
_TOOL_SECONDS = 24 * 3600.0
_MAX_CHARS = 2_000_000


class Session:
    """
    An open session; `with` opens and ends it. A tool that refuses raises `ToolRefused`. Paths are those of the sandbox,
    such as `/out/report.txt`.
    """

    def __init__(
        self,
        corral: Corral,
        order: Mapping[str, Any],
        on_question: OnQuestion | None,
    ) -> None:
        self._corral = corral
        self._order = order
        self._on_question = on_question
        self._answering: Answering | None = None
        self._about: models.Session | None = None
        self.settled: models.SettledSession | None = None
        """The outcomes of its changes, after its end."""

    def __repr__(self) -> str:
        return f"Session({self._order.get('worker') or self.about.worker!r})"

    @property
    def id(self) -> str:
        return self.about.id

    @property
    def about(self) -> models.Session:
        if self._about is None:
            raise CorralError("the session is not open: use it in a `with` block, or call `open`")
        return self._about

    def open(self) -> Session:
        answer = self._corral.wire.ask("POST", path_of("sessions"), json_body(self._order), timeout=_TOOL_SECONDS)
        return self.attached(models.Session.from_json(answer))

    def attached(self, about: models.Session) -> Session:
        """Is this session of the service from now on."""
        self._about = about
        if self._on_question is not None:
            self._answering = Answering(self._corral, self._on_question, root=self.id)
            self._answering.__enter__()
        return self

    def finish(self, *, discard: bool = False, ask: bool = True) -> models.SettledSession:
        """
        Ends it, and applies the changes for which there is consent. The others wait as a changeset, or are asked about; with
        `ask=False` all of them wait. `discard`: nothing of what it wrote in staged directories is applied or kept.
        """
        if self.settled is not None:
            return self.settled
        try:
            how = query_of(discard="true" if discard else None, ask=None if ask else "false")
            answer = self._corral.wire.ask("DELETE", path_of("sessions", self.id) + how, timeout=_TOOL_SECONDS)
            self.settled = models.SettledSession.from_json(answer)
        finally:
            if self._answering is not None:
                answering, self._answering = self._answering, None
                answering.__exit__(None)
        return self.settled

    def __enter__(self) -> Session:
        return self if self._about is not None else self.open()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.finish()
        except Exception:
            # The error of the block says more.
            if kind is None:
                raise

    def tools(self) -> list[models.SessionTool]:
        """Its tools, with the schemas of their inputs, to give them to a model."""
        answer = self._corral.wire.ask("GET", path_of("sessions", self.id, "tools"))
        return [models.SessionTool.from_json(one) for one in answer.get("tools", [])]

    def answer(self, name: str, given: Mapping[str, Any]) -> models.ToolAnswer | models.ToolRefusal:
        """Uses a tool. A refusal is a value here: its message may be shown to a model."""
        target = path_of("sessions", self.id, "tools", name)
        answer = self._corral.wire.ask("POST", target, json_body(dict(given)), timeout=_TOOL_SECONDS)
        if answer.get("ok") is True:
            return models.ToolAnswer.from_json(answer)
        return models.ToolRefusal.from_json(answer)

    def tool(self, name: str, /, **given: Any) -> models.ToolAnswer:
        """Uses a tool; what is None is not sent. @raises ToolRefused"""
        answer = self.answer(name, {key: value for key, value in given.items() if value is not None})
        if isinstance(answer, models.ToolRefusal):
            raise ToolRefused(name, answer.code, answer.message, answer.data)
        return answer

    def exec(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
        network: Sequence[str] | None = None,
        timeout: float | None = None,
        check: bool = False,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
    ) -> CommandResult:
        """
        Runs a command line with `sh`. `timeout`: seconds. With `on_stdout` or `on_stderr`, these get what it prints as it comes, its
        output is not shortened, and it ends if one of them fails.
        """
        if on_stdout is not None or on_stderr is not None:
            if stdin is not None or network is not None:
                raise ValueError("a command whose output is followed has no `stdin` or `network`; `start` has an input")
            result = self.follow(command, cwd=cwd, env=env, timeout=timeout, on_stdout=on_stdout, on_stderr=on_stderr)
            return result.check() if check else result
        answer = self.tool(
            "exec",
            command=command,
            cwd=cwd,
            env=None if env is None else dict(env),
            stdin=stdin,
            network=None if network is None else list(network),
            timeout_ms=None if timeout is None else max(1, round(timeout * 1000)),
        )
        result = CommandResult.read(answer.text, answer.data)
        return result.check() if check else result

    def start(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        input: bool = False,
        timeout: float | None = None,
    ) -> Command:
        """Starts a command line, or a program with its arguments, in the background. `input`: for `write`. `timeout`: seconds."""
        given = _order(command, cwd, env, timeout) | ({"input": True} if input else {})
        answer = self._corral.wire.ask("POST", path_of("sessions", self.id, "commands"), json_body(given), timeout=_TOOL_SECONDS)
        return Command(self._corral, self.id, models.SessionCommand.from_json(answer))

    def follow(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
    ) -> CommandResult:
        """Runs a command line, or a program with its arguments, to its end; all of its output is in the result, up to the worker's limit."""
        body = json_body(_order(command, cwd, env, timeout))
        headers = {"Accept": "text/event-stream"}
        response = self._corral.wire.open("POST", path_of("sessions", self.id, "exec"), body, headers, _TOOL_SECONDS)
        try:
            return followed(response, on_stdout, on_stderr)
        finally:
            response.close()

    def commands(self) -> list[Command]:
        """Those that were started: they run, or ended not long ago."""
        answer = self._corral.wire.ask("GET", path_of("sessions", self.id, "commands"))
        found = [models.SessionCommand.from_json(one) for one in answer.get("commands", [])]
        return [Command(self._corral, self.id, one) for one in found]

    def upload(self, path: str, content: bytes | str | os.PathLike[str], *, folder: bool = False) -> models.Uploaded:
        """
        Writes a file of any size: bytes, or the file or the folder at a path of this machine (a text is a path). `folder`: the content
        is a tar archive, and `path` the folder that gets its entries.
        """
        if not isinstance(content, bytes) and os.path.isdir(content):
            archive = in_thread(folder_archive, content)
            try:
                return self.upload(path, archive, folder=True)
            finally:
                os.unlink(archive)
        query = query_of(path=path, kind="folder" if folder else None)
        answer = self._corral.wire.ask(
            "POST", path_of("sessions", self.id, "files") + query, bytes_body(content), timeout=_TOOL_SECONDS
        )
        return models.Uploaded.from_json(answer)

    def download(self, path: str, to: BinaryIO | str | os.PathLike[str], *, max_bytes: int | None = None) -> None:
        """
        Writes a file to an open one as it comes, or to a path of this machine, in place of what is there, when it is complete; of a folder, a
        tar archive. `max_bytes`: what has more raises `ProtocolError`. Absent: half of what is free where `to` is; 1 GiB if it is in memory.
        """
        if isinstance(to, str | os.PathLike):
            part = f"{os.fspath(to)}.{secrets.token_hex(4)}.part"
            try:
                with open(part, "xb") as file:
                    self.download(path, file, max_bytes=max_bytes)
                os.replace(part, to)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(part)
            return
        most = most_for(to) if max_bytes is None else max_bytes
        self._corral.wire.save(path_of("sessions", self.id, "files") + query_of(path=path), to, most)

    def ports(self) -> list[models.SessionPort]:
        """The ports that its worker declares, and others that something in it listens on."""
        answer = self._corral.wire.ask("GET", path_of("sessions", self.id, "ports"))
        return [models.SessionPort.from_json(one) for one in answer.get("ports", [])]

    def show_port(self, port: int) -> models.ShownPort:
        """
        Shows a port at an address of its own of the service's machine: `url` for a browser, once, and `address` for programs that
        send `header`.
        """
        answer = self._corral.wire.ask("POST", path_of("sessions", self.id, "ports", str(port)))
        return models.ShownPort.from_json(answer)

    def url(self, port: int) -> str:
        """A link to a port, for a browser on the service's machine. It works once."""
        return (self.show_port(port)).url

    def snapshot(self, name: str | None = None) -> models.Snapshot:
        """Keeps what was written in staged directories. What runs in it ends. With a name, it stays when the session has ended."""
        given = {} if name is None else {"name": name}
        answer = self._corral.wire.ask("POST", path_of("sessions", self.id, "snapshots"), json_body(given), timeout=_TOOL_SECONDS)
        return models.Snapshot.from_json(answer)

    def snapshots(self) -> list[models.Snapshot]:
        """Those of its worker, the oldest first."""
        answer = self._corral.wire.ask("GET", path_of("sessions", self.id, "snapshots"))
        return [models.Snapshot.from_json(one) for one in answer.get("snapshots", [])]

    def fork(self, snapshot: str | None = None) -> Session:
        """
        Another session that begins with what this one has now, or with what a snapshot has. `with` ends it. It has at most what
        this one has. What runs in this one ends if no snapshot is named.
        """
        origin = snapshot if snapshot is not None else (self.snapshot()).id
        order = {"worker": self.about.worker, "project": self.about.project, "from": origin}
        return Session(self._corral, order, self._on_question).open()

    def restore(self, snapshot: str) -> models.Snapshot:
        """Shows what a snapshot has, in place of all that was written since. What runs in it ends."""
        target = path_of("sessions", self.id, "snapshots", snapshot, "restore")
        return models.Snapshot.from_json(self._corral.wire.ask("POST", target, timeout=_TOOL_SECONDS))

    def differences(self, snapshot: str) -> list[models.SnapshotDifference]:
        """What it has that a snapshot has not, and the other way round: the first 1,000."""
        target = path_of("sessions", self.id, "snapshots", snapshot, "diff")
        answer = self._corral.wire.ask("GET", target, timeout=_TOOL_SECONDS)
        return [models.SnapshotDifference.from_json(one) for one in answer.get("differences", [])]

    def remove_snapshot(self, snapshot: str) -> models.Snapshot:
        """What began from it stays."""
        target = path_of("sessions", self.id, "snapshots", snapshot)
        return models.Snapshot.from_json(self._corral.wire.ask("DELETE", target))

    def pause(self) -> None:
        """Stops everything that runs in it, until `resume`."""
        self._corral.wire.ask("POST", path_of("sessions", self.id, "pause"))

    def resume(self) -> None:
        self._corral.wire.ask("POST", path_of("sessions", self.id, "resume"))

    def read_file(self, path: str, *, offset: int | None = None, limit: int | None = None) -> str:
        """The text of a file, or of so many lines from the line `offset`. A long one is read in parts."""
        parts: list[str] = []
        line, column, left = offset or 1, 1, limit
        while True:
            given: dict[str, Any] = {"path": path, "offset": line, "column": column, "max_chars": _MAX_CHARS}
            data = (self.tool("read_file", **given, limit=left)).data
            content = as_text(data.get("content"), "read_file.content")
            parts.append(content)
            if data.get("truncatedBy") != "chars" or not content:
                return "".join(parts)
            newlines = content.count("\n")
            line += newlines
            left = None if left is None else max(1, left - newlines)
            # Of a line that was cut; the service counts in units of UTF-16.
            last = content.rpartition("\n")[2]
            column = (column if newlines == 0 else 1) + len(last.encode("utf-16-le")) // 2

    def write_file(self, path: str, content: str, *, overwrite: bool | None = None) -> models.ToolAnswer:
        return self.tool("write_file", path=path, content=content, overwrite=overwrite)

    def append_file(self, path: str, content: str) -> models.ToolAnswer:
        return self.tool("append_file", path=path, content=content)

    def edit_file(self, path: str, old: str, new: str, *, all: bool | None = None) -> models.ToolAnswer:
        """Replaces exact text, which must be there once, or with `all` everywhere."""
        edit: dict[str, Any] = {"old": old, "new": new}
        return self.tool("edit_file", path=path, edits=[edit if all is None else {**edit, "all": all}])

    def delete_file(self, path: str, *, recursive: bool | None = None) -> models.ToolAnswer:
        return self.tool("delete_file", path=path, recursive=recursive)

    def move_file(self, source: str, to: str, *, overwrite: bool | None = None) -> models.ToolAnswer:
        return self.tool("move_file", **{"from": source}, to=to, overwrite=overwrite)

    def copy_file(self, source: str, to: str, *, overwrite: bool | None = None) -> models.ToolAnswer:
        return self.tool("copy_file", **{"from": source}, to=to, overwrite=overwrite)

    def file_info(self, path: str) -> dict[str, Any]:
        return (self.tool("file_info", path=path)).data

    def list_files(
        self, path: str | None = None, *, pattern: str | None = None, limit: int | None = None
    ) -> list[dict[str, Any]]:
        """Entries, each with `path`, `type` and `size`. `pattern` searches below `path`, such as `**/*.md`."""
        answer = self.tool("list_files", path=path, pattern=pattern, limit=limit)
        return [one for one in answer.data.get("entries", []) if isinstance(one, dict)]

    def commit_changes(self) -> models.ToolAnswer:
        """Applies the staged changes now, if they are approved."""
        return self.tool("commit_changes")

    def call_worker(self, worker: str, input: Any = None, **more: Any) -> models.ToolAnswer:
        return self.tool("call_worker", worker=worker, input=input, **more)


def _order(command: str | Sequence[str], cwd: str | None, env: Mapping[str, str] | None, timeout: float | None) -> dict[str, Any]:
    line = command if isinstance(command, str) else " ".join(shlex.quote(word) for word in command)
    milliseconds = None if timeout is None else max(1, round(timeout * 1000))
    order = {"command": line, "cwd": cwd, "env": None if env is None else dict(env), "timeoutMs": milliseconds}
    return {key: value for key, value in order.items() if value is not None}
