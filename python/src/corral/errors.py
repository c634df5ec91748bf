"""Errors. All are `CorralError`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Sequence

from ._visible import printable

if TYPE_CHECKING:
    from .results import CommandResult, Result

_MAX_SHOWN = 4000


def shown(text: str) -> str:
    """The text with codes for what a terminal would obey, or a person could not see: it may come from a worker."""
    return printable(text[:_MAX_SHOWN])


class CorralError(Exception):
    """Something failed. `str()` of it may be printed."""


class Unreachable(CorralError):
    """The service did not answer, or the connection broke. It is not known if it received the request."""


class TimedOut(CorralError, TimeoutError):
    """Something took longer than it was given."""


class ProtocolError(CorralError):
    """The answer is not one of a Corral service."""


class UnsafeArchive(CorralError):
    """Files of an archive would be written elsewhere than they may be, or there are too many. Nothing of it is kept."""


class ServiceError(CorralError):
    """The service answered with an error. `code` is one of docs/troubleshooting.md."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        problems: Sequence[Mapping[str, Any]] = (),
        violations: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(code, message)
        self.status = status
        self.code = code
        self.message = message
        self.problems = list(problems)
        """Mistakes in files of the project, each with `message` and, if known, its place."""
        self.violations = list(violations)
        """What a sandbox would have to have more than it may, each with `code` and `message`."""

    def __str__(self) -> str:
        return shown(f"{self.message} [{self.code}]")


class WrongRequest(ServiceError):
    """400, 405, 415: the request is wrong."""


class Unauthorized(ServiceError):
    """401: there is no token, or it is unknown."""


class Forbidden(ServiceError):
    """403: the token does not have the role, or the service does not have that name."""


class NotFound(ServiceError):
    """404: there is no such thing."""


class Conflict(ServiceError):
    """409: it is not in the state for this. Another client may have been faster."""


class TooLarge(ServiceError):
    """413: the request is too large."""


class Unavailable(ServiceError):
    """503: the Engine or a place is missing, or the service is being stopped. Later it may work."""


class Refused(ServiceError):
    """422, or a run with the status `refused`: nothing has run. `result` is that of such a run."""

    result: Result | None = None


_BY_STATUS: dict[int, type[ServiceError]] = {
    400: WrongRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: WrongRequest,
    409: Conflict,
    413: TooLarge,
    415: WrongRequest,
    422: Refused,
    503: Unavailable,
}


def service_error(status: int, body: object) -> ServiceError:
    """The error for an answer that is not 2xx."""
    error = body.get("error") if isinstance(body, dict) else None
    about: dict[str, Any] = error if isinstance(error, dict) else {}
    code, message = about.get("code"), about.get("message")
    return _BY_STATUS.get(status, ServiceError)(
        status,
        code if isinstance(code, str) else f"HTTP_{status}",
        message if isinstance(message, str) else f"the service answered {status}",
        _objects(about.get("problems")),
        _objects(about.get("violations")),
    )


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


class RunFailed(CorralError):
    """A run did not succeed, and `check` was asked for."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.run, result.status)
        self.result = result

    def __str__(self) -> str:
        error = self.result.error
        why = "" if error is None else f": {error.message}"
        return shown(f"run {self.result.run} of {self.result.worker}: {self.result.status}{why}")


class CommandFailed(CorralError):
    """A command of a session did not succeed, and `check` was asked for."""

    def __init__(self, result: CommandResult) -> None:
        super().__init__(result.status, result.exit_code)
        self.result = result

    def __str__(self) -> str:
        return shown(f"the command ended with {self.result.status}, exit code {self.result.exit_code}")


class ToolRefused(CorralError):
    """A tool of a session refused. `message` says what is allowed instead; it may be shown to a model."""

    def __init__(self, tool: str, code: str, message: str, data: Mapping[str, Any]) -> None:
        super().__init__(tool, code, message)
        self.tool = tool
        self.code = code
        self.message = message
        self.data = dict(data)

    def __str__(self) -> str:
        return shown(f"{self.tool}: {self.message} [{self.code}]")
