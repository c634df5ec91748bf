"""The objects of the service. Made by generate.py from its OpenAPI document; not to be changed by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, Required, Self, TypedDict

from . import _decode as d


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedGrant:
    run: str
    """The id of a run."""
    id: str | None
    """Null: the worker already had it."""
    directory: str
    mode: Literal["read", "write"] | str
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "AddedGrant")
        return cls(
            run=d.as_text(o.get("run"), "AddedGrant.run"),
            id=d.optional(d.as_text)(o.get("id"), "AddedGrant.id"),
            directory=d.as_text(o.get("directory"), "AddedGrant.directory"),
            mode=d.as_text(o.get("mode"), "AddedGrant.mode"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReport:
    model: str
    steps: int
    tokens: dict[str, Any]
    cost_usd: float | None
    """Null: the project gives no price for some of it."""
    continues: str | None = None
    """The id of a run."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "AgentReport")
        return cls(
            model=d.as_text(o.get("model"), "AgentReport.model"),
            steps=d.as_integer(o.get("steps"), "AgentReport.steps"),
            tokens=d.as_object(o.get("tokens"), "AgentReport.tokens"),
            cost_usd=d.optional(d.as_number)(o.get("costUsd"), "AgentReport.costUsd"),
            continues=d.optional(d.as_text)(o.get("continues"), "AgentReport.continues"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedTraffic:
    to: str
    connections: int
    requests: int
    up: int
    down: int
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "AllowedTraffic")
        return cls(
            to=d.as_text(o.get("to"), "AllowedTraffic.to"),
            connections=d.as_integer(o.get("connections"), "AllowedTraffic.connections"),
            requests=d.as_integer(o.get("requests"), "AllowedTraffic.requests"),
            up=d.as_integer(o.get("up"), "AllowedTraffic.up"),
            down=d.as_integer(o.get("down"), "AllowedTraffic.down"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


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
    look_alike: list[str]
    """What of its names may be taken for something else, in words."""
    decided_at: str | None
    outcome: Literal["approved", "denied", "timed_out", "withdrawn"] | str | None
    scope: Literal["once", "tree", "session"] | str | None
    answers: list[Literal["once", "tree", "no"] | str]
    """What may be answered."""
    timeout_ms: int | None
    """Without an answer for so long, it is denied and its run goes on."""
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
            look_alike=d.list_of(d.as_text)(o.get("lookAlike"), "Approval.lookAlike"),
            decided_at=d.optional(d.as_text)(o.get("decidedAt"), "Approval.decidedAt"),
            outcome=d.optional(d.as_text)(o.get("outcome"), "Approval.outcome"),
            scope=d.optional(d.as_text)(o.get("scope"), "Approval.scope"),
            answers=d.list_of(d.as_text)(o.get("answers"), "Approval.answers"),
            timeout_ms=d.optional(d.as_integer)(o.get("timeoutMs"), "Approval.timeoutMs"),
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
class ApprovalPage:
    approvals: list[Approval]
    next: str | None
    """Null: there are no more."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ApprovalPage")
        return cls(
            approvals=d.list_of(Approval.read)(o.get("approvals"), "ApprovalPage.approvals"),
            next=d.optional(d.as_text)(o.get("next"), "ApprovalPage.next"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    name: str
    bytes: int | None
    sha256: str | None
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Attached")
        return cls(
            name=d.as_text(o.get("name"), "Attached.name"),
            bytes=d.optional(d.as_integer)(o.get("bytes"), "Attached.bytes"),
            sha256=d.optional(d.as_text)(o.get("sha256"), "Attached.sha256"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    records: list[AuditRecord]
    foreign: int
    next: int | None
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "AuditPage")
        return cls(
            records=d.list_of(AuditRecord.read)(o.get("records"), "AuditPage.records"),
            foreign=d.as_integer(o.get("foreign"), "AuditPage.foreign"),
            next=d.optional(d.as_integer)(o.get("next"), "AuditPage.next"),
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
    run: str | None = None
    root: str | None = None
    worker: str | None = None
    ok: bool | None = None
    """Of a tool that was used."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "AuditRecord")
        return cls(
            seq=d.as_integer(o.get("seq"), "AuditRecord.seq"),
            at=d.as_text(o.get("at"), "AuditRecord.at"),
            type=d.as_text(o.get("type"), "AuditRecord.type"),
            run=d.optional(d.as_text)(o.get("run"), "AuditRecord.run"),
            root=d.optional(d.as_text)(o.get("root"), "AuditRecord.root"),
            worker=d.optional(d.as_text)(o.get("worker"), "AuditRecord.worker"),
            ok=d.optional(d.as_boolean)(o.get("ok"), "AuditRecord.ok"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalledRun:
    run: str
    """The id of a run."""
    service: str | None
    """The service of its caller that it is; null: it was called."""
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
    policy: str | None
    image: str | None
    model: str | None
    """Of an agent."""
    limits: dict[str, float] | None
    held: Held | None
    """What it could see and reach, in the paths of its container; null before it started."""
    usage: Usage | None
    truncated: bool
    """It printed more than its limit."""
    changeset: ReportedChangeset | None
    """What it wrote in staged mounts; null if nothing."""
    network: dict[str, Any] | None
    """What it did on its network, as in its result; null without an allow list."""
    agent: dict[str, Any] | None
    """What an agent used, as in its result."""
    attachments: list[str]
    calls: list[CalledRun]
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "CalledRun")
        return cls(
            run=d.as_text(o.get("run"), "CalledRun.run"),
            service=d.optional(d.as_text)(o.get("service"), "CalledRun.service"),
            worker=d.as_text(o.get("worker"), "CalledRun.worker"),
            status=d.as_text(o.get("status"), "CalledRun.status"),
            queued_at=d.as_text(o.get("queuedAt"), "CalledRun.queuedAt"),
            started_at=d.optional(d.as_text)(o.get("startedAt"), "CalledRun.startedAt"),
            ended_at=d.optional(d.as_text)(o.get("endedAt"), "CalledRun.endedAt"),
            exit_code=d.optional(d.as_integer)(o.get("exitCode"), "CalledRun.exitCode"),
            signal=d.optional(d.as_text)(o.get("signal"), "CalledRun.signal"),
            error=d.optional(RunError.read)(o.get("error"), "CalledRun.error"),
            duration_ms=d.optional(d.as_number)(o.get("durationMs"), "CalledRun.durationMs"),
            policy=d.optional(d.as_text)(o.get("policy"), "CalledRun.policy"),
            image=d.optional(d.as_text)(o.get("image"), "CalledRun.image"),
            model=d.optional(d.as_text)(o.get("model"), "CalledRun.model"),
            limits=d.optional(d.map_of(d.as_number))(o.get("limits"), "CalledRun.limits"),
            held=d.optional(Held.read)(o.get("held"), "CalledRun.held"),
            usage=d.optional(Usage.read)(o.get("usage"), "CalledRun.usage"),
            truncated=d.as_boolean(o.get("truncated"), "CalledRun.truncated"),
            changeset=d.optional(ReportedChangeset.read)(o.get("changeset"), "CalledRun.changeset"),
            network=d.optional(d.map_of(d.as_any))(o.get("network"), "CalledRun.network"),
            agent=d.optional(d.map_of(d.as_any))(o.get("agent"), "CalledRun.agent"),
            attachments=d.list_of(d.as_text)(o.get("attachments"), "CalledRun.attachments"),
            calls=d.list_of(CalledRun.read)(o.get("calls"), "CalledRun.calls"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    name: str
    roles: list[Literal["metrics", "read", "decide", "run", "admin"] | str]
    version: str
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Caller")
        return cls(
            name=d.as_text(o.get("name"), "Caller.name"),
            roles=d.list_of(d.as_text)(o.get("roles"), "Caller.roles"),
            version=d.as_text(o.get("version"), "Caller.version"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    id: str
    run: str
    root: str
    parent: str | None
    worker: str
    driver: str
    state: str
    created_at: str
    """ISO 8601, UTC."""
    owner: dict[str, Any]
    owner_alive: bool
    cpu_ms: float | None
    memory_bytes: float | None
    memory_bytes_peak: float | None
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Cell")
        return cls(
            id=d.as_text(o.get("id"), "Cell.id"),
            run=d.as_text(o.get("run"), "Cell.run"),
            root=d.as_text(o.get("root"), "Cell.root"),
            parent=d.optional(d.as_text)(o.get("parent"), "Cell.parent"),
            worker=d.as_text(o.get("worker"), "Cell.worker"),
            driver=d.as_text(o.get("driver"), "Cell.driver"),
            state=d.as_text(o.get("state"), "Cell.state"),
            created_at=d.as_text(o.get("createdAt"), "Cell.createdAt"),
            owner=d.as_object(o.get("owner"), "Cell.owner"),
            owner_alive=d.as_boolean(o.get("ownerAlive"), "Cell.ownerAlive"),
            cpu_ms=d.optional(d.as_number)(o.get("cpuMs"), "Cell.cpuMs"),
            memory_bytes=d.optional(d.as_number)(o.get("memoryBytes"), "Cell.memoryBytes"),
            memory_bytes_peak=d.optional(d.as_number)(o.get("memoryBytesPeak"), "Cell.memoryBytesPeak"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellList:
    cells: list[Cell]
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "CellList")
        return cls(
            cells=d.list_of(Cell.read)(o.get("cells"), "CellList.cells"),
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
    bytes: int | None = None
    """Of a file that was written."""
    host_executed: str | None = None
    """Why a program of the host would act on it by itself, so that no general yes covers it."""
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
            bytes=d.optional(d.as_integer)(o.get("bytes"), "Change.bytes"),
            host_executed=d.optional(d.as_text)(o.get("hostExecuted"), "Change.hostExecuted"),
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
    root: str
    """The root of its tree of runs."""
    digest: str
    """SHA-256 of what was shown."""
    changes: list[Change]
    diff: str
    """A unified diff with the files as they are now."""
    commits: list[str]
    """Commits of git that the worker made and that wait, in words, which are the worker's own."""
    look_alike: list[str]
    """What of its names may be taken for something else, in words."""
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
            root=d.as_text(o.get("root"), "Changeset.root"),
            digest=d.as_text(o.get("digest"), "Changeset.digest"),
            changes=d.list_of(Change.read)(o.get("changes"), "Changeset.changes"),
            diff=d.as_text(o.get("diff"), "Changeset.diff"),
            commits=d.list_of(d.as_text)(o.get("commits"), "Changeset.commits"),
            look_alike=d.list_of(d.as_text)(o.get("lookAlike"), "Changeset.lookAlike"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesetList:
    changesets: list[ListedChangeset]
    more: bool
    """Whether there are more, which this list leaves out: ask with a filter, or a larger limit."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ChangesetList")
        return cls(
            changesets=d.list_of(ListedChangeset.read)(o.get("changesets"), "ChangesetList.changesets"),
            more=d.as_boolean(o.get("more"), "ChangesetList.more"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    ok: bool
    """Whether every call path would run."""
    problems: list[str]
    """Mistakes in files. If there are any, no path is checked."""
    failing: list[FailingPath]
    warnings: list[str]
    workers: int
    paths: int
    """Call paths that were checked."""
    cut: bool
    """Whether there are more paths than were checked."""
    inherits: dict[str, list[str]]
    """Of policies that extend others: these."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "CheckReport")
        return cls(
            ok=d.as_boolean(o.get("ok"), "CheckReport.ok"),
            problems=d.list_of(d.as_text)(o.get("problems"), "CheckReport.problems"),
            failing=d.list_of(FailingPath.read)(o.get("failing"), "CheckReport.failing"),
            warnings=d.list_of(d.as_text)(o.get("warnings"), "CheckReport.warnings"),
            workers=d.as_integer(o.get("workers"), "CheckReport.workers"),
            paths=d.as_integer(o.get("paths"), "CheckReport.paths"),
            cut=d.as_boolean(o.get("cut"), "CheckReport.cut"),
            inherits=d.map_of(d.list_of(d.as_text))(o.get("inherits"), "CheckReport.inherits"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ci:
    id: str
    """The id of a run of jobs."""
    project: str
    """A name of /v1/projects."""
    state: Literal["running", "succeeded", "failed", "stopped"] | str
    """stopped: it ended before its jobs did."""
    base: str | None
    """The commit whose ci.yaml counts; null: not found yet."""
    head: str | None
    """The commit that is tested; null: not found yet."""
    is_changed: bool
    """The head has another ci.yaml, which is not obeyed."""
    started_at: str
    """ISO 8601, UTC."""
    ended_at: str | None
    why: str | None
    """Why it has stopped."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Ci")
        return cls(
            id=d.as_text(o.get("id"), "Ci.id"),
            project=d.as_text(o.get("project"), "Ci.project"),
            state=d.as_text(o.get("state"), "Ci.state"),
            base=d.optional(d.as_text)(o.get("base"), "Ci.base"),
            head=d.optional(d.as_text)(o.get("head"), "Ci.head"),
            is_changed=d.as_boolean(o.get("isChanged"), "Ci.isChanged"),
            started_at=d.as_text(o.get("startedAt"), "Ci.startedAt"),
            ended_at=d.optional(d.as_text)(o.get("endedAt"), "Ci.endedAt"),
            why=d.optional(d.as_text)(o.get("why"), "Ci.why"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


class CiOrder(TypedDict, total=False):
    project: NotRequired[str]
    """Absent: the only one."""
    head: NotRequired[str]
    """The commit that is tested."""
    base: NotRequired[str]
    """The commit whose ci.yaml counts; absent: HEAD. Needs the role admin."""
    jobs: NotRequired[list[str]]
    """Absent: all."""
    matrix: NotRequired[dict[str, str]]
    """Values of axes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CiStep:
    name: str
    """The name of its worker, and of its folder of results."""
    title: str
    kind: Literal["fetch", "part"] | str
    """fetch: it runs nothing of the head."""
    needs: list[str]
    """Names of steps."""
    status: str | None
    """As of a run, or kept or skipped; null: it waits or runs."""
    run: str | None
    """Null: nothing ran, or not yet."""
    exit_code: int | None
    duration_ms: float | None
    failed_tests: int | None
    """Of the reports of the head; null: it has none."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "CiStep")
        return cls(
            name=d.as_text(o.get("name"), "CiStep.name"),
            title=d.as_text(o.get("title"), "CiStep.title"),
            kind=d.as_text(o.get("kind"), "CiStep.kind"),
            needs=d.list_of(d.as_text)(o.get("needs"), "CiStep.needs"),
            status=d.optional(d.as_text)(o.get("status"), "CiStep.status"),
            run=d.optional(d.as_text)(o.get("run"), "CiStep.run"),
            exit_code=d.optional(d.as_integer)(o.get("exitCode"), "CiStep.exitCode"),
            duration_ms=d.optional(d.as_number)(o.get("durationMs"), "CiStep.durationMs"),
            failed_tests=d.optional(d.as_integer)(o.get("failedTests"), "CiStep.failedTests"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class CiWorkers:
    workers: dict[str, str]
    """Files, by name."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "CiWorkers")
        return cls(
            workers=d.map_of(d.as_text)(o.get("workers"), "CiWorkers.workers"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    id: str
    """The id of a conversion."""
    to: Literal["text", "pdf", "safe-pdf", "png", "parts", "facts"] | str
    state: Literal["running", "done", "stopped"] | str
    """stopped: it ended before its files were converted."""
    started_at: str
    """ISO 8601, UTC."""
    ended_at: str | None
    why: str | None
    """Why it has stopped."""
    counts: ConversionCounts
    """Of its files; what is in none of the others waits or runs."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Conversion")
        return cls(
            id=d.as_text(o.get("id"), "Conversion.id"),
            to=d.as_text(o.get("to"), "Conversion.to"),
            state=d.as_text(o.get("state"), "Conversion.state"),
            started_at=d.as_text(o.get("startedAt"), "Conversion.startedAt"),
            ended_at=d.optional(d.as_text)(o.get("endedAt"), "Conversion.endedAt"),
            why=d.optional(d.as_text)(o.get("why"), "Conversion.why"),
            counts=ConversionCounts.read(o.get("counts"), "Conversion.counts"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionCounts:
    total: int
    done: int
    not_possible: int
    refused: int
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ConversionCounts")
        return cls(
            total=d.as_integer(o.get("total"), "ConversionCounts.total"),
            done=d.as_integer(o.get("done"), "ConversionCounts.done"),
            not_possible=d.as_integer(o.get("notPossible"), "ConversionCounts.notPossible"),
            refused=d.as_integer(o.get("refused"), "ConversionCounts.refused"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


class ConversionOrder(TypedDict, total=False):
    to: Required[Literal["text", "pdf", "safe-pdf", "png", "parts", "facts"]]
    """What to make of each file."""
    ocr: NotRequired[str]
    """Read pictures too, in this language."""
    dpi: NotRequired[int]
    """Pixels an inch."""
    passwords: NotRequired[list[str]]
    """Tried for what is encrypted; each container gets all."""
    timeoutMs: NotRequired[int]
    """Of one file; absent: grows with its size."""
    memoryBytes: NotRequired[int]
    """As timeoutMs."""
    diskBytes: NotRequired[int]
    """As timeoutMs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedFile:
    file: str
    """Its name, as it was sent."""
    folder: str
    """The folder of its results."""
    verdict: Literal["done", "not possible", "refused"] | str | None
    """Null: it waits or runs."""
    reason: str | None
    """encrypted, damaged, unknown type, bomb, timed out, …."""
    words: str | None
    type: str | None
    files: list[str]
    """What is in the folder, at most 100: `path` of conversions.file is FOLDER/FILE."""
    pages: int | None
    notes: list[str]
    duration_ms: float
    memory_bytes_peak: float | None
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ConvertedFile")
        return cls(
            file=d.as_text(o.get("file"), "ConvertedFile.file"),
            folder=d.as_text(o.get("folder"), "ConvertedFile.folder"),
            verdict=d.optional(d.as_text)(o.get("verdict"), "ConvertedFile.verdict"),
            reason=d.optional(d.as_text)(o.get("reason"), "ConvertedFile.reason"),
            words=d.optional(d.as_text)(o.get("words"), "ConvertedFile.words"),
            type=d.optional(d.as_text)(o.get("type"), "ConvertedFile.type"),
            files=d.list_of(d.as_text)(o.get("files"), "ConvertedFile.files"),
            pages=d.optional(d.as_integer)(o.get("pages"), "ConvertedFile.pages"),
            notes=d.list_of(d.as_text)(o.get("notes"), "ConvertedFile.notes"),
            duration_ms=d.as_number(o.get("durationMs"), "ConvertedFile.durationMs"),
            memory_bytes_peak=d.optional(d.as_number)(o.get("memoryBytesPeak"), "ConvertedFile.memoryBytesPeak"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeniedTraffic:
    to: str
    count: int
    reason: str
    detail: str
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "DeniedTraffic")
        return cls(
            to=d.as_text(o.get("to"), "DeniedTraffic.to"),
            count=d.as_integer(o.get("count"), "DeniedTraffic.count"),
            reason=d.as_text(o.get("reason"), "DeniedTraffic.reason"),
            detail=d.as_text(o.get("detail"), "DeniedTraffic.detail"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierAttempt:
    attempt: int
    status: str
    run: str | None
    exit_code: int | None
    error: RunError | None
    stderr_line: str | None
    """The last line of its standard error that is not empty."""
    started_at: str | None
    ended_at: str
    """ISO 8601, UTC."""
    duration_ms: float
    machine: str | None = None
    """That ran it; absent: the process that owned the fleet."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "EarlierAttempt")
        return cls(
            attempt=d.as_integer(o.get("attempt"), "EarlierAttempt.attempt"),
            status=d.as_text(o.get("status"), "EarlierAttempt.status"),
            run=d.optional(d.as_text)(o.get("run"), "EarlierAttempt.run"),
            machine=d.optional(d.as_text)(o.get("machine"), "EarlierAttempt.machine"),
            exit_code=d.optional(d.as_integer)(o.get("exitCode"), "EarlierAttempt.exitCode"),
            error=d.optional(RunError.read)(o.get("error"), "EarlierAttempt.error"),
            stderr_line=d.optional(d.as_text)(o.get("stderrLine"), "EarlierAttempt.stderrLine"),
            started_at=d.optional(d.as_text)(o.get("startedAt"), "EarlierAttempt.startedAt"),
            ended_at=d.as_text(o.get("endedAt"), "EarlierAttempt.endedAt"),
            duration_ms=d.as_number(o.get("durationMs"), "EarlierAttempt.durationMs"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforcement:
    driver: str
    requested: dict[str, str]
    actual: dict[str, str]
    socket_memory: str | None = None
    kernel: str | None = None
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Enforcement")
        return cls(
            driver=d.as_text(o.get("driver"), "Enforcement.driver"),
            requested=d.map_of(d.as_text)(o.get("requested"), "Enforcement.requested"),
            actual=d.map_of(d.as_text)(o.get("actual"), "Enforcement.actual"),
            socket_memory=d.optional(d.as_text)(o.get("socketMemory"), "Enforcement.socketMemory"),
            kernel=d.optional(d.as_text)(o.get("kernel"), "Enforcement.kernel"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedRun:
    worker: str
    path: list[str]
    """From the worker that is run to this one."""
    sandbox: ExplainedSandbox | None
    narrowings: list[Narrowing]
    plan: dict[str, Any] | None
    refused: list[dict[str, Any]] | None
    """Null: it would run."""
    agent: dict[str, Any] | None
    notes: list[str]
    calls: list[ExplainedRun]
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ExplainedRun")
        return cls(
            worker=d.as_text(o.get("worker"), "ExplainedRun.worker"),
            path=d.list_of(d.as_text)(o.get("path"), "ExplainedRun.path"),
            sandbox=d.optional(ExplainedSandbox.read)(o.get("sandbox"), "ExplainedRun.sandbox"),
            narrowings=d.list_of(Narrowing.read)(o.get("narrowings"), "ExplainedRun.narrowings"),
            plan=d.optional(d.as_object)(o.get("plan"), "ExplainedRun.plan"),
            refused=d.optional(d.list_of(d.as_object))(o.get("refused"), "ExplainedRun.refused"),
            agent=d.optional(d.as_object)(o.get("agent"), "ExplainedRun.agent"),
            notes=d.list_of(d.as_text)(o.get("notes"), "ExplainedRun.notes"),
            calls=d.list_of(ExplainedRun.read)(o.get("calls"), "ExplainedRun.calls"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedSandbox:
    mounts: list[Mount]
    network: Any
    """true: every host; false: none."""
    limits: dict[str, float]
    policy: dict[str, Any]
    withheld: list[Mount] | None = None
    """Shown only after an approval."""
    secrets: list[str] | None = None
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ExplainedSandbox")
        return cls(
            mounts=d.list_of(Mount.read)(o.get("mounts"), "ExplainedSandbox.mounts"),
            withheld=d.optional(d.list_of(Mount.read))(o.get("withheld"), "ExplainedSandbox.withheld"),
            network=d.as_any(o.get("network"), "ExplainedSandbox.network"),
            secrets=d.optional(d.list_of(d.as_text))(o.get("secrets"), "ExplainedSandbox.secrets"),
            limits=d.map_of(d.as_number)(o.get("limits"), "ExplainedSandbox.limits"),
            policy=d.as_object(o.get("policy"), "ExplainedSandbox.policy"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    worker: str
    tree: ExplainedRun
    notes: list[str]
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Explanation")
        return cls(
            worker=d.as_text(o.get("worker"), "Explanation.worker"),
            tree=ExplainedRun.read(o.get("tree"), "Explanation.tree"),
            notes=d.list_of(d.as_text)(o.get("notes"), "Explanation.notes"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingPath:
    path: list[str]
    """From the worker that is run to the one that would not run."""
    outcome: Literal["refused", "denied"] | str
    violations: list[Violation]
    message: str
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "FailingPath")
        return cls(
            path=d.list_of(d.as_text)(o.get("path"), "FailingPath.path"),
            outcome=d.as_text(o.get("outcome"), "FailingPath.outcome"),
            violations=d.list_of(Violation.read)(o.get("violations"), "FailingPath.violations"),
            message=d.as_text(o.get("message"), "FailingPath.message"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    count: int
    status: str
    code: str
    text: str
    """The last words of one of them."""
    example: str
    """The key of that one."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "FailureGroup")
        return cls(
            count=d.as_integer(o.get("count"), "FailureGroup.count"),
            status=d.as_text(o.get("status"), "FailureGroup.status"),
            code=d.as_text(o.get("code"), "FailureGroup.code"),
            text=d.as_text(o.get("text"), "FailureGroup.text"),
            example=d.as_text(o.get("example"), "FailureGroup.example"),
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
class Finding:
    what: str
    state: Literal["ok", "warning", "missing"] | str
    detail: str
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Finding")
        return cls(
            what=d.as_text(o.get("what"), "Finding.what"),
            state=d.as_text(o.get("state"), "Finding.state"),
            detail=d.as_text(o.get("detail"), "Finding.detail"),
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
    spec: FleetSpec
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
            spec=FleetSpec.read(o.get("spec"), "Fleet.spec"),
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
    pending: int
    """Their changes wait for a decision."""
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
            pending=d.as_integer(o.get("pending"), "FleetCounts.pending"),
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
    machine: str | None
    """The machine that runs it, or ran its last attempt; null: the process that owns the fleet, or none."""
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
            machine=d.optional(d.as_text)(o.get("machine"), "FleetItem.machine"),
            ended_at=d.optional(d.as_text)(o.get("endedAt"), "FleetItem.endedAt"),
            duration_ms=d.optional(d.as_number)(o.get("durationMs"), "FleetItem.durationMs"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetList:
    fleets: list[Fleet]
    more: bool
    """Whether there are more, which this list leaves out: ask with a filter, or a larger limit."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "FleetList")
        return cls(
            fleets=d.list_of(Fleet.read)(o.get("fleets"), "FleetList.fleets"),
            more=d.as_boolean(o.get("more"), "FleetList.more"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetMachine:
    id: str
    """Differs for machines with the same name."""
    name: str
    """The name that it was started with."""
    labels: list[str]
    slots: int
    """Items that it runs at the same time."""
    version: str
    seen_at: str
    """When its lease was last renewed."""
    recent_rate: float | None
    """Items that it delivered per second in the last minute; null if none."""
    running: int
    """Items of this fleet that it runs."""
    running_in_all: int
    """Items of all fleets that it runs."""
    why: str | None
    """Why it takes none of this fleet; null: it does, or has not checked yet."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "FleetMachine")
        return cls(
            id=d.as_text(o.get("id"), "FleetMachine.id"),
            name=d.as_text(o.get("name"), "FleetMachine.name"),
            labels=d.list_of(d.as_text)(o.get("labels"), "FleetMachine.labels"),
            slots=d.as_integer(o.get("slots"), "FleetMachine.slots"),
            version=d.as_text(o.get("version"), "FleetMachine.version"),
            seen_at=d.as_text(o.get("seenAt"), "FleetMachine.seenAt"),
            recent_rate=d.optional(d.as_number)(o.get("recentRate"), "FleetMachine.recentRate"),
            running=d.as_integer(o.get("running"), "FleetMachine.running"),
            running_in_all=d.as_integer(o.get("runningInAll"), "FleetMachine.runningInAll"),
            why=d.optional(d.as_text)(o.get("why"), "FleetMachine.why"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


class FleetManifest(TypedDict, total=False):
    text: Required[str]
    """Its paths are below the project's folder."""
    format: NotRequired[Literal["jsonl", "csv", "paths"]]
    """Absent: the suffix of the name says it."""
    name: Required[str]
    """For errors."""


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
    over: NotRequired[str]
    """In place of items: one run for each file below the project's folder that matches."""
    manifest: NotRequired[FleetManifest]
    """In place of items: one run for each line."""
    template: NotRequired[FleetTemplate]
    concurrency: NotRequired[Literal["auto"] | int]
    """Items that the service itself runs at once; 0 leaves all to machines."""
    reuse: NotRequired[Literal["fresh", "scrubbed"]]
    retries: NotRequired[int]
    maxFailures: NotRequired[int | None]
    timeoutMs: NotRequired[int | None]
    cache: NotRequired[bool]
    allowEmpty: NotRequired[bool]
    """That there is no item is no error."""
    policy: NotRequired[str]
    """A policy in place of the project's; needs the role admin."""
    machines: NotRequired[bool | MachineNeeds]
    """Which other machines may run items (corral work): true for all of them, or their labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSpec:
    version: Literal[1]
    worker: str
    source: str
    """Where its items come from, for people."""
    policy: str | None
    concurrency: Any
    reuse: str
    retries: int
    max_failures: int | None
    timeout_ms: int | None
    cache: bool
    machines: dict[str, Any] | None = None
    """Which other machines may run its items; null: none."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "FleetSpec")
        return cls(
            version=d.as_any(o.get("version"), "FleetSpec.version"),
            worker=d.as_text(o.get("worker"), "FleetSpec.worker"),
            source=d.as_text(o.get("source"), "FleetSpec.source"),
            policy=d.optional(d.as_text)(o.get("policy"), "FleetSpec.policy"),
            concurrency=d.as_any(o.get("concurrency"), "FleetSpec.concurrency"),
            reuse=d.as_text(o.get("reuse"), "FleetSpec.reuse"),
            retries=d.as_integer(o.get("retries"), "FleetSpec.retries"),
            max_failures=d.optional(d.as_integer)(o.get("maxFailures"), "FleetSpec.maxFailures"),
            timeout_ms=d.optional(d.as_integer)(o.get("timeoutMs"), "FleetSpec.timeoutMs"),
            cache=d.as_boolean(o.get("cache"), "FleetSpec.cache"),
            machines=d.optional(d.as_object)(o.get("machines"), "FleetSpec.machines"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    id: str
    project: str
    """A name of /v1/projects."""
    run: str
    """The id of a run."""
    root: str
    """The root of its tree of runs."""
    worker: str
    through: list[str]
    granted_at: str
    """ISO 8601, UTC."""
    scope: str
    directory: str | None = None
    """What was granted, as the worker knows it."""
    mode: Literal["read", "write"] | str | None = None
    """Of a directory."""
    to: str | None = None
    """The host and port that were granted."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Grant")
        return cls(
            id=d.as_text(o.get("id"), "Grant.id"),
            project=d.as_text(o.get("project"), "Grant.project"),
            run=d.as_text(o.get("run"), "Grant.run"),
            root=d.as_text(o.get("root"), "Grant.root"),
            worker=d.as_text(o.get("worker"), "Grant.worker"),
            through=d.list_of(d.as_text)(o.get("through"), "Grant.through"),
            granted_at=d.as_text(o.get("grantedAt"), "Grant.grantedAt"),
            scope=d.as_text(o.get("scope"), "Grant.scope"),
            directory=d.optional(d.as_text)(o.get("directory"), "Grant.directory"),
            mode=d.optional(d.as_text)(o.get("mode"), "Grant.mode"),
            to=d.optional(d.as_text)(o.get("to"), "Grant.to"),
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
class HostExecuted:
    path: str
    why: str
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "HostExecuted")
        return cls(
            path=d.as_text(o.get("path"), "HostExecuted.path"),
            why=d.as_text(o.get("why"), "HostExecuted.why"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageList:
    images: list[ListedImage]
    problems: list[str]
    """Mistakes in the project's files: only Corral's own images are listed."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ImageList")
        return cls(
            images=d.list_of(ListedImage.read)(o.get("images"), "ImageList.images"),
            problems=d.list_of(d.as_text)(o.get("problems"), "ImageList.problems"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemPage:
    items: list[FleetItem]
    next: int | None
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ItemPage")
        return cls(
            items=d.list_of(FleetItem.read)(o.get("items"), "ItemPage.items"),
            next=d.optional(d.as_integer)(o.get("next"), "ItemPage.next"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemResult:
    index: int
    key: str
    attempt: int
    status: str
    run: str | None
    exit_code: int | None
    error: RunError | None
    stderr_line: str | None
    """The last line of its standard error that is not empty."""
    started_at: str | None
    ended_at: str
    """ISO 8601, UTC."""
    duration_ms: float
    output: Any
    fields: dict[str, Any]
    """Its own: those of its line, or `path`."""
    memory_bytes_peak: float | None
    machine: str | None = None
    """That ran it; absent: the process that owned the fleet."""
    changeset: dict[str, Any] | None = None
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ItemResult")
        return cls(
            index=d.as_integer(o.get("index"), "ItemResult.index"),
            key=d.as_text(o.get("key"), "ItemResult.key"),
            attempt=d.as_integer(o.get("attempt"), "ItemResult.attempt"),
            status=d.as_text(o.get("status"), "ItemResult.status"),
            run=d.optional(d.as_text)(o.get("run"), "ItemResult.run"),
            machine=d.optional(d.as_text)(o.get("machine"), "ItemResult.machine"),
            exit_code=d.optional(d.as_integer)(o.get("exitCode"), "ItemResult.exitCode"),
            error=d.optional(RunError.read)(o.get("error"), "ItemResult.error"),
            stderr_line=d.optional(d.as_text)(o.get("stderrLine"), "ItemResult.stderrLine"),
            started_at=d.optional(d.as_text)(o.get("startedAt"), "ItemResult.startedAt"),
            ended_at=d.as_text(o.get("endedAt"), "ItemResult.endedAt"),
            duration_ms=d.as_number(o.get("durationMs"), "ItemResult.durationMs"),
            output=d.as_any(o.get("output"), "ItemResult.output"),
            fields=d.map_of(d.as_any)(o.get("fields"), "ItemResult.fields"),
            memory_bytes_peak=d.optional(d.as_number)(o.get("memoryBytesPeak"), "ItemResult.memoryBytesPeak"),
            changeset=d.optional(d.as_object)(o.get("changeset"), "ItemResult.changeset"),
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
    fleet: str | None
    """The fleet of whose item this is."""
    item: str | None
    """The key of the item."""
    why: str | None
    """Why the first of its changes waits, or was not applied."""
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
            fleet=d.optional(d.as_text)(o.get("fleet"), "ListedChangeset.fleet"),
            item=d.optional(d.as_text)(o.get("item"), "ListedChangeset.item"),
            why=d.optional(d.as_text)(o.get("why"), "ListedChangeset.why"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedImage:
    name: str
    kind: str
    state: Literal["present", "stale", "missing"] | str
    tag: str | None
    id: str | None
    size_bytes: float | None
    used_by: list[str]
    """Workers."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ListedImage")
        return cls(
            name=d.as_text(o.get("name"), "ListedImage.name"),
            kind=d.as_text(o.get("kind"), "ListedImage.kind"),
            state=d.as_text(o.get("state"), "ListedImage.state"),
            tag=d.optional(d.as_text)(o.get("tag"), "ListedImage.tag"),
            id=d.optional(d.as_text)(o.get("id"), "ListedImage.id"),
            size_bytes=d.optional(d.as_number)(o.get("sizeBytes"), "ListedImage.sizeBytes"),
            used_by=d.list_of(d.as_text)(o.get("usedBy"), "ListedImage.usedBy"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    ok: bool
    findings: list[Finding]
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Machine")
        return cls(
            ok=d.as_boolean(o.get("ok"), "Machine.ok"),
            findings=d.list_of(Finding.read)(o.get("findings"), "Machine.findings"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFleet:
    fleet: str
    """The id of a fleet."""
    project: str
    """A name of /v1/projects."""
    running: int
    why: str | None
    """Why it takes none of this fleet; null: it does, or has not checked yet."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "MachineFleet")
        return cls(
            fleet=d.as_text(o.get("fleet"), "MachineFleet.fleet"),
            project=d.as_text(o.get("project"), "MachineFleet.project"),
            running=d.as_integer(o.get("running"), "MachineFleet.running"),
            why=d.optional(d.as_text)(o.get("why"), "MachineFleet.why"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineList:
    machines: list[QueueMachine]
    more: bool
    """Whether there are more: a list has at most 1000 machines, and there is no second part of it."""
    has_queue: bool
    """Whether one of the projects has a queue that machines can reach."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "MachineList")
        return cls(
            machines=d.list_of(QueueMachine.read)(o.get("machines"), "MachineList.machines"),
            more=d.as_boolean(o.get("more"), "MachineList.more"),
            has_queue=d.as_boolean(o.get("hasQueue"), "MachineList.hasQueue"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


class MachineNeeds(TypedDict, total=False):
    needs: NotRequired[list[str]]
    """Labels that a machine must have."""
    priority: NotRequired[int]
    """Items of fleets with a higher one are claimed first."""
    weight: NotRequired[int]
    """The share beside fleets of the same priority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    path: str
    mode: Literal["ro", "rw"] | str
    suffixes: list[str] | None = None
    """Only such files; absent: all."""
    max_file_bytes: float | None = None
    approval: dict[str, Any] | None = None
    stage: Literal[True] | None = None
    """What is written waits as a changeset."""
    discard: Literal[True] | None = None
    """What is written is dropped."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Mount")
        return cls(
            path=d.as_text(o.get("path"), "Mount.path"),
            mode=d.as_text(o.get("mode"), "Mount.mode"),
            suffixes=d.optional(d.list_of(d.as_text))(o.get("suffixes"), "Mount.suffixes"),
            max_file_bytes=d.optional(d.as_number)(o.get("maxFileBytes"), "Mount.maxFileBytes"),
            approval=d.optional(d.as_object)(o.get("approval"), "Mount.approval"),
            stage=d.optional(d.as_any)(o.get("stage"), "Mount.stage"),
            discard=d.optional(d.as_any)(o.get("discard"), "Mount.discard"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    by: str
    kind: str
    path: str | None = None
    limit: str | None = None
    from_: Any = None
    to: Any = None
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Narrowing")
        return cls(
            by=d.as_text(o.get("by"), "Narrowing.by"),
            kind=d.as_text(o.get("kind"), "Narrowing.kind"),
            path=d.optional(d.as_text)(o.get("path"), "Narrowing.path"),
            limit=d.optional(d.as_text)(o.get("limit"), "Narrowing.limit"),
            from_=d.as_any(o.get("from"), "Narrowing.from"),
            to=d.as_any(o.get("to"), "Narrowing.to"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkReport:
    allowed: list[AllowedTraffic]
    denied: list[DeniedTraffic]
    unlisted: int
    """Further hosts that are in none of the lists."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "NetworkReport")
        return cls(
            allowed=d.list_of(AllowedTraffic.read)(o.get("allowed"), "NetworkReport.allowed"),
            denied=d.list_of(DeniedTraffic.read)(o.get("denied"), "NetworkReport.denied"),
            unlisted=d.as_integer(o.get("unlisted"), "NetworkReport.unlisted"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortHeader:
    name: str
    value: str
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "PortHeader")
        return cls(
            name=d.as_text(o.get("name"), "PortHeader.name"),
            value=d.as_text(o.get("value"), "PortHeader.value"),
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
class Project:
    name: str
    """A name of /v1/projects."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Project")
        return cls(
            name=d.as_text(o.get("name"), "Project.name"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectList:
    projects: list[Project]
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ProjectList")
        return cls(
            projects=d.list_of(Project.read)(o.get("projects"), "ProjectList.projects"),
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
    through: list[str] | None = None
    """The workers from the root run down to this one."""
    directory: str | None = None
    """Of a grant: what is requested."""
    wider: list[str] | None = None
    """Of a grant: what may be granted instead, the nearest first."""
    to: str | None = None
    """Of a grant: the host and port that are requested."""
    reaches: list[str] | None = None
    """Of such a grant: what it reaches already."""
    callee: str | None = None
    input: str | None = None
    """Of a call: its input as JSON, cut if it is long."""
    command: str | None = None
    line: str | None = None
    """The command line alone, if `command` shows more than it."""
    machine: str | None = None
    """The run is on this machine of the queue, which has written the texts."""
    host_executed: list[HostExecuted] | None = None
    """What programs of the host would act on by themselves: to be shown first. Only `once` covers it."""
    why: str | None = None
    """Often written by the worker, so it may be false."""
    diff: str | None = None
    """A unified diff."""
    lasting_only: bool | None = None
    """Nothing is done with the answer now."""
    runs: int | None = None
    """How many runs wait for the answer, which is for all of them."""
    waiting: list[WaitingRun] | None = None
    """Those runs, `run` first, each with the root of its tree."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Question")
        return cls(
            run=d.as_text(o.get("run"), "Question.run"),
            root=d.as_text(o.get("root"), "Question.root"),
            worker=d.as_text(o.get("worker"), "Question.worker"),
            through=d.optional(d.list_of(d.as_text))(o.get("through"), "Question.through"),
            operations=d.list_of(d.as_text)(o.get("operations"), "Question.operations"),
            paths=d.list_of(d.as_text)(o.get("paths"), "Question.paths"),
            directory=d.optional(d.as_text)(o.get("directory"), "Question.directory"),
            wider=d.optional(d.list_of(d.as_text))(o.get("wider"), "Question.wider"),
            to=d.optional(d.as_text)(o.get("to"), "Question.to"),
            reaches=d.optional(d.list_of(d.as_text))(o.get("reaches"), "Question.reaches"),
            callee=d.optional(d.as_text)(o.get("callee"), "Question.callee"),
            input=d.optional(d.as_text)(o.get("input"), "Question.input"),
            command=d.optional(d.as_text)(o.get("command"), "Question.command"),
            line=d.optional(d.as_text)(o.get("line"), "Question.line"),
            machine=d.optional(d.as_text)(o.get("machine"), "Question.machine"),
            host_executed=d.optional(d.list_of(HostExecuted.read))(o.get("hostExecuted"), "Question.hostExecuted"),
            why=d.optional(d.as_text)(o.get("why"), "Question.why"),
            diff=d.optional(d.as_text)(o.get("diff"), "Question.diff"),
            lasting_only=d.optional(d.as_boolean)(o.get("lastingOnly"), "Question.lastingOnly"),
            runs=d.optional(d.as_integer)(o.get("runs"), "Question.runs"),
            waiting=d.optional(d.list_of(WaitingRun.read))(o.get("waiting"), "Question.waiting"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMachine:
    id: str
    """Differs for machines with the same name."""
    name: str
    """The name that it was started with."""
    labels: list[str]
    slots: int
    """Items that it runs at the same time."""
    version: str
    seen_at: str
    """When its lease was last renewed."""
    recent_rate: float | None
    """Items that it delivered per second in the last minute; null if none."""
    joined_at: str
    """ISO 8601, UTC."""
    running: int
    """Items that it runs, those of projects that the service does not have included."""
    fleets: list[MachineFleet]
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "QueueMachine")
        return cls(
            id=d.as_text(o.get("id"), "QueueMachine.id"),
            name=d.as_text(o.get("name"), "QueueMachine.name"),
            labels=d.list_of(d.as_text)(o.get("labels"), "QueueMachine.labels"),
            slots=d.as_integer(o.get("slots"), "QueueMachine.slots"),
            version=d.as_text(o.get("version"), "QueueMachine.version"),
            seen_at=d.as_text(o.get("seenAt"), "QueueMachine.seenAt"),
            recent_rate=d.optional(d.as_number)(o.get("recentRate"), "QueueMachine.recentRate"),
            joined_at=d.as_text(o.get("joinedAt"), "QueueMachine.joinedAt"),
            running=d.as_integer(o.get("running"), "QueueMachine.running"),
            fleets=d.list_of(MachineFleet.read)(o.get("fleets"), "QueueMachine.fleets"),
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
class ResultUsage:
    cpu_ms: float | None
    memory_bytes_peak: float | None
    out_of_memory: bool | None
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ResultUsage")
        return cls(
            cpu_ms=d.optional(d.as_number)(o.get("cpuMs"), "ResultUsage.cpuMs"),
            memory_bytes_peak=d.optional(d.as_number)(o.get("memoryBytesPeak"), "ResultUsage.memoryBytesPeak"),
            out_of_memory=d.optional(d.as_boolean)(o.get("outOfMemory"), "ResultUsage.outOfMemory"),
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
    mode: str
    """The project's approval mode."""
    waiting: int
    """How many changes can still be applied."""
    total: dict[str, Any]
    parts: list[ReviewedPart]
    """What a user decides on: first what programs of the host would execute."""
    unfit: list[dict[str, Any]]
    """What cannot be applied now."""
    not_shown: int
    """Changes beyond the limit of a diff."""
    commits: list[str]
    """Commits of git that the worker made and that wait, in words, which are the worker's own."""
    look_alike: list[str]
    """What of its names may be taken for something else, in words."""
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
            mode=d.as_text(o.get("mode"), "Review.mode"),
            waiting=d.as_integer(o.get("waiting"), "Review.waiting"),
            total=d.as_object(o.get("total"), "Review.total"),
            parts=d.list_of(ReviewedPart.read)(o.get("parts"), "Review.parts"),
            unfit=d.list_of(d.as_object)(o.get("unfit"), "Review.unfit"),
            not_shown=d.as_integer(o.get("notShown"), "Review.notShown"),
            commits=d.list_of(d.as_text)(o.get("commits"), "Review.commits"),
            look_alike=d.list_of(d.as_text)(o.get("lookAlike"), "Review.lookAlike"),
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
    host_executed: str | None
    """Why a program of the host would act on it by itself: then `apply` has to name its path."""
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
            host_executed=d.optional(d.as_text)(o.get("hostExecuted"), "ReviewedPart.hostExecuted"),
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
    policy: str | None
    image: str | None
    model: str | None
    """Of an agent."""
    limits: dict[str, float] | None
    held: Held | None
    """What it could see and reach, in the paths of its container; null before it started."""
    usage: Usage | None
    truncated: bool
    """It printed more than its limit."""
    changeset: ReportedChangeset | None
    """What it wrote in staged mounts; null if nothing."""
    network: dict[str, Any] | None
    """What it did on its network, as in its result; null without an allow list."""
    agent: dict[str, Any] | None
    """What an agent used, as in its result."""
    input: dict[str, Any] | None
    arguments: list[str]
    continues: str | None
    attachments: list[Attached]
    stdout: StreamSize
    stderr: StreamSize
    left_out: int
    """Calls that are not in the record."""
    call_count: int
    """Calls of the whole tree that are in the record."""
    has_events: bool
    """The service has its events, and its result if it has ended: it started the run."""
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
            policy=d.optional(d.as_text)(o.get("policy"), "Run.policy"),
            image=d.optional(d.as_text)(o.get("image"), "Run.image"),
            model=d.optional(d.as_text)(o.get("model"), "Run.model"),
            limits=d.optional(d.map_of(d.as_number))(o.get("limits"), "Run.limits"),
            held=d.optional(Held.read)(o.get("held"), "Run.held"),
            usage=d.optional(Usage.read)(o.get("usage"), "Run.usage"),
            truncated=d.as_boolean(o.get("truncated"), "Run.truncated"),
            changeset=d.optional(ReportedChangeset.read)(o.get("changeset"), "Run.changeset"),
            network=d.optional(d.map_of(d.as_any))(o.get("network"), "Run.network"),
            agent=d.optional(d.map_of(d.as_any))(o.get("agent"), "Run.agent"),
            input=d.optional(d.as_object)(o.get("input"), "Run.input"),
            arguments=d.list_of(d.as_text)(o.get("arguments"), "Run.arguments"),
            continues=d.optional(d.as_text)(o.get("continues"), "Run.continues"),
            attachments=d.list_of(Attached.read)(o.get("attachments"), "Run.attachments"),
            stdout=StreamSize.read(o.get("stdout"), "Run.stdout"),
            stderr=StreamSize.read(o.get("stderr"), "Run.stderr"),
            left_out=d.as_integer(o.get("leftOut"), "Run.leftOut"),
            call_count=d.as_integer(o.get("callCount"), "Run.callCount"),
            has_events=d.as_boolean(o.get("hasEvents"), "Run.hasEvents"),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunList:
    runs: list[Run]
    unreadable: int
    more: bool
    """Whether there are more, which this list leaves out: ask with a filter, or a larger limit."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "RunList")
        return cls(
            runs=d.list_of(Run.read)(o.get("runs"), "RunList.runs"),
            unreadable=d.as_integer(o.get("unreadable"), "RunList.unreadable"),
            more=d.as_boolean(o.get("more"), "RunList.more"),
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
    signal: str | None
    output: Any
    stdout: str
    stderr: str
    truncated: bool
    violations: list[Violation]
    changes: list[SettledChange]
    changeset: ReportedChangeset | None
    """What it wrote in staged mounts; null if nothing."""
    duration_ms: float
    usage: ResultUsage
    enforcement: Enforcement | None
    """What its plan requested, and what its container reported before it began."""
    error: RunError | None
    calls: list[RunResult]
    network: NetworkReport | None = None
    agent: AgentReport | None = None
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
            signal=d.optional(d.as_text)(o.get("signal"), "RunResult.signal"),
            output=d.as_any(o.get("output"), "RunResult.output"),
            stdout=d.as_text(o.get("stdout"), "RunResult.stdout"),
            stderr=d.as_text(o.get("stderr"), "RunResult.stderr"),
            truncated=d.as_boolean(o.get("truncated"), "RunResult.truncated"),
            violations=d.list_of(Violation.read)(o.get("violations"), "RunResult.violations"),
            changes=d.list_of(SettledChange.read)(o.get("changes"), "RunResult.changes"),
            changeset=d.optional(ReportedChangeset.read)(o.get("changeset"), "RunResult.changeset"),
            duration_ms=d.as_number(o.get("durationMs"), "RunResult.durationMs"),
            usage=ResultUsage.read(o.get("usage"), "RunResult.usage"),
            network=d.optional(NetworkReport.read)(o.get("network"), "RunResult.network"),
            agent=d.optional(AgentReport.read)(o.get("agent"), "RunResult.agent"),
            enforcement=d.optional(Enforcement.read)(o.get("enforcement"), "RunResult.enforcement"),
            error=d.optional(RunError.read)(o.get("error"), "RunResult.error"),
            calls=d.list_of(RunResult.read)(o.get("calls"), "RunResult.calls"),
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
    name: str | None
    """What it was called when it was opened."""
    worker: str
    tools: list[str]
    opened_at: str
    """ISO 8601, UTC."""
    is_paused: bool
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Session")
        return cls(
            id=d.as_text(o.get("id"), "Session.id"),
            project=d.as_text(o.get("project"), "Session.project"),
            name=d.optional(d.as_text)(o.get("name"), "Session.name"),
            worker=d.as_text(o.get("worker"), "Session.worker"),
            tools=d.list_of(d.as_text)(o.get("tools"), "Session.tools"),
            opened_at=d.as_text(o.get("openedAt"), "Session.openedAt"),
            is_paused=d.as_boolean(o.get("isPaused"), "Session.isPaused"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCommand:
    id: str
    command: str
    started_at: str
    """ISO 8601, UTC."""
    is_background: bool
    is_terminal: bool
    status: Any
    exit_code: int | None
    signal: str | None
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "SessionCommand")
        return cls(
            id=d.as_text(o.get("id"), "SessionCommand.id"),
            command=d.as_text(o.get("command"), "SessionCommand.command"),
            started_at=d.as_text(o.get("startedAt"), "SessionCommand.startedAt"),
            is_background=d.as_boolean(o.get("isBackground"), "SessionCommand.isBackground"),
            is_terminal=d.as_boolean(o.get("isTerminal"), "SessionCommand.isTerminal"),
            status=d.as_any(o.get("status"), "SessionCommand.status"),
            exit_code=d.optional(d.as_integer)(o.get("exitCode"), "SessionCommand.exitCode"),
            signal=d.optional(d.as_text)(o.get("signal"), "SessionCommand.signal"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPort:
    port: int
    name: str | None
    """That the worker gives it."""
    is_allowed: bool
    """The worker declares it, or who opened the session named it."""
    is_listening: bool
    address: str | None
    """At which it is shown to browsers of this machine; null: it is not."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "SessionPort")
        return cls(
            port=d.as_integer(o.get("port"), "SessionPort.port"),
            name=d.optional(d.as_text)(o.get("name"), "SessionPort.name"),
            is_allowed=d.as_boolean(o.get("isAllowed"), "SessionPort.isAllowed"),
            is_listening=d.as_boolean(o.get("isListening"), "SessionPort.isListening"),
            address=d.optional(d.as_text)(o.get("address"), "SessionPort.address"),
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
    kind: Literal["create", "modify", "delete"] | str
    type: Literal["file", "directory", "link"] | str
    bytes: int | None
    """Of a file that was written."""
    outcome: str
    reason: str | None
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "SettledChange")
        return cls(
            path=d.as_text(o.get("path"), "SettledChange.path"),
            kind=d.as_text(o.get("kind"), "SettledChange.kind"),
            type=d.as_text(o.get("type"), "SettledChange.type"),
            bytes=d.optional(d.as_integer)(o.get("bytes"), "SettledChange.bytes"),
            outcome=d.as_text(o.get("outcome"), "SettledChange.outcome"),
            reason=d.optional(d.as_text)(o.get("reason"), "SettledChange.reason"),
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
class ShownCi:
    id: str
    """The id of a run of jobs."""
    project: str
    """A name of /v1/projects."""
    state: Literal["running", "succeeded", "failed", "stopped"] | str
    """stopped: it ended before its jobs did."""
    base: str | None
    """The commit whose ci.yaml counts; null: not found yet."""
    head: str | None
    """The commit that is tested; null: not found yet."""
    is_changed: bool
    """The head has another ci.yaml, which is not obeyed."""
    started_at: str
    """ISO 8601, UTC."""
    ended_at: str | None
    why: str | None
    """Why it has stopped."""
    steps: list[CiStep]
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ShownCi")
        return cls(
            id=d.as_text(o.get("id"), "ShownCi.id"),
            project=d.as_text(o.get("project"), "ShownCi.project"),
            state=d.as_text(o.get("state"), "ShownCi.state"),
            base=d.optional(d.as_text)(o.get("base"), "ShownCi.base"),
            head=d.optional(d.as_text)(o.get("head"), "ShownCi.head"),
            is_changed=d.as_boolean(o.get("isChanged"), "ShownCi.isChanged"),
            started_at=d.as_text(o.get("startedAt"), "ShownCi.startedAt"),
            ended_at=d.optional(d.as_text)(o.get("endedAt"), "ShownCi.endedAt"),
            why=d.optional(d.as_text)(o.get("why"), "ShownCi.why"),
            steps=d.list_of(CiStep.read)(o.get("steps"), "ShownCi.steps"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownConversion:
    id: str
    """The id of a conversion."""
    to: Literal["text", "pdf", "safe-pdf", "png", "parts", "facts"] | str
    state: Literal["running", "done", "stopped"] | str
    """stopped: it ended before its files were converted."""
    started_at: str
    """ISO 8601, UTC."""
    ended_at: str | None
    why: str | None
    """Why it has stopped."""
    counts: ConversionCounts
    """Of its files; what is in none of the others waits or runs."""
    files: list[ConvertedFile]
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ShownConversion")
        return cls(
            id=d.as_text(o.get("id"), "ShownConversion.id"),
            to=d.as_text(o.get("to"), "ShownConversion.to"),
            state=d.as_text(o.get("state"), "ShownConversion.state"),
            started_at=d.as_text(o.get("startedAt"), "ShownConversion.startedAt"),
            ended_at=d.optional(d.as_text)(o.get("endedAt"), "ShownConversion.endedAt"),
            why=d.optional(d.as_text)(o.get("why"), "ShownConversion.why"),
            counts=ConversionCounts.read(o.get("counts"), "ShownConversion.counts"),
            files=d.list_of(ConvertedFile.read)(o.get("files"), "ShownConversion.files"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFleet:
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
    spec: FleetSpec
    summary: list[dict[str, Any]]
    failures: list[FailureGroup]
    """Failed items by their last words; the 20 largest groups."""
    slowest: list[ItemResult]
    """The ten that took longest."""
    last_failures: list[ItemResult]
    """The last ten that failed, the newest first."""
    recent_rate: float | None
    """Items per second, of late; null: it does not run, or none ended."""
    left_ms: float | None
    machines: list[FleetMachine]
    """Those of the queue; empty if no other machine may run its items, or if it has ended."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ShownFleet")
        return cls(
            id=d.as_text(o.get("id"), "ShownFleet.id"),
            project=d.as_text(o.get("project"), "ShownFleet.project"),
            state=d.as_text(o.get("state"), "ShownFleet.state"),
            created_at=d.as_text(o.get("createdAt"), "ShownFleet.createdAt"),
            ended_at=d.optional(d.as_text)(o.get("endedAt"), "ShownFleet.endedAt"),
            why=d.optional(d.as_text)(o.get("why"), "ShownFleet.why"),
            counts=FleetCounts.read(o.get("counts"), "ShownFleet.counts"),
            spec=FleetSpec.read(o.get("spec"), "ShownFleet.spec"),
            summary=d.list_of(d.as_object)(o.get("summary"), "ShownFleet.summary"),
            failures=d.list_of(FailureGroup.read)(o.get("failures"), "ShownFleet.failures"),
            slowest=d.list_of(ItemResult.read)(o.get("slowest"), "ShownFleet.slowest"),
            last_failures=d.list_of(ItemResult.read)(o.get("lastFailures"), "ShownFleet.lastFailures"),
            recent_rate=d.optional(d.as_number)(o.get("recentRate"), "ShownFleet.recentRate"),
            left_ms=d.optional(d.as_number)(o.get("leftMs"), "ShownFleet.leftMs"),
            machines=d.list_of(FleetMachine.read)(o.get("machines"), "ShownFleet.machines"),
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
    state: Literal["queued", "running", "done"] | str
    machine: str | None
    """The machine that runs it, or ran its last attempt; null: the process that owns the fleet, or none."""
    request: dict[str, Any]
    result: ItemResult | None
    streams: dict[str, Any]
    attempts: list[EarlierAttempt]
    """Before it was retried in place; the newest first."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ShownItem")
        return cls(
            fleet=d.as_text(o.get("fleet"), "ShownItem.fleet"),
            key=d.as_text(o.get("key"), "ShownItem.key"),
            state=d.as_text(o.get("state"), "ShownItem.state"),
            machine=d.optional(d.as_text)(o.get("machine"), "ShownItem.machine"),
            request=d.as_object(o.get("request"), "ShownItem.request"),
            result=d.optional(ItemResult.read)(o.get("result"), "ShownItem.result"),
            streams=d.as_object(o.get("streams"), "ShownItem.streams"),
            attempts=d.list_of(EarlierAttempt.read)(o.get("attempts"), "ShownItem.attempts"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPort:
    port: int
    url: str
    """For a browser on the machine of the service: it works once, within two minutes."""
    address: str
    """For programs on the machine of the service, with the header."""
    header: PortHeader
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ShownPort")
        return cls(
            port=d.as_integer(o.get("port"), "ShownPort.port"),
            url=d.as_text(o.get("url"), "ShownPort.url"),
            address=d.as_text(o.get("address"), "ShownPort.address"),
            header=PortHeader.read(o.get("header"), "ShownPort.header"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    id: str
    name: str | None
    """null: it goes with its session."""
    worker: str
    session: str
    """The id of a run."""
    session_name: str | None
    created_at: str
    """ISO 8601, UTC."""
    is_last: bool
    """Made at the end of its session, which can go on from it."""
    has: list[str]
    """The directories that are in it."""
    lacks: list[str]
    """Directories that the session wrote directly, which are not."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Snapshot")
        return cls(
            id=d.as_text(o.get("id"), "Snapshot.id"),
            name=d.optional(d.as_text)(o.get("name"), "Snapshot.name"),
            worker=d.as_text(o.get("worker"), "Snapshot.worker"),
            session=d.as_text(o.get("session"), "Snapshot.session"),
            session_name=d.optional(d.as_text)(o.get("sessionName"), "Snapshot.sessionName"),
            created_at=d.as_text(o.get("createdAt"), "Snapshot.createdAt"),
            is_last=d.as_boolean(o.get("isLast"), "Snapshot.isLast"),
            has=d.list_of(d.as_text)(o.get("has"), "Snapshot.has"),
            lacks=d.list_of(d.as_text)(o.get("lacks"), "Snapshot.lacks"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotDifference:
    path: str
    kind: Literal["create", "modify", "delete"] | str
    type: Literal["file", "directory", "link", "other"] | str
    bytes: int | None
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "SnapshotDifference")
        return cls(
            path=d.as_text(o.get("path"), "SnapshotDifference.path"),
            kind=d.as_text(o.get("kind"), "SnapshotDifference.kind"),
            type=d.as_text(o.get("type"), "SnapshotDifference.type"),
            bytes=d.optional(d.as_integer)(o.get("bytes"), "SnapshotDifference.bytes"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedCi:
    ci: str
    """The id of a run of jobs."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "StartedCi")
        return cls(
            ci=d.as_text(o.get("ci"), "StartedCi.ci"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedConversion:
    conversion: str
    """The id of a conversion."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "StartedConversion")
        return cls(
            conversion=d.as_text(o.get("conversion"), "StartedConversion.conversion"),
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
    after: str
    """The `Last-Event-ID` after which its events begin."""
    notes: list[str]
    """What may not have been meant: files that were left out, items that are all the same."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "StartedFleet")
        return cls(
            fleet=d.as_text(o.get("fleet"), "StartedFleet.fleet"),
            project=d.as_text(o.get("project"), "StartedFleet.project"),
            after=d.as_text(o.get("after"), "StartedFleet.after"),
            notes=d.list_of(d.as_text)(o.get("notes"), "StartedFleet.notes"),
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
class Stored:
    kinds: list[StoredKind]
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Stored")
        return cls(
            kinds=d.list_of(StoredKind.read)(o.get("kinds"), "Stored.kinds"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKind:
    name: str
    unit: str
    one: str
    rule: str
    """What `corral gc` removes of it, and what removes the rest."""
    measured: dict[str, Any] | None
    trouble: str | None
    """Why it was not measured."""
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "StoredKind")
        return cls(
            name=d.as_text(o.get("name"), "StoredKind.name"),
            unit=d.as_text(o.get("unit"), "StoredKind.unit"),
            one=d.as_text(o.get("one"), "StoredKind.one"),
            rule=d.as_text(o.get("rule"), "StoredKind.rule"),
            measured=d.optional(d.as_object)(o.get("measured"), "StoredKind.measured"),
            trouble=d.optional(d.as_text)(o.get("trouble"), "StoredKind.trouble"),
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
    image: dict[str, Any] | None = None
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "ToolAnswer")
        return cls(
            ok=d.as_any(o.get("ok"), "ToolAnswer.ok"),
            text=d.as_text(o.get("text"), "ToolAnswer.text"),
            data=d.map_of(d.as_any)(o.get("data"), "ToolAnswer.data"),
            image=d.optional(d.as_object)(o.get("image"), "ToolAnswer.image"),
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
class Uploaded:
    kind: Literal["file", "folder"] | str
    bytes: int
    files: int
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Uploaded")
        return cls(
            kind=d.as_text(o.get("kind"), "Uploaded.kind"),
            bytes=d.as_integer(o.get("bytes"), "Uploaded.bytes"),
            files=d.as_integer(o.get("files"), "Uploaded.files"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    cpu_ms: float | None
    memory_bytes_peak: float | None
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "Usage")
        return cls(
            cpu_ms=d.optional(d.as_number)(o.get("cpuMs"), "Usage.cpuMs"),
            memory_bytes_peak=d.optional(d.as_number)(o.get("memoryBytesPeak"), "Usage.memoryBytesPeak"),
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
class WaitingRun:
    run: str
    root: str
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "WaitingRun")
        return cls(
            run=d.as_text(o.get("run"), "WaitingRun.run"),
            root=d.as_text(o.get("root"), "WaitingRun.root"),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerList:
    workers: list[Worker]
    problems: list[str]
    raw: dict[str, Any] = field(repr=False, compare=False)
    """Everything that the service sent, also what this client does not know."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        o = d.as_object(value, "WorkerList")
        return cls(
            workers=d.list_of(Worker.read)(o.get("workers"), "WorkerList.workers"),
            problems=d.list_of(d.as_text)(o.get("problems"), "WorkerList.problems"),
            raw=o,
        )

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        return cls.from_json(value)

