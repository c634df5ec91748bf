"""The objects of the service. Made by generate.py from its OpenAPI document; not to be changed by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, Required, Self, TypedDict

from . import _decode as d


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedChangeset:
    id: str
    """The id of a changeset."""
    changes: list[Change]
    left: int
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "AppliedChangeset")
        return cls(
            id=d.as_text(o.get("id"), "AppliedChangeset.id"),
            changes=d.list_of(Change.read)(o.get("changes"), "AppliedChangeset.changes"),
            left=d.as_integer(o.get("left"), "AppliedChangeset.left"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    id: str
    """The id of a question."""
    project: str
    """A name of /v1/projects."""
    state: Literal["waiting", "decided"] | str
    digest: str
    """SHA-256 of what was shown."""
    asked_at: str
    """ISO 8601, UTC."""
    question: Question
    """What is asked, by whom and why, with the diff; its texts may come from a worker."""
    decided_at: str | None
    outcome: Literal["approved", "denied", "timed_out", "withdrawn"] | str | None
    scope: Literal["once", "tree", "session"] | str | None
    answers: list[Literal["once", "tree", "no"] | str]
    """What may be answered."""
    at: Literal["terminal", "client", "program", "board"] | str
    """Where else it is asked; board: nowhere."""
    directory: str | None
    """Of a grant: what was chosen in place of the requested one."""
    by: str | None
    """Who decided: the name of a token or of a user."""
    via: Literal["terminal", "client", "program", "command", "service"] | str | None
    """Where it was decided: where it was asked, with `corral approvals`, or here."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Approval")
        return cls(
            id=d.as_text(o.get("id"), "Approval.id"),
            project=d.as_text(o.get("project"), "Approval.project"),
            state=d.as_text(o.get("state"), "Approval.state"),
            digest=d.as_text(o.get("digest"), "Approval.digest"),
            asked_at=d.as_text(o.get("askedAt"), "Approval.askedAt"),
            question=Question.read(o.get("question"), "Approval.question"),
            decided_at=d.optional(d.as_text)(o.get("decidedAt"), "Approval.decidedAt"),
            outcome=d.optional(d.as_text)(o.get("outcome"), "Approval.outcome"),
            scope=d.optional(d.as_text)(o.get("scope"), "Approval.scope"),
            answers=d.list_of(d.as_text)(o.get("answers"), "Approval.answers"),
            at=d.as_text(o.get("at"), "Approval.at"),
            directory=d.optional(d.as_text)(o.get("directory"), "Approval.directory"),
            by=d.optional(d.as_text)(o.get("by"), "Approval.by"),
            via=d.optional(d.as_text)(o.get("via"), "Approval.via"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    seq: int
    at: str
    """ISO 8601, UTC."""
    type: str
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "AuditRecord")
        return cls(
            seq=d.as_integer(o.get("seq"), "AuditRecord.seq"),
            at=d.as_text(o.get("at"), "AuditRecord.at"),
            type=d.as_text(o.get("type"), "AuditRecord.type"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalledRun:
    run: str
    """The id of a run."""
    worker: str
    status: str
    held: Held | None
    """What it could see and reach, in the paths of its container; null before it started."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "CalledRun")
        return cls(
            run=d.as_text(o.get("run"), "CalledRun.run"),
            worker=d.as_text(o.get("worker"), "CalledRun.worker"),
            status=d.as_text(o.get("status"), "CalledRun.status"),
            held=d.optional(Held.read)(o.get("held"), "CalledRun.held"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    index: int
    path: str
    kind: Literal["create", "modify", "delete"] | str
    type: Literal["file", "directory", "link"] | str
    outcome: str
    reason: str | None
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Change")
        return cls(
            index=d.as_integer(o.get("index"), "Change.index"),
            path=d.as_text(o.get("path"), "Change.path"),
            kind=d.as_text(o.get("kind"), "Change.kind"),
            type=d.as_text(o.get("type"), "Change.type"),
            outcome=d.as_text(o.get("outcome"), "Change.outcome"),
            reason=d.optional(d.as_text)(o.get("reason"), "Change.reason"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changeset:
    id: str
    """The id of a changeset."""
    run: str
    worker: str
    project: str
    """A name of /v1/projects."""
    created_at: str
    """ISO 8601, UTC."""
    digest: str
    """SHA-256 of what was shown."""
    changes: list[Change]
    diff: str
    """A unified diff with the files as they are now."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Changeset")
        return cls(
            id=d.as_text(o.get("id"), "Changeset.id"),
            run=d.as_text(o.get("run"), "Changeset.run"),
            worker=d.as_text(o.get("worker"), "Changeset.worker"),
            project=d.as_text(o.get("project"), "Changeset.project"),
            created_at=d.as_text(o.get("createdAt"), "Changeset.createdAt"),
            digest=d.as_text(o.get("digest"), "Changeset.digest"),
            changes=d.list_of(Change.read)(o.get("changes"), "Changeset.changes"),
            diff=d.as_text(o.get("diff"), "Changeset.diff"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    error: FaultBody
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Fault")
        return cls(
            error=FaultBody.read(o.get("error"), "Fault.error"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultBody:
    code: str
    """docs/troubleshooting.md has all."""
    message: str
    problems: list[Problem] | None = None
    violations: list[Violation] | None = None
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "FaultBody")
        return cls(
            code=d.as_text(o.get("code"), "FaultBody.code"),
            message=d.as_text(o.get("message"), "FaultBody.message"),
            problems=d.optional(d.list_of(Problem.read))(o.get("problems"), "FaultBody.problems"),
            violations=d.optional(d.list_of(Violation.read))(o.get("violations"), "FaultBody.violations"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    id: str
    """The id of a fleet."""
    project: str
    """A name of /v1/projects."""
    state: str
    """loading, running, paused, interrupted, pending, done or cancelled."""
    created_at: str
    """ISO 8601, UTC."""
    ended_at: str | None
    why: str | None
    counts: FleetCounts
    spec: dict[str, Any]
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Fleet")
        return cls(
            id=d.as_text(o.get("id"), "Fleet.id"),
            project=d.as_text(o.get("project"), "Fleet.project"),
            state=d.as_text(o.get("state"), "Fleet.state"),
            created_at=d.as_text(o.get("createdAt"), "Fleet.createdAt"),
            ended_at=d.optional(d.as_text)(o.get("endedAt"), "Fleet.endedAt"),
            why=d.optional(d.as_text)(o.get("why"), "Fleet.why"),
            counts=FleetCounts.read(o.get("counts"), "Fleet.counts"),
            spec=d.as_object(o.get("spec"), "Fleet.spec"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCounts:
    total: int
    queued: int
    running: int
    done: int
    failed: int
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "FleetCounts")
        return cls(
            total=d.as_integer(o.get("total"), "FleetCounts.total"),
            queued=d.as_integer(o.get("queued"), "FleetCounts.queued"),
            running=d.as_integer(o.get("running"), "FleetCounts.running"),
            done=d.as_integer(o.get("done"), "FleetCounts.done"),
            failed=d.as_integer(o.get("failed"), "FleetCounts.failed"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetItem:
    index: int
    key: str
    state: Literal["queued", "running", "done"] | str
    status: str | None
    code: str | None
    attempt: int
    run: str | None
    ended_at: str | None
    duration_ms: float | None
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "FleetItem")
        return cls(
            index=d.as_integer(o.get("index"), "FleetItem.index"),
            key=d.as_text(o.get("key"), "FleetItem.key"),
            state=d.as_text(o.get("state"), "FleetItem.state"),
            status=d.optional(d.as_text)(o.get("status"), "FleetItem.status"),
            code=d.optional(d.as_text)(o.get("code"), "FleetItem.code"),
            attempt=d.as_integer(o.get("attempt"), "FleetItem.attempt"),
            run=d.optional(d.as_text)(o.get("run"), "FleetItem.run"),
            ended_at=d.optional(d.as_text)(o.get("endedAt"), "FleetItem.endedAt"),
            duration_ms=d.optional(d.as_number)(o.get("durationMs"), "FleetItem.durationMs"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


class FleetTemplate(TypedDict, total=False):
    key: NotRequired[str]
    attach: NotRequired[list[str]]
    allowRead: NotRequired[list[str]]
    allowWrite: NotRequired[list[str]]
    input: NotRequired[Any]
    """JSON in which every text is a template."""


class FleetOrder(TypedDict, total=False):
    project: NotRequired[str]
    """A name of /v1/projects."""
    fleet: NotRequired[str]
    """The name of a file in fleets/, which declares all; in place of worker and items."""
    worker: NotRequired[str]
    """The name of a worker."""
    items: NotRequired[list[str | dict[str, Any]]]
    """One run for each: fields, or the path of a file below the project's folder."""
    template: NotRequired[FleetTemplate]
    concurrency: NotRequired[Literal["auto"] | int]
    reuse: NotRequired[Literal["fresh", "scrubbed"]]
    retries: NotRequired[int]
    maxFailures: NotRequired[int | None]
    timeoutMs: NotRequired[int | None]
    cache: NotRequired[bool]
    policy: NotRequired[str]
    """A policy in place of the project's; needs the role admin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    id: str
    project: str
    """A name of /v1/projects."""
    run: str
    """The id of a run."""
    worker: str
    through: list[str]
    granted_at: str
    """ISO 8601, UTC."""
    scope: str
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Grant")
        return cls(
            id=d.as_text(o.get("id"), "Grant.id"),
            project=d.as_text(o.get("project"), "Grant.project"),
            run=d.as_text(o.get("run"), "Grant.run"),
            worker=d.as_text(o.get("worker"), "Grant.worker"),
            through=d.list_of(d.as_text)(o.get("through"), "Grant.through"),
            granted_at=d.as_text(o.get("grantedAt"), "Grant.grantedAt"),
            scope=d.as_text(o.get("scope"), "Grant.scope"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    mounts: list[dict[str, Any]]
    network: Any
    secrets: list[str]
    tools: list[str] | None
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Held")
        return cls(
            mounts=d.list_of(d.as_object)(o.get("mounts"), "Held.mounts"),
            network=d.as_any(o.get("network"), "Held.network"),
            secrets=d.list_of(d.as_text)(o.get("secrets"), "Held.secrets"),
            tools=d.optional(d.list_of(d.as_text))(o.get("tools"), "Held.tools"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemResult:
    status: str
    error: RunError | None
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ItemResult")
        return cls(
            status=d.as_text(o.get("status"), "ItemResult.status"),
            error=d.optional(RunError.read)(o.get("error"), "ItemResult.error"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedChangeset:
    id: str
    """The id of a changeset."""
    run: str
    worker: str
    project: str
    """A name of /v1/projects."""
    created_at: str
    """ISO 8601, UTC."""
    applying: bool
    counts: dict[str, int]
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ListedChangeset")
        return cls(
            id=d.as_text(o.get("id"), "ListedChangeset.id"),
            run=d.as_text(o.get("run"), "ListedChangeset.run"),
            worker=d.as_text(o.get("worker"), "ListedChangeset.worker"),
            project=d.as_text(o.get("project"), "ListedChangeset.project"),
            created_at=d.as_text(o.get("createdAt"), "ListedChangeset.createdAt"),
            applying=d.as_boolean(o.get("applying"), "ListedChangeset.applying"),
            counts=d.map_of(d.as_integer)(o.get("counts"), "ListedChangeset.counts"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    message: str
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Problem")
        return cls(
            message=d.as_text(o.get("message"), "Problem.message"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    run: str
    root: str
    worker: str
    operations: list[str]
    paths: list[str]
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Question")
        return cls(
            run=d.as_text(o.get("run"), "Question.run"),
            root=d.as_text(o.get("root"), "Question.root"),
            worker=d.as_text(o.get("worker"), "Question.worker"),
            operations=d.list_of(d.as_text)(o.get("operations"), "Question.operations"),
            paths=d.list_of(d.as_text)(o.get("paths"), "Question.paths"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedChangeset:
    id: str | None
    counts: dict[str, int]
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ReportedChangeset")
        return cls(
            id=d.optional(d.as_text)(o.get("id"), "ReportedChangeset.id"),
            counts=d.map_of(d.as_integer)(o.get("counts"), "ReportedChangeset.counts"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    id: str
    """The id of a changeset."""
    run: str
    worker: str
    project: str
    """A name of /v1/projects."""
    created_at: str
    """ISO 8601, UTC."""
    digest: str
    """SHA-256 of what was shown."""
    waiting: int
    """How many changes can still be applied."""
    total: dict[str, Any]
    parts: list[ReviewedPart]
    """What a user decides on, in the order of applying."""
    unfit: list[dict[str, Any]]
    """What cannot be applied now."""
    not_shown: int
    """Changes beyond the limit of a diff."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Review")
        return cls(
            id=d.as_text(o.get("id"), "Review.id"),
            run=d.as_text(o.get("run"), "Review.run"),
            worker=d.as_text(o.get("worker"), "Review.worker"),
            project=d.as_text(o.get("project"), "Review.project"),
            created_at=d.as_text(o.get("createdAt"), "Review.createdAt"),
            digest=d.as_text(o.get("digest"), "Review.digest"),
            waiting=d.as_integer(o.get("waiting"), "Review.waiting"),
            total=d.as_object(o.get("total"), "Review.total"),
            parts=d.list_of(ReviewedPart.read)(o.get("parts"), "Review.parts"),
            unfit=d.list_of(d.as_object)(o.get("unfit"), "Review.unfit"),
            not_shown=d.as_integer(o.get("notShown"), "Review.notShown"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewedPart:
    path: str
    kind: Literal["create", "modify", "delete"] | str
    type: Literal["file", "directory", "link"] | str
    files: int
    added: int
    removed: int
    bytes: int
    indexes: list[int]
    """For `which` of apply."""
    lines: list[str]
    """A unified diff; no line has a control character."""
    ruled: dict[str, Any] | None
    """What the project's rules decide; null: a user decides."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ReviewedPart")
        return cls(
            path=d.as_text(o.get("path"), "ReviewedPart.path"),
            kind=d.as_text(o.get("kind"), "ReviewedPart.kind"),
            type=d.as_text(o.get("type"), "ReviewedPart.type"),
            files=d.as_integer(o.get("files"), "ReviewedPart.files"),
            added=d.as_integer(o.get("added"), "ReviewedPart.added"),
            removed=d.as_integer(o.get("removed"), "ReviewedPart.removed"),
            bytes=d.as_integer(o.get("bytes"), "ReviewedPart.bytes"),
            indexes=d.list_of(d.as_integer)(o.get("indexes"), "ReviewedPart.indexes"),
            lines=d.list_of(d.as_text)(o.get("lines"), "ReviewedPart.lines"),
            ruled=d.optional(d.as_object)(o.get("ruled"), "ReviewedPart.ruled"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    id: str
    """The id of a run."""
    project: str
    """A name of /v1/projects."""
    kind: Literal["run", "session"] | str
    worker: str
    status: Literal["succeeded", "failed", "signaled", "oom_killed", "refused", "denied", "lost", "timed_out", "cancelled", "output_limit", "disk_limit", "running", "interrupted", "closed"] | str | str
    """That of its result; running, interrupted or closed."""
    queued_at: str
    """ISO 8601, UTC."""
    started_at: str | None
    ended_at: str | None
    exit_code: int | None
    signal: str | None
    error: RunError | None
    duration_ms: float | None
    changeset: ReportedChangeset | None
    """What it wrote in staged mounts; null if nothing."""
    held: Held | None
    """What it could see and reach, in the paths of its container; null before it started."""
    stdout: StreamSize
    stderr: StreamSize
    call_count: int
    """Calls of the whole tree that are in the record."""
    calls: list[CalledRun]
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Run")
        return cls(
            id=d.as_text(o.get("id"), "Run.id"),
            project=d.as_text(o.get("project"), "Run.project"),
            kind=d.as_text(o.get("kind"), "Run.kind"),
            worker=d.as_text(o.get("worker"), "Run.worker"),
            status=d.as_text(o.get("status"), "Run.status"),
            queued_at=d.as_text(o.get("queuedAt"), "Run.queuedAt"),
            started_at=d.optional(d.as_text)(o.get("startedAt"), "Run.startedAt"),
            ended_at=d.optional(d.as_text)(o.get("endedAt"), "Run.endedAt"),
            exit_code=d.optional(d.as_integer)(o.get("exitCode"), "Run.exitCode"),
            signal=d.optional(d.as_text)(o.get("signal"), "Run.signal"),
            error=d.optional(RunError.read)(o.get("error"), "Run.error"),
            duration_ms=d.optional(d.as_number)(o.get("durationMs"), "Run.durationMs"),
            changeset=d.optional(ReportedChangeset.read)(o.get("changeset"), "Run.changeset"),
            held=d.optional(Held.read)(o.get("held"), "Run.held"),
            stdout=StreamSize.read(o.get("stdout"), "Run.stdout"),
            stderr=StreamSize.read(o.get("stderr"), "Run.stderr"),
            call_count=d.as_integer(o.get("callCount"), "Run.callCount"),
            calls=d.list_of(CalledRun.read)(o.get("calls"), "Run.calls"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunError:
    code: str
    message: str
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "RunError")
        return cls(
            code=d.as_text(o.get("code"), "RunError.code"),
            message=d.as_text(o.get("message"), "RunError.message"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


class RunOrder(TypedDict, total=False):
    project: NotRequired[str]
    """A name of /v1/projects."""
    worker: Required[str]
    """The name of a worker."""
    input: NotRequired[Any]
    """JSON for its standard input, or for an agent to read."""
    arguments: NotRequired[list[str]]
    continues: NotRequired[str]
    """The run of an agent whose conversation is continued."""
    policy: NotRequired[str]
    """A policy in place of the project's; needs the role admin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    run: str
    """The id of a run."""
    worker: str
    status: Literal["succeeded", "failed", "signaled", "oom_killed", "refused", "denied", "lost", "timed_out", "cancelled", "output_limit", "disk_limit"] | str | str
    exit_code: int | None
    output: Any
    stdout: str
    stderr: str
    truncated: bool
    violations: list[Violation]
    changes: list[SettledChange]
    changeset: ReportedChangeset | None
    """What it wrote in staged mounts; null if nothing."""
    duration_ms: float
    error: RunError | None
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "RunResult")
        return cls(
            run=d.as_text(o.get("run"), "RunResult.run"),
            worker=d.as_text(o.get("worker"), "RunResult.worker"),
            status=d.as_text(o.get("status"), "RunResult.status"),
            exit_code=d.optional(d.as_integer)(o.get("exitCode"), "RunResult.exitCode"),
            output=d.as_any(o.get("output"), "RunResult.output"),
            stdout=d.as_text(o.get("stdout"), "RunResult.stdout"),
            stderr=d.as_text(o.get("stderr"), "RunResult.stderr"),
            truncated=d.as_boolean(o.get("truncated"), "RunResult.truncated"),
            violations=d.list_of(Violation.read)(o.get("violations"), "RunResult.violations"),
            changes=d.list_of(SettledChange.read)(o.get("changes"), "RunResult.changes"),
            changeset=d.optional(ReportedChangeset.read)(o.get("changeset"), "RunResult.changeset"),
            duration_ms=d.as_number(o.get("durationMs"), "RunResult.durationMs"),
            error=d.optional(RunError.read)(o.get("error"), "RunResult.error"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    id: str
    """The id of a run."""
    project: str
    """A name of /v1/projects."""
    worker: str
    tools: list[str]
    opened_at: str
    """ISO 8601, UTC."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Session")
        return cls(
            id=d.as_text(o.get("id"), "Session.id"),
            project=d.as_text(o.get("project"), "Session.project"),
            worker=d.as_text(o.get("worker"), "Session.worker"),
            tools=d.list_of(d.as_text)(o.get("tools"), "Session.tools"),
            opened_at=d.as_text(o.get("openedAt"), "Session.openedAt"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTool:
    name: str
    title: str
    description: str
    input_schema: dict[str, Any]
    """JSON Schema."""
    read_only: bool
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "SessionTool")
        return cls(
            name=d.as_text(o.get("name"), "SessionTool.name"),
            title=d.as_text(o.get("title"), "SessionTool.title"),
            description=d.as_text(o.get("description"), "SessionTool.description"),
            input_schema=d.map_of(d.as_any)(o.get("inputSchema"), "SessionTool.inputSchema"),
            read_only=d.as_boolean(o.get("readOnly"), "SessionTool.readOnly"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledChange:
    path: str
    outcome: str
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "SettledChange")
        return cls(
            path=d.as_text(o.get("path"), "SettledChange.path"),
            outcome=d.as_text(o.get("outcome"), "SettledChange.outcome"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledSession:
    id: str
    """The id of a run."""
    changes: list[SettledChange]
    changeset: ReportedChangeset | None
    """What it wrote in staged mounts; null if nothing."""
    error: RunError | None
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "SettledSession")
        return cls(
            id=d.as_text(o.get("id"), "SettledSession.id"),
            changes=d.list_of(SettledChange.read)(o.get("changes"), "SettledSession.changes"),
            changeset=d.optional(ReportedChangeset.read)(o.get("changeset"), "SettledSession.changeset"),
            error=d.optional(RunError.read)(o.get("error"), "SettledSession.error"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownItem:
    fleet: str
    """The id of a fleet."""
    key: str
    state: str
    result: ItemResult | None
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ShownItem")
        return cls(
            fleet=d.as_text(o.get("fleet"), "ShownItem.fleet"),
            key=d.as_text(o.get("key"), "ShownItem.key"),
            state=d.as_text(o.get("state"), "ShownItem.state"),
            result=d.optional(ItemResult.read)(o.get("result"), "ShownItem.result"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedFleet:
    fleet: str
    """The id of a fleet."""
    project: str
    """A name of /v1/projects."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "StartedFleet")
        return cls(
            fleet=d.as_text(o.get("fleet"), "StartedFleet.fleet"),
            project=d.as_text(o.get("project"), "StartedFleet.project"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedRun:
    run: str
    """The id of a run."""
    project: str
    """A name of /v1/projects."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "StartedRun")
        return cls(
            run=d.as_text(o.get("run"), "StartedRun.run"),
            project=d.as_text(o.get("project"), "StartedRun.project"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedRun:
    run: str
    """The id of a run."""
    outcome: Literal["ended", "stopped", "asked"] | str
    status: str
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "StoppedRun")
        return cls(
            run=d.as_text(o.get("run"), "StoppedRun.run"),
            outcome=d.as_text(o.get("outcome"), "StoppedRun.outcome"),
            status=d.as_text(o.get("status"), "StoppedRun.status"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSize:
    bytes: int
    kept_bytes: int
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "StreamSize")
        return cls(
            bytes=d.as_integer(o.get("bytes"), "StreamSize.bytes"),
            kept_bytes=d.as_integer(o.get("keptBytes"), "StreamSize.keptBytes"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnswer:
    ok: Literal[True]
    text: str
    data: dict[str, Any]
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ToolAnswer")
        return cls(
            ok=d.as_any(o.get("ok"), "ToolAnswer.ok"),
            text=d.as_text(o.get("text"), "ToolAnswer.text"),
            data=d.map_of(d.as_any)(o.get("data"), "ToolAnswer.data"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRefusal:
    ok: Literal[False]
    code: str
    message: str
    data: dict[str, Any]
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ToolRefusal")
        return cls(
            ok=d.as_any(o.get("ok"), "ToolRefusal.ok"),
            code=d.as_text(o.get("code"), "ToolRefusal.code"),
            message=d.as_text(o.get("message"), "ToolRefusal.message"),
            data=d.map_of(d.as_any)(o.get("data"), "ToolRefusal.data"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    code: str
    message: str
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Violation")
        return cls(
            code=d.as_text(o.get("code"), "Violation.code"),
            message=d.as_text(o.get("message"), "Violation.message"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    name: str
    description: str
    image: str
    model: str | None
    policy: str | None
    calls: list[str]
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Worker")
        return cls(
            name=d.as_text(o.get("name"), "Worker.name"),
            description=d.as_text(o.get("description"), "Worker.description"),
            image=d.as_text(o.get("image"), "Worker.image"),
            model=d.optional(d.as_text)(o.get("model"), "Worker.model"),
            policy=d.optional(d.as_text)(o.get("policy"), "Worker.policy"),
            calls=d.list_of(d.as_text)(o.get("calls"), "Worker.calls"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)

