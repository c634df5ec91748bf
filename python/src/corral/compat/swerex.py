"""
The basic calls of a runtime of SWE-ReX, for agents that were written for it. Requests may be those of this module or of `swerex`: the fields
have the same names. What is not supported raises `NotSupported`, which names it.

    from corral.compat.swerex import BashAction, CorralRuntime, CreateBashSessionRequest

    async with corral.session("desk") as session:
        runtime = CorralRuntime(session)
        await runtime.create_session(CreateBashSessionRequest())
        print((await runtime.run_in_session(BashAction(command="ls"))).output)
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import secrets
import shlex
from dataclasses import dataclass, field
from typing import Any, Self

from .._async.commands import AsyncCommand
from .._async.sessions import AsyncSession
from ..errors import CorralError, NotFound, shown

# Of what a shell printed and no action has taken yet; more is cut at its beginning.
_MAX_CHARS = 16 * 1024**2
_END_SECONDS = 5.0


class SwerexException(CorralError):
    """Something failed."""


class SessionNotInitializedError(SwerexException, RuntimeError):
    """The shell did not start, or has ended."""


class NonZeroExitCodeError(SwerexException, RuntimeError):
    """A command that was checked ended with another exit code than 0."""


class BashIncorrectSyntaxError(SwerexException, RuntimeError):
    """bash cannot read the command. Nothing of it ran."""

    def __init__(self, message: str, *, extra_info: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.extra_info = extra_info or {}


class CommandTimeoutError(SwerexException, RuntimeError, TimeoutError):
    """A command took longer than its timeout. In a shell it continues, until it is interrupted."""


class SessionExistsError(SwerexException, ValueError):
    """There is a shell of that name."""


class SessionDoesNotExistError(SwerexException, ValueError):
    """There is no shell of that name."""


class NotSupported(SwerexException, NotImplementedError):
    """Corral has no such thing. Nothing was done."""


@dataclass
class IsAliveResponse:
    is_alive: bool
    message: str = ""

    def __bool__(self) -> bool:
        return self.is_alive


@dataclass
class CreateBashSessionRequest:
    startup_source: list[str] = field(default_factory=list)
    session: str = "default"
    session_type: str = "bash"
    startup_timeout: float = 30.0


@dataclass
class CreateBashSessionResponse:
    output: str = ""
    session_type: str = "bash"


@dataclass
class BashAction:
    command: str
    session: str = "default"
    timeout: float | None = None
    is_interactive_command: bool = False
    is_interactive_quit: bool = False
    check: str = "raise"
    """`raise`, `silent` or `ignore`"""
    error_msg: str = ""
    expect: list[str] = field(default_factory=list)
    action_type: str = "bash"


@dataclass
class BashInterruptAction:
    session: str = "default"
    timeout: float = 0.2
    n_retry: int = 3
    expect: list[str] = field(default_factory=list)
    action_type: str = "bash_interrupt"


@dataclass
class BashObservation:
    output: str = ""
    exit_code: int | None = None
    failure_reason: str = ""
    expect_string: str = ""
    session_type: str = "bash"


@dataclass
class CloseBashSessionRequest:
    session: str = "default"
    session_type: str = "bash"


@dataclass
class CloseBashSessionResponse:
    session_type: str = "bash"


@dataclass
class Command:
    command: str | list[str]
    timeout: float | None = None
    shell: bool = False
    check: bool = False
    error_msg: str = ""
    env: dict[str, str] | None = None
    cwd: str | None = None


@dataclass
class CommandResponse:
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None


@dataclass
class ReadFileRequest:
    path: str
    encoding: str | None = None
    errors: str | None = None


@dataclass
class ReadFileResponse:
    content: str = ""


@dataclass
class WriteFileRequest:
    content: str
    path: str


@dataclass
class WriteFileResponse:
    pass


@dataclass
class UploadRequest:
    source_path: str
    target_path: str


@dataclass
class UploadResponse:
    pass


@dataclass
class CloseResponse:
    pass


class _Shell:
    """A bash that reads commands from its input. One action at a time: a second waits."""

    def __init__(self, command: AsyncCommand) -> None:
        self._command = command
        self._text = ""
        self._is_over = False
        self._news = asyncio.Condition()
        self._reading = asyncio.ensure_future(self._read())
        self.turn = asyncio.Lock()
        # Of a command that took too long.
        self.awaited: str | None = None

    async def _read(self) -> None:
        try:
            async for _, piece in self._command.output():
                async with self._news:
                    self._text = (self._text + piece.decode("utf-8", "backslashreplace"))[-_MAX_CHARS:]
                    self._news.notify_all()
        finally:
            self._is_over = True
            async with self._news:
                self._news.notify_all()

    async def send(self, line: str) -> None:
        await self._command.write(f"{line}\n")

    async def until(self, mark: str, timeout: float | None) -> tuple[str, int]:
        """What was printed before a mark, and the number after it. @raises TimeoutError"""
        pattern = re.compile(rf"\n{mark} (\d+)\n")
        async with asyncio.timeout(timeout), self._news:
            while (found := pattern.search(self._text)) is None:
                if self._is_over:
                    raise SessionNotInitializedError("the shell has ended: an `exit`, or it was killed")
                await self._news.wait()
            before, self._text = self._text[: found.start()], self._text[found.end() :]
        self.awaited = None if mark == self.awaited else self.awaited
        return before, int(found[1])

    async def signal(self, name: str) -> None:
        await self._command.signal(name)

    async def close(self) -> None:
        with contextlib.suppress(CorralError):
            await self._command.signal("KILL")
        self._reading.cancel()
        await asyncio.wait([self._reading], timeout=_END_SECONDS)


class CorralRuntime:
    """The runtime of one open session. `close` ends that session."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session
        self._shells: dict[str, _Shell] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        try:
            async with asyncio.timeout(timeout):
                await self._session.commands()
            return IsAliveResponse(True)
        except (CorralError, TimeoutError) as error:
            return IsAliveResponse(False, str(error))

    async def create_session(self, request: Any) -> CreateBashSessionResponse:
        if request.session in self._shells:
            raise SessionExistsError(f"there is a session {request.session!r} already")
        if request.session_type != "bash":
            raise NotSupported(f"a session of the type {request.session_type!r} is not supported here: bash is")
        command = await self._session.start(["bash", "--noprofile", "--norc"], input=True)
        shell = self._shells[request.session] = _Shell(command)
        mark = secrets.token_hex(8)
        sources = " ; ".join(f"source {shlex.quote(path)}" for path in request.startup_source)
        # A signal ends what runs, and never the shell itself.
        await shell.send(f"exec 2>&1; trap : INT; {sources or ':'}; printf '\\n%s 0\\n' {mark}")
        try:
            output, _ = await shell.until(mark, request.startup_timeout)
        except (TimeoutError, SwerexException) as error:
            await self._closed(request.session)
            raise SessionNotInitializedError("bash did not start in the container: does its image have one?") from error
        return CreateBashSessionResponse(output=output.strip("\n"))

    async def run_in_session(self, action: Any) -> BashObservation:
        shell = self._shell(action.session)
        async with shell.turn:
            try:
                if action.action_type == "bash_interrupt":
                    return await _interrupted(shell, action)
                return await _ran(shell, action)
            except SessionNotInitializedError:
                await self._closed(action.session)
                raise

    async def close_session(self, request: Any) -> CloseBashSessionResponse:
        self._shell(request.session)
        await self._closed(request.session)
        return CloseBashSessionResponse()

    async def execute(self, command: Any) -> CommandResponse:
        given, env = command.command, getattr(command, "env", None)
        words = [given] if isinstance(given, str) else list(given)
        line = given if command.shell and isinstance(given, str) else " ".join(shlex.quote(word) for word in words)
        if not line.strip():
            return CommandResponse(exit_code=0)
        done = await self._session.follow(line, cwd=getattr(command, "cwd", None), env=env, timeout=command.timeout)
        if done.status == "timed_out":
            raise CommandTimeoutError(shown(f"{line!r} took longer than {command.timeout} s"))
        if getattr(command, "check", False) and done.exit_code != 0:
            raise NonZeroExitCodeError(_failure(line, done.exit_code, done.stdout + done.stderr, command.error_msg))
        return CommandResponse(done.stdout, done.stderr, done.exit_code)

    async def read_file(self, request: Any) -> ReadFileResponse:
        file = io.BytesIO()
        try:
            await self._session.download(request.path, file)
        except NotFound as error:
            if error.code != "NOT_FOUND":
                raise
            raise FileNotFoundError(str(error)) from error
        return ReadFileResponse(file.getvalue().decode(request.encoding or "utf-8", request.errors or "strict"))

    async def write_file(self, request: Any) -> WriteFileResponse:
        await self._session.upload(request.path, request.content.encode())
        return WriteFileResponse()

    async def upload(self, request: Any) -> UploadResponse:
        """A file or a folder of this machine."""
        await self._session.upload(request.target_path, str(request.source_path))
        return UploadResponse()

    async def close(self) -> CloseResponse:
        for name in list(self._shells):
            await self._closed(name)
        await self._session.finish(ask=False)
        return CloseResponse()

    def _shell(self, name: str) -> _Shell:
        found = self._shells.get(name)
        if found is None:
            raise SessionDoesNotExistError(f"there is no session {name!r}: `create_session` makes one")
        return found

    async def _closed(self, name: str) -> None:
        shell = self._shells.pop(name, None)
        if shell is not None:
            await shell.close()


