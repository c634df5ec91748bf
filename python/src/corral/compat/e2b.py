"""
The basic calls of E2B's SDK, for programs that were written for it: their sandbox is a session of a worker. What is not here raises
`NotSupported`, which names it.

    from corral.compat.e2b import Sandbox

    with Sandbox.create("desk") as sandbox:
        print(sandbox.commands.run("ls /docs").stdout)
"""

from .._async.e2b import AsyncCommandHandle, AsyncSandbox
from .._e2b import (
    AuthenticationException,
    CommandExitException,
    CommandResult,
    EntryInfo,
    FileNotFoundException,
    FileType,
    InvalidArgumentException,
    NotFoundException,
    NotSupported,
    ProcessInfo,
    SandboxException,
    SandboxNotFoundException,
    TimeoutException,
    WriteInfo,
)
from .._sync.e2b import CommandHandle, Sandbox

__all__ = [
    "AsyncCommandHandle",
    "AsyncSandbox",
    "AuthenticationException",
    "CommandExitException",
    "CommandHandle",
    "CommandResult",
    "EntryInfo",
    "FileNotFoundException",
    "FileType",
    "InvalidArgumentException",
    "NotFoundException",
    "NotSupported",
    "ProcessInfo",
    "Sandbox",
    "SandboxException",
    "SandboxNotFoundException",
    "TimeoutException",
    "WriteInfo",
]
