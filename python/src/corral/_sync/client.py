# Made by generate.py from the same file of corral/_async; not to be changed by hand.
"""The client of a service."""

from __future__ import annotations

import os
from typing import Any, Iterator, Iterable, Literal, Mapping, Sequence, cast

from .. import models
from .._address import parse_address, parse_token
from .._request import Attachments, form_body, json_body, path_of, query_of
from ..results import ItemResult, Listed, Result
from .approvals import Answering, Approvals, OnQuestion
from .changesets import Changesets
from .conversions import Conversions, Target
from .fleets import Fleet, OnProgress
from .runs import Run, OnEvent, OnOutput
from .sessions import Session
from .wire import Wire

Item = str | Mapping[str, Any]

# All items are read and checked before the answer.
_LOAD_SECONDS = 600.0


class Corral:
    """
    A Corral service. `url`: `http://HOST:PORT`, `https://HOST` or `unix:/PATH`; absent: `CORRAL_URL`, else
    `http://127.0.0.1:7420`. `token`: absent: `CORRAL_TOKEN`; a Unix socket needs none. `project`: for everything where none is
    named. `timeout`: how many seconds an answer may take. `patience`: for how many seconds a service that cannot be reached is
    asked again, where this changes nothing.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        project: str | None = None,
        timeout: float = 30.0,
        patience: float = 30.0,
    ) -> None:
        self.wire = Wire(parse_address(url), parse_token(token), timeout, patience)
        self.project = project
        self.approvals = Approvals(self)
        self.changesets = Changesets(self)
        self.conversions = Conversions(self)

    def __repr__(self) -> str:
        return f"Corral({str(self.wire.address)!r})"

    def __enter__(self) -> Corral:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open between two requests; runs continue."""

    def project_or(self, project: str | None) -> str | None:
        return self.project if project is None else project

    # The service

    def health(self) -> str:
        """`ok` or `stopping`."""
        return str((self.wire.ask("GET", path_of("health"))).get("status"))

    def projects(self) -> list[str]:
        """The names of its projects."""
        return [str(one["name"]) for one in (self.wire.ask("GET", path_of("projects"))).get("projects", [])]

    def workers(self, project: str | None = None) -> list[models.Worker]:
        target = path_of("projects", self._one_project(project), "workers")
        return [models.Worker.from_json(one) for one in (self.wire.ask("GET", target)).get("workers", [])]

    def explain(self, worker: str, *, project: str | None = None) -> dict[str, Any]:
        """What a worker would get, and what took away the rest. Runs nothing."""
        return self.wire.ask("GET", path_of("projects", self._one_project(project), "workers", worker))

    def _one_project(self, project: str | None) -> str:
        named = self.project_or(project)
        if named is not None:
            return named
        names = self.projects()
        if len(names) != 1:
            raise ValueError(f"name a `project`: the service has {', '.join(names) or 'none'}")
        return names[0]

    # Runs

    def start(
        self,
        worker: str,
        *,
        input: Any = None,
        arguments: Sequence[str] = (),
        attachments: Attachments = (),
        continues: str | None = None,
        project: str | None = None,
        policy: str | None = None,
    ) -> Run:
        """
        Starts a run and answers when it has begun. `input` is sent as JSON. `attachments`: paths, pairs of a name and bytes or
        a path, or a mapping from names.
        """
        order: models.RunOrder = {"worker": worker}
        if input is not None:
            order["input"] = input
        if arguments:
            order["arguments"] = list(arguments)
        if continues is not None:
            order["continues"] = continues
        if (named := self.project_or(project)) is not None:
            order["project"] = named
        if policy is not None:
            order["policy"] = policy
        body = form_body(order, attachments) if attachments else json_body(order)
        answer = models.StartedRun.from_json(self.wire.ask("POST", path_of("runs"), body))
        return Run(self, answer.run, answer.project)

    def run(
        self,
        worker: str,
        *,
        input: Any = None,
        arguments: Sequence[str] = (),
        attachments: Attachments = (),
        continues: str | None = None,
        project: str | None = None,
        policy: str | None = None,
        timeout: float | None = None,
        check: bool = False,
        on_event: OnEvent | None = None,
        on_output: OnOutput | None = None,
        on_question: OnQuestion | None = None,
    ) -> Result:
        """
        Runs a worker and answers with its result. If this is interrupted, or takes longer than `timeout` seconds, the run is
        stopped at the service. A run that is refused raises `Refused`; one that failed is a result, and with `check` raises
        `RunFailed`.
        """
        run = self.start(
            worker,
            input=input,
            arguments=arguments,
            attachments=attachments,
            continues=continues,
            project=project,
            policy=policy,
        )
        try:
            return run.wait(
                timeout=timeout, check=check, on_event=on_event, on_output=on_output, on_question=on_question
            )
        except BaseException:
            if not run.is_over:
                run.stop_quietly()
            raise

    def attach(self, id: str) -> Run:
        """A run that was started before, perhaps by another process."""
        return Run(self, id)

    def runs(
        self,
        *,
        worker: str | None = None,
        status: str | None = None,
        limit: int = 50,
        project: str | None = None,
    ) -> Listed[models.Run]:
        """The history, the newest first, also of runs that the service did not start. `more` says whether there are older ones."""
        query = query_of(worker=worker, status=status, limit=limit, project=self.project_or(project))
        answer = self.wire.ask("GET", path_of("runs") + query)
        return Listed.from_json(answer, "runs", models.Run.from_json)

    # Fleets

    def start_map(
        self,
        worker: str | None = None,
        items: Iterable[Item] | None = None,
        *,
        fleet: str | None = None,
        input: Any = None,
        attach: Sequence[str] = (),
        key: str | None = None,
        allow_read: Sequence[str] | None = None,
        allow_write: Sequence[str] | None = None,
        concurrency: int | Literal["auto"] | None = None,
        reuse: Literal["fresh", "scrubbed"] | None = None,
        retries: int | None = None,
        max_failures: int | None = None,
        timeout: float | None = None,
        cache: bool | None = None,
        project: str | None = None,
        policy: str | None = None,
        machines: bool | models.MachineNeeds | None = None,
    ) -> Fleet:
        """
        Runs a worker over items, each in a sandbox of its own, and answers when all are read and checked. An item is a mapping
        of fields, or the path of a file below the project's folder. `input`, `attach`, `key`, `allow_read` and `allow_write`
        are templates, in which `{name}` is the field of the item. `timeout`: seconds for each item. `fleet`: the name of a file
        in `fleets/` that declares all of it. `machines`: which other machines may run items, such as `{"needs": ["gpu"]}`.
        """
        given: list[Any] | None = None
        order: models.FleetOrder = {}
        if worker is not None:
            order["worker"] = worker
        if items is not None:
            given = [one if isinstance(one, str) else dict(one) for one in items]
            order["items"] = given
        if fleet is not None:
            order["fleet"] = fleet
        template: models.FleetTemplate = {}
        if input is not None:
            template["input"] = input
        if attach:
            template["attach"] = list(attach)
        if key is not None:
            template["key"] = key
        if allow_read is not None:
            template["allowRead"] = list(allow_read)
        if allow_write is not None:
            template["allowWrite"] = list(allow_write)
        if template:
            order["template"] = template
        more = {
            "concurrency": concurrency,
            "reuse": reuse,
            "retries": retries,
            "maxFailures": max_failures,
            "timeoutMs": None if timeout is None else max(1, round(timeout * 1000)),
            "cache": cache,
            "project": self.project_or(project),
            "policy": policy,
            "machines": machines,
        }
        order = cast(models.FleetOrder, {**order, **{name: one for name, one in more.items() if one is not None}})
        answer = self.wire.ask("POST", path_of("fleets"), json_body(order), timeout=_LOAD_SECONDS)
        return Fleet(self, models.StartedFleet.from_json(answer).fleet, given)

    def map(
        self,
        worker: str,
        items: Iterable[Item],
        *,
        outputs: bool = True,
        on_progress: OnProgress | None = None,
        **how: Any,
    ) -> Iterator[ItemResult]:
        """
        The result of each item as it ends, failures too; `how` is what `start_map` takes. If the loop is left early, the items
        that wait are cancelled. The fleet's id is in each result, for `attach_fleet`.
        """
        fleet = self.start_map(worker, items, **how)
        try:
            for result in fleet.results(outputs=outputs, on_progress=on_progress):
                yield result
        finally:
            if not fleet.is_over:
                fleet.cancel_quietly()

    def attach_fleet(self, id: str, *, cursor: int = 0) -> Fleet:
        """A fleet that was started before. `cursor`: that of the fleet as another process saw it; results before it are left out."""
        return Fleet(self, id, cursor=cursor)

    def fleets(self, *, limit: int = 50, project: str | None = None) -> Listed[models.Fleet]:
        """The newest first. `more` says whether there are older ones."""
        query = query_of(limit=limit, project=self.project_or(project))
        answer = self.wire.ask("GET", path_of("fleets") + query)
        return Listed.from_json(answer, "fleets", models.Fleet.from_json)

    def machines(self, *, project: str | None = None) -> Listed[models.QueueMachine]:
        """Those that take part in the queue of the project, or of all projects: what each runs, and how fast."""
        answer = self.wire.ask("GET", path_of("machines") + query_of(project=self.project_or(project)))
        return Listed.from_json(answer, "machines", models.QueueMachine.from_json)

    # Conversions

    def convert(
        self,
        files: Attachments,
        to: Target,
        into: str | os.PathLike[str],
        **how: Any,
    ) -> models.ShownConversion:
        """
        Converts files, each in a container of its own, and writes the results into the folder `into`, which is made or is empty.
        What became of each is in `files` of the answer; `how` is what `conversions.start` takes. The service keeps nothing of it.
        """
        id = self.conversions.start(files, to, **how)
        try:
            shown = self.conversions.wait(id)
            self.conversions.download(id, into)
            return shown
        finally:
            self.conversions.remove(id)

    # Sessions

    def session(
        self,
        worker: str,
        *,
        project: str | None = None,
        policy: str | None = None,
        snapshot: str | None = None,
        name: str | None = None,
        pause_after: float | None = None,
        end_after: float | None = None,
        on_question: OnQuestion | None = None,
    ) -> Session:
        """
        The sandbox of a worker, for a `with` block: it is opened at its beginning and ends with it. `snapshot`: it goes on from
        this, or from the last one of a session that has ended, by its id. `name`: what to call it; no other open session has this
        name. `pause_after`, `end_after`: seconds without a call or a command, until it is paused and until it ends.
        """
        order: dict[str, Any] = {"worker": worker}
        if name is not None:
            order["name"] = name
        for key, seconds in (("pauseAfterMs", pause_after), ("endAfterMs", end_after)):
            if seconds is not None:
                order[key] = round(seconds * 1000)
        if (named := self.project_or(project)) is not None:
            order["project"] = named
        if policy is not None:
            order["policy"] = policy
        if snapshot is not None:
            order["from"] = snapshot
        return Session(self, order, on_question)

    def attach_session(self, id: str, *, on_question: OnQuestion | None = None) -> Session:
        """A session that is open already. At the end of a `with` block it ends too."""
        answer = self.wire.ask("GET", path_of("sessions", id))
        return Session(self, {}, on_question).attached(models.Session.from_json(answer))

    def sessions(self) -> list[models.Session]:
        """Those that are open."""
        answer = self.wire.ask("GET", path_of("sessions"))
        return [models.Session.from_json(one) for one in answer.get("sessions", [])]

    # Decisions

    def answering(
        self,
        on_question: OnQuestion,
        *,
        root: str | None = None,
        project: str | None = None,
    ) -> Answering:
        """Answers questions while a `with` block runs, of all runs or of the one with the id `root`."""
        return Answering(self, on_question, root=root, project=project)

    def grants(self) -> list[models.Grant]:
        """What running workers were granted beyond their files."""
        return [models.Grant.from_json(one) for one in (self.wire.ask("GET", path_of("grants"))).get("grants", [])]

    def grant(self, run: str, path: str, *, mode: str = "read") -> models.AddedGrant:
        """Grants a directory to a running worker with `dynamic` that has not asked for it; `mode` is `read` or `write`."""
        answer = self.wire.ask("POST", path_of("runs", run, "grants"), {"path": path, "mode": mode})
        return models.AddedGrant.from_json(answer)

    def revoke(self, grant: str) -> None:
        """Revokes a grant, by its id."""
        self.wire.ask("DELETE", path_of("grants", grant))

    def audit(
        self,
        *,
        run: str | None = None,
        type: str | None = None,
        since: str | None = None,
        project: str | None = None,
    ) -> Iterator[models.AuditRecord]:
        """The audit trail, the newest records first."""
        cursor: int | None = None
        while True:
            query = query_of(
                run=run, type=type, since=since, cursor=cursor, limit=500, project=self.project_or(project)
            )
            page = self.wire.ask("GET", path_of("audit") + query)
            for one in page.get("records", []):
                yield models.AuditRecord.from_json(one)
            following = page.get("next")
            if not isinstance(following, int):
                return
            cursor = following


__all__ = ["Corral"]