async def _ran(shell: _Shell, action: Any) -> BashObservation:
    for name in ("is_interactive_command", "is_interactive_quit", "expect"):
        if getattr(action, name):
            raise NotSupported(f"{name} is not supported here: a command has no input, and ends before the next begins")
    if shell.awaited is not None:
        raise CommandTimeoutError("the command before still runs: interrupt it first")
    mark, line = secrets.token_hex(8), shlex.quote(action.command)
    # `eval` keeps variables and the directory; the command cannot read the lines that come after it.
    await shell.send(
        f"if bash -n -c {line} </dev/null; then eval {line} </dev/null; printf '\\n%s %d\\n' {mark} $?; "
        f"else printf '\\n%s 999\\n' {mark}; fi"
    )
    shell.awaited = mark
    try:
        output, code = await shell.until(mark, action.timeout)
    except TimeoutError:
        raise CommandTimeoutError(shown(f"{action.command!r} took longer than {action.timeout} s")) from None
    output = output.strip("\n")
    if code == 999:
        told = {"bash_stdout": "", "bash_stderr": output}
        raise BashIncorrectSyntaxError(shown(f"bash cannot read {action.command!r}:\n{output}"), extra_info=told)
    if action.check == "raise" and code != 0:
        raise NonZeroExitCodeError(_failure(action.command, code, output, action.error_msg))
    return BashObservation(output=output, exit_code=None if action.check == "ignore" else code)


