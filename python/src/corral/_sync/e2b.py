# Made by generate.py from the same file of corral/_async; not to be changed by hand.
"""The basic calls of E2B's SDK, over a session."""

from __future__ import annotations

import io
import os
import shlex
import time
from typing import Any, Iterator, Mapping, Self

from .. import _e2b as e
from .._transport.blocking import Background, Flag
from ..errors import NotFound, ToolRefused
from ..results import CommandResult
from .client import Corral
from .commands import Command, OnText, TextOfStreams
from .sessions import Session

_COMMAND_SECONDS = 60.0
# What the file tools do not have: the rest of the container, such as /tmp.
_ELSEWHERE = ("PATH_NOT_IN_SANDBOX", "TOOL_NOT_OFFERED")
_LIST = """[ -d "$1" ] || exit 4
find "$1" -mindepth 1 -maxdepth "$2" -exec sh -c '
for f; do
  t=other; s=0
  if [ -L "$f" ]; then t=link; elif [ -d "$f" ]; then t=dir; elif [ -f "$f" ]; then t=file; s=$(wc -c < "$f"); fi
  printf "%s %s %s\\000" "$t" $s "$f"
done' sh {} +"""


class CommandHandle:
    """A command in the background."""

    def __init__(self, command: Command, on_stdout: OnText | None = None, on_stderr: OnText | None = None) -> None:
        self._command = command
        self._functions = (on_stdout, on_stderr)

    @property
    def pid(self) -> int:
        return e.pid_of(self._command.id)

    def wait(
        self, on_pty: None = None, on_stdout: OnText | None = None, on_stderr: OnText | None = None
    ) -> e.CommandResult:
        """How it ended. @raises CommandExitException if not with 0. Of a long output, the last MiB is kept."""
        e.refuse("wait", {"on_pty": on_pty})
        with e.translated():
            texts = TextOfStreams(on_stdout or self._functions[0], on_stderr or self._functions[1])
            for stream, piece in self._command.output():
                texts.take(stream, piece)
            texts.end()
            about = self._command.wait()
            return e.ended(CommandResult.read("", {**about.raw, **texts.all}))

    def kill(self) -> bool:
        """False if it had ended."""
        with e.translated():
            try:
                self._command.signal("KILL")
            except Exception as error:
                if getattr(error, "code", "") in ("COMMAND_OVER", "UNKNOWN_COMMAND"):
                    return False
                raise
            return True

    def send_stdin(self, data: str | bytes, request_timeout: None = None) -> None:
        e.refuse("send_stdin", {"request_timeout": request_timeout})
        with e.translated():
            self._command.write(data)

    def close_stdin(self, request_timeout: None = None) -> None:
        e.refuse("close_stdin", {"request_timeout": request_timeout})
        with e.translated():
            self._command.write(b"", end=True)

    def disconnect(self) -> None:
        """The command continues."""


class Commands:
    def __init__(self, session: Session, envs: Mapping[str, str]) -> None:
        self._session = session
        self._envs = dict(envs)

    def run(
        self,
        cmd: str,
        background: bool | None = None,
        envs: Mapping[str, str] | None = None,
        user: None = None,
        cwd: str | None = None,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        stdin: bool | None = None,
        timeout: float | None = _COMMAND_SECONDS,
        request_timeout: None = None,
    ) -> Any:
        """
        A `CommandResult`; with `background`, a handle. `sh` runs the line, if the worker's rules allow it. `timeout`: seconds; 0 or None: as
        long as the worker may.
        """
        e.refuse("commands.run", {"user": user, "request_timeout": request_timeout})
        how: dict[str, Any] = {"cwd": cwd, "env": {**self._envs, **(envs or {})}, "timeout": timeout or None}
        with e.translated():
            if background:
                command = self._session.start(cmd, input=stdin is True, **how)
                return CommandHandle(command, on_stdout, on_stderr)
            e.refuse("commands.run without background", {"stdin": stdin or None})
            return e.ended(self._session.follow(cmd, on_stdout=on_stdout, on_stderr=on_stderr, **how))

    def list(self, request_timeout: None = None) -> list[e.ProcessInfo]:
        e.refuse("commands.list", {"request_timeout": request_timeout})
        with e.translated():
            running = [one for one in self._session.commands() if one.about.status == "running"]
            return [e.ProcessInfo(e.pid_of(one.id), None, "sh", ["-c", one.about.command], {}, None) for one in running]

    def connect(self, pid: int, timeout: float | None = None, request_timeout: None = None) -> CommandHandle:
        e.refuse("commands.connect", {"timeout": timeout or None, "request_timeout": request_timeout})
        with e.translated():
            for one in self._session.commands():
                if one.id == e.command_of(pid):
                    return CommandHandle(one)
            raise e.NotFoundException(f"there is no command {pid}")

    def kill(self, pid: int, request_timeout: None = None) -> bool:
        try:
            return (self.connect(pid, request_timeout=request_timeout)).kill()
        except e.NotFoundException:
            return False

    def send_stdin(self, pid: int, data: str | bytes, request_timeout: None = None) -> None:
        (self.connect(pid)).send_stdin(data, request_timeout)


