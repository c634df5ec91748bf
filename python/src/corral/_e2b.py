"""What both forms of corral.compat.e2b share: values and errors."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from enum import Enum
from typing import IO, Any, Iterator, Mapping, Union

from . import errors
from .results import CommandResult as Ended

Content = Union[str, bytes, IO[Any]]


class SandboxException(errors.CorralError):
    """Something failed."""


class TimeoutException(SandboxException):
    """Something took longer than it was given."""


class InvalidArgumentException(SandboxException):
    """An argument is wrong."""


class NotFoundException(SandboxException):
    """There is no such thing."""


class FileNotFoundException(NotFoundException):
    """There is no such file."""


class SandboxNotFoundException(NotFoundException):
    """There is no such sandbox, or it has ended."""


class AuthenticationException(SandboxException):
    """There is no token, or it may not do this."""


class NotSupported(SandboxException, AttributeError):
    """Corral has another way for this, or none. Nothing was done."""


class FileType(Enum):
    FILE = "file"
    DIR = "dir"


@dataclass
class CommandResult:
    stderr: str
    stdout: str
    exit_code: int
    """Of a command that a signal ended, which `error` names: 128 and its number, or -1."""
    error: str | None


@dataclass(eq=False)
class CommandExitException(SandboxException, CommandResult):
    """A command ended with another exit code than 0."""

    def __str__(self) -> str:
        return errors.shown(f"Command exited with code {self.exit_code} and error:\n{self.stderr}")


@dataclass
class ProcessInfo:
    pid: int
    """A number for it; of no process of this machine."""
    tag: str | None
    cmd: str
    args: list[str]
    envs: dict[str, str]
    cwd: str | None


@dataclass
class WriteInfo:
    name: str
    type: FileType | None
    path: str


@dataclass
class EntryInfo(WriteInfo):
    """`type` is None for what is no file or directory, such as a link. `size`: 0 if it is not known."""

    size: int


def refuse(where: str, given: Mapping[str, object]) -> None:
    """@raises NotSupported for an argument that has a value"""
    for name, value in given.items():
        if value is not None:
            raise NotSupported(f"{name} of {where} is not supported here: {_INSTEAD.get(name, _NONE)}")


_NONE = "leave it out"
_INSTEAD = {
    "user": "commands run as the user of the worker's container",
    "request_timeout": "`timeout` of the client, or of the command, is the limit",
    "allow_internet_access": "`network` in the worker's file says what it may reach",
    "network": "`network` in the worker's file says what it may reach",
    "domain": "`api_url` is the address of the service",
}


def ended(result: Ended) -> CommandResult:
    """@raises CommandExitException, TimeoutException"""
    signal = result.raw.get("signal")
    if result.status in ("timed_out", "output_limit"):
        raise TimeoutException(f"the command was ended: {result.status}")
    if result.exit_code is None and not isinstance(signal, str):
        raise SandboxException(f"it is not known how the command ended: {result.status}")
    code = -1 if result.exit_code is None else result.exit_code
    error = f"signal: {signal}" if isinstance(signal, str) else None if code == 0 else f"exit status {code}"
    about = {"stdout": result.stdout, "stderr": result.stderr, "exit_code": code, "error": error}
    if code != 0:
        raise CommandExitException(**about)
    return CommandResult(**about)


def entry(path: str, type: object, size: object) -> EntryInfo:
    known = {"file": FileType.FILE, "directory": FileType.DIR, "dir": FileType.DIR}
    return EntryInfo(path.rstrip("/").rpartition("/")[2], known.get(str(type)), path, size if isinstance(size, int) else 0)


def pid_of(command: str) -> int:
    return int(command, 16)


def command_of(pid: int) -> str:
    return f"{pid:012x}"


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Errors of this package as those that the calls of E2B raise."""
    try:
        yield
    except SandboxException:
        raise
    except errors.ToolRefused as error:
        raise _of_code(error.code)(f"{error.message} [{error.code}]") from error
    except errors.TimedOut as error:
        raise TimeoutException(str(error)) from error
    except (errors.Unauthorized, errors.Forbidden) as error:
        raise AuthenticationException(str(error)) from error
    except errors.NotFound as error:
        kind = {"NOT_FOUND": FileNotFoundException, "UNKNOWN_SESSION": SandboxNotFoundException}
        raise kind.get(error.code, NotFoundException)(str(error)) from error
    except errors.WrongRequest as error:
        raise InvalidArgumentException(str(error)) from error
    except errors.ServiceError as error:
        raise _of_code(error.code)(str(error)) from error
    except errors.CorralError as error:
        raise SandboxException(str(error)) from error


def _of_code(code: str) -> type[SandboxException]:
    if code == "NOT_FOUND":
        return FileNotFoundException
    return InvalidArgumentException if code == "BAD_INPUT" else SandboxException