async def _interrupted(shell: _Shell, action: Any) -> BashObservation:
    if action.expect:
        raise NotSupported("expect is not supported here")
    if shell.awaited is None:
        return BashObservation(exit_code=0)
    mark = shell.awaited
    for _ in range(max(1, action.n_retry)):
        await shell.signal("INT")
        with contextlib.suppress(TimeoutError):
            output, _ = await shell.until(mark, max(1.0, action.timeout))
            return BashObservation(output=output.strip("\n"), exit_code=0)
    raise CommandTimeoutError("the command does not end by an interrupt: `close_session` ends it")


def _failure(command: str, code: int | None, output: str, error_msg: str) -> str:
    before = f"{error_msg}: " if error_msg else ""
    return shown(f"{before}Command {command!r} failed with exit code {code}. Here is the output:\n{output!r}")


__all__ = [
    "BashAction",
    "BashIncorrectSyntaxError",
    "BashInterruptAction",
    "BashObservation",
    "CloseBashSessionRequest",
    "Command",
    "CommandResponse",
    "CommandTimeoutError",
    "CorralRuntime",
    "CreateBashSessionRequest",
    "NonZeroExitCodeError",
    "NotSupported",
    "ReadFileRequest",
    "SessionDoesNotExistError",
    "SessionExistsError",
    "SessionNotInitializedError",
    "SwerexException",
    "UploadRequest",
    "WriteFileRequest",
]
