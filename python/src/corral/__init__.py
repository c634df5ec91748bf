"""
The client of a Corral service (`corral serve`). `Corral` blocks; `AsyncCorral` has the same methods for asyncio.

    from corral import Corral

    with Corral() as corral:
        print(corral.run("summarize", attachments=["paper.pdf"]).stdout)
"""

from . import models
from ._async.client import AsyncCorral
from ._async.fleets import AsyncFleet
from ._async.runs import AsyncRun
from ._async.commands import AsyncCommand
from ._async.sessions import AsyncSession
from ._sync.client import Corral
from ._sync.fleets import Fleet
from ._sync.runs import Run
from ._sync.commands import Command
from ._sync.sessions import Session
from .errors import (
    CommandFailed,
    Conflict,
    CorralError,
    Forbidden,
    NotFound,
    ProtocolError,
    Refused,
    RunFailed,
    ServiceError,
    TimedOut,
    TooLarge,
    ToolRefused,
    Unauthorized,
    Unavailable,
    Unreachable,
    UnsafeArchive,
    WrongRequest,
)
from .events import Event
from .results import Answer, CommandResult, ItemResult, Listed, Progress, Question, Result

__all__ = [
    "Answer",
    "AsyncCommand",
    "AsyncCorral",
    "AsyncFleet",
    "AsyncRun",
    "AsyncSession",
    "Command",
    "CommandFailed",
    "CommandResult",
    "Conflict",
    "Corral",
    "CorralError",
    "Event",
    "Fleet",
    "Forbidden",
    "ItemResult",
    "Listed",
    "NotFound",
    "Progress",
    "ProtocolError",
    "Question",
    "Refused",
    "Result",
    "Run",
    "RunFailed",
    "ServiceError",
    "Session",
    "TimedOut",
    "TooLarge",
    "ToolRefused",
    "Unauthorized",
    "Unavailable",
    "Unreachable",
    "UnsafeArchive",
    "WrongRequest",
    "models",
]
