"""Results of runs, items and commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Literal, Mapping, Self, TypeVar

from . import _decode as d
from .errors import CommandFailed, Refused, RunFailed
from .models import Approval, Question as AskedQuestion, ReportedChangeset, RunError, RunResult
from .models import Run as RunRecord

Answer = Literal["once", "tree", "no"]
T = TypeVar("T")


class Listed(list[T]):
    """What the service lists. `more`: there are others, which this list does not have; `next`: where they begin, if it has pages."""

    __slots__ = ("more", "next")
    more: bool
    next: str | None

    @classmethod
    def from_json(cls, answer: Mapping[str, Any], name: str, read: Callable[[object], T]) -> Self:
        found = answer.get(name, [])
        if not isinstance(found, list):
            raise d.wrong(name, "a list")
        listed = cls(read(one) for one in found)
        following = answer.get("next")
        listed.next = following if isinstance(following, str) else None
        listed.more = listed.next is not None or answer.get("more") is True
        return listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(RunResult):
    """The result of a run. A run that failed is a result too."""

    @property
    def ok(self) -> bool:
        return self.status == "succeeded"

    @property
    def changeset_id(self) -> str | None:
        """What waits to be applied; None if nothing does."""
        return None if self.changeset is None else self.changeset.id

    def check(self) -> Result:
        """Itself, if the run succeeded. Else it raises `RunFailed`."""
        if not self.ok:
            raise RunFailed(self)
        return self

    @classmethod
    def of_record(cls, record: RunRecord, stdout: str, stderr: str) -> Result:
        """Of a run whose result the service does not have, such as one that it lost with a restart."""
        return cls(
            run=record.id,
            worker=record.worker,
            status=record.status,
            exit_code=record.exit_code,
            output=stdout or None,
            stdout=stdout,
            stderr=stderr,
            truncated=record.stdout.kept_bytes < record.stdout.bytes or record.stderr.kept_bytes < record.stderr.bytes,
            violations=[],
            changes=[],
            changeset=record.changeset,
            duration_ms=record.duration_ms or 0,
            error=record.error or RunError(code="NO_RESULT", message=f"the run is {record.status}", raw={}),
            raw=record.raw,
        )


def refuse(result: Result) -> Result:
    """The result, unless nothing ran. @raises Refused"""
    if result.status != "refused":
        return result
    error = result.error
    code, message = ("REFUSED", "the run was refused") if error is None else (error.code, error.message)
    refused = Refused(422, code, message, (), [one.raw for one in result.violations])
    refused.result = result
    raise refused


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemResult:
    """How an item of a fleet ended. One that failed is a result too."""

    fleet: str
    index: int
    """Its place in the items."""
    key: str
    status: str
    run: str | None
    attempt: int
    exit_code: int | None
    error: RunError | None
    duration_ms: float
    changeset: ReportedChangeset | None
    output: Any = None
    """Parsed JSON or text; None without `outputs`. A long one is cut."""
    value: Any = None
    """The item as it was given to `map`."""
    machine: str | None = None
    """The machine that ran it; None: the process that owns the fleet."""
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def ok(self) -> bool:
        return self.status in ("succeeded", "cached")

    @property
    def changeset_id(self) -> str | None:
        return None if self.changeset is None else self.changeset.id

    @classmethod
    def read(cls, fleet: str, about: Mapping[str, Any], value: Any) -> ItemResult:
        """`about`: an event `settled`, or the result of an item."""
        changeset = about.get("changeset")
        is_set = isinstance(changeset, dict) and isinstance(changeset.get("counts"), dict)
        return cls(
            fleet=fleet,
            index=d.as_integer(about.get("index"), "item.index"),
            key=d.as_text(about.get("key"), "item.key"),
            status=d.as_text(about.get("status"), "item.status"),
            run=d.optional(d.as_text)(about.get("run"), "item.run"),
            attempt=d.as_integer(about.get("attempt", 0), "item.attempt"),
            exit_code=d.optional(d.as_integer)(about.get("exitCode"), "item.exitCode"),
            error=d.optional(RunError.read)(about.get("error"), "item.error"),
            duration_ms=d.optional(d.as_number)(about.get("durationMs"), "item.durationMs") or 0,
            changeset=ReportedChangeset.from_json(changeset) if is_set else None,
            output=about.get("output"),
            value=value,
            machine=d.optional(d.as_text)(about.get("machine"), "item.machine"),
            raw=about,
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a fleet is."""

    total: int
    done: int
    failed: int

    def __str__(self) -> str:
        return f"{self.done} of {self.total}" + (f", {self.failed} failed" if self.failed else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """How a command of a session ended."""

    status: str
    exit_code: int | None
    stdout: str
    stderr: str
    cut: bool
    """The middle of a long output was left out; one of `hints` names the file that has all of it."""
    hints: list[str]
    text: str = field(repr=False)
    """All of it, as a model reads it."""
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def ok(self) -> bool:
        return self.status == "succeeded"

    def check(self) -> CommandResult:
        """Itself, if the command succeeded. Else it raises `CommandFailed`."""
        if not self.ok:
            raise CommandFailed(self)
        return self

    @classmethod
    def read(cls, text: str, data: Mapping[str, Any]) -> CommandResult:
        return cls(
            status=d.as_text(data.get("status"), "exec.status"),
            exit_code=d.optional(d.as_integer)(data.get("exitCode"), "exec.exitCode"),
            stdout=d.as_text(data.get("stdout"), "exec.stdout"),
            stderr=d.as_text(data.get("stderr"), "exec.stderr"),
            cut=data.get("cut") is True,
            hints=[str(hint) for hint in data.get("hints") or []],
            text=text,
            raw=data,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Approval):
    """What a run asks. Its texts may come from a worker, and may be false."""

    @property
    def run(self) -> str:
        return self.question.run

    @property
    def root(self) -> str:
        """The run at the top, which was started. Of several that wait for the answer, the first."""
        return self.question.root

    @property
    def roots(self) -> list[str]:
        """The runs at the top of all that wait for the answer, which is for all of them."""
        return list(dict.fromkeys([self.question.root, *(one.root for one in self.question.waiting or [])]))

    @property
    def worker(self) -> str:
        return self.question.worker

    @property
    def operations(self) -> list[str]:
        return self.question.operations

    @property
    def paths(self) -> list[str]:
        return self.question.paths

    @property
    def host_executed(self) -> list[str]:
        """Of the paths, those that programs of the host would execute. Only the answer "once" approves them."""
        return [one.path for one in self.question.host_executed or []]

    @property
    def diff(self) -> str | None:
        return self._text("diff")

    @property
    def command(self) -> str | None:
        return self._text("command")

    @property
    def why(self) -> str | None:
        return self._text("why")

    def _text(self, name: str) -> str | None:
        value = self.question.raw.get(name)
        return value if isinstance(value, str) else None


def answer_of(question: Question, given: object) -> Answer | None:
    """
    What a function of the user answered: True, False, an answer, or None to leave it to others. True is a general yes, which does not
    cover what programs of the host would execute (`host_executed`): that is approved by "once" alone.
    """
    match given:
        case None:
            return None
        case True | "tree" if question.host_executed:
            return "no"
        case True:
            return "once" if "once" in question.answers else "tree"
        case False:
            return "no"
        case "once" | "tree" | "no":
            return given
    raise ValueError("answer a question with True, False, 'once', 'tree', 'no', or None to leave it to others")


__all__ = [
    "Answer",
    "AskedQuestion",
    "CommandResult",
    "ItemResult",
    "Progress",
    "Question",
    "Result",
]