class Filesystem:
    """The directories of the worker, and what else its container has, such as /tmp."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def read(self, path: str, format: str = "text", user: None = None, request_timeout: None = None) -> Any:
        """`format`: `text`, or `bytes` for a bytearray."""
        e.refuse("files.read", {"user": user, "request_timeout": request_timeout})
        if format not in ("text", "bytes"):
            raise e.NotSupported(f"the format {format!r} is not supported here: text and bytes are")
        file = io.BytesIO()
        with e.translated():
            self._session.download(path, file)
        return bytearray(file.getbuffer()) if format == "bytes" else file.getvalue().decode("utf-8", "replace")

    def write(self, path: str, data: e.Content, user: None = None, request_timeout: None = None) -> e.WriteInfo:
        e.refuse("files.write", {"user": user, "request_timeout": request_timeout})
        content = data if isinstance(data, (str, bytes)) else data.read()
        with e.translated():
            self._session.upload(path, content.encode() if isinstance(content, str) else bytes(content))
        return e.WriteInfo(path.rpartition("/")[2], e.FileType.FILE, path)

    def write_files(self, files: list[dict[str, Any]], user: None = None, request_timeout: None = None) -> list[e.WriteInfo]:
        return [self.write(one["path"], one["data"], user, request_timeout) for one in files]

    def list(
        self, path: str, depth: int | None = 1, user: None = None, request_timeout: None = None
    ) -> list[e.EntryInfo]:
        e.refuse("files.list", {"user": user, "request_timeout": request_timeout})
        levels = 1 if depth is None else depth
        if levels < 1:
            raise e.InvalidArgumentException("depth should be at least 1")
        with e.translated():
            try:
                found: list[dict[str, Any]] = []
                for level in range(levels):
                    found += self._session.list_files(path, pattern="/".join(["*"] * (level + 1)), limit=10_000)
                return [e.entry(one["path"], one.get("type"), one.get("size")) for one in found]
            except ToolRefused as error:
                if error.code not in _ELSEWHERE:
                    raise
            return self._listed(path, levels)

    def _listed(self, path: str, levels: int) -> list[e.EntryInfo]:
        done = self._session.follow(["sh", "-c", _LIST, "sh", path, str(levels)])
        if done.exit_code == 4:
            raise e.FileNotFoundException(f"{path}: no such directory")
        if not done.ok:
            raise e.SandboxException(f"{path}: {done.stderr.strip()}")
        rows = [row.split(" ", 2) for row in done.stdout.split("\0") if row]
        return [e.entry(name, type, int(size)) for type, size, name in rows]

    def exists(self, path: str, user: None = None, request_timeout: None = None) -> bool:
        e.refuse("files.exists", {"user": user, "request_timeout": request_timeout})
        with e.translated():
            try:
                self._session.file_info(path)
                return True
            except ToolRefused as error:
                if error.code == "NOT_FOUND":
                    return False
                if error.code not in _ELSEWHERE:
                    raise
            return (self._session.follow(["test", "-e", path])).exit_code == 0

    def get_info(self, path: str, user: None = None, request_timeout: None = None) -> e.EntryInfo:
        name = path.rstrip("/")
        found = self.list(name.rpartition("/")[0] or "/", 1, user, request_timeout)
        for one in found:
            if one.path == name:
                return one
        raise e.FileNotFoundException(f"{path}: no such file or directory")

    def remove(self, path: str, user: None = None, request_timeout: None = None) -> None:
        e.refuse("files.remove", {"user": user, "request_timeout": request_timeout})
        self._change(path, "delete_file", {"path": path, "recursive": True}, ["rm", "-r", "--", path])

    def rename(self, old_path: str, new_path: str, user: None = None, request_timeout: None = None) -> e.EntryInfo:
        e.refuse("files.rename", {"user": user, "request_timeout": request_timeout})
        given = {"from": old_path, "to": new_path}
        self._change(old_path, "move_file", given, ["mv", "--", old_path, new_path])
        return self.get_info(new_path)

    def make_dir(self, path: str, user: None = None, request_timeout: None = None) -> bool:
        """False if it exists already."""
        e.refuse("files.make_dir", {"user": user, "request_timeout": request_timeout})
        if self.exists(path):
            return False
        with e.translated():
            (self._session.follow(["mkdir", "-p", "--", path])).check()
        return True

    def _change(self, path: str, tool: str, given: dict[str, Any], command: list[str]) -> None:
        with e.translated():
            try:
                self._session.tool(tool, **given)
                return
            except ToolRefused as error:
                if error.code not in _ELSEWHERE:
                    raise
            done = self._session.follow(command)
            if not done.ok:
                missing = not self.exists(path)
                raise (e.FileNotFoundException if missing else e.SandboxException)(f"{path}: {done.stderr.strip()}")


class Sandbox:
    """A session of a worker, with the names of E2B. `template` is the worker."""

    def __init__(self, corral: Corral, session: Session, envs: Mapping[str, str]) -> None:
        self._corral = corral
        self._session = session
        self._over = Flag()
        self._timer: Background | None = None
        self.commands = Commands(session, envs)
        self.files = Filesystem(session)

    def __getattr__(self, name: str) -> Any:
        raise e.NotSupported(f"{name} of E2B's Sandbox is not supported here: docs/python.md has what is")

    @classmethod
    def create(
        cls,
        template: str | None = None,
        timeout: float | None = None,
        metadata: None = None,
        envs: Mapping[str, str] | None = None,
        *,
        api_key: str | None = None,
        api_url: str | None = None,
        **more: Any,
    ) -> Self:
        """
        `template`: the name of a worker; else CORRAL_WORKER has it. `timeout`: this process ends the sandbox after so many seconds; the
        service does after 30 minutes without a call. `api_url` and `api_key`: the service and a token; else CORRAL_URL and CORRAL_TOKEN.
        """
        e.refuse("Sandbox.create", {"metadata": metadata, **more})
        worker = template or os.environ.get("CORRAL_WORKER")
        if not worker:
            raise e.InvalidArgumentException("template must be the name of a worker; CORRAL_WORKER is not set either")
        with e.translated():
            corral = Corral(api_url, token=api_key)
            made = cls(corral, corral.session(worker).open(), envs or {})
        if timeout is not None:
            made._timer = Background(made._ending(timeout), "corral-sandbox-timeout")
        return made

    @classmethod
    def connect(
        cls, sandbox_id: str, timeout: None = None, *, api_key: str | None = None, api_url: str | None = None, **more: Any
    ) -> Self:
        e.refuse("Sandbox.connect", {"timeout": timeout, **more})
        with e.translated():
            corral = Corral(api_url, token=api_key)
            return cls(corral, corral.attach_session(sandbox_id), {})

    @property
    def sandbox_id(self) -> str:
        return self._session.id

    def is_running(self, request_timeout: None = None) -> bool:
        e.refuse("is_running", {"request_timeout": request_timeout})
        with e.translated():
            return self.sandbox_id in [one.id for one in self._corral.sessions()]

    def kill(self, request_timeout: None = None) -> bool:
        """Ends it, and applies the changes for which there is consent; the others wait. False if it had ended."""
        e.refuse("kill", {"request_timeout": request_timeout})
        self._over.set()
        if self._session.settled is not None:
            return False
        with e.translated():
            try:
                self._session.finish(ask=False)
            except NotFound:
                return False
            return True

    def close(self) -> None:
        self.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _ending(self, seconds: float) -> Any:
        def end() -> None:
            until = time.monotonic() + seconds
            while not self._over.is_set() and (left := until - time.monotonic()) > 0:
                self._over.wait(min(left, 1000.0))
            if not self._over.is_set():
                self.kill()

        return end


__all__ = ["CommandHandle", "Commands", "Filesystem", "Sandbox"]
