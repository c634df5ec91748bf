"""Questions that wait for a decision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Literal

from .._request import json_body, path_of, query_of
from .._transport.aio import Background, Flag, Maybe, called
from ..errors import Conflict
from ..results import Answer, Listed, Question, answer_of

if TYPE_CHECKING:
    from .client import AsyncCorral

OnQuestion = Callable[[Question], Maybe[object]]

_POLL_SECONDS = 0.3
_MAX_SEEN = 10_000
_MAX_PAGES = 100
# What a function of the user still does after the end of what it answers, such as waiting for a person, is not waited for.
_LAST_SECONDS = 1.0


class AsyncApprovals:
    """`corral.approvals`"""

    def __init__(self, corral: AsyncCorral) -> None:
        self._corral = corral

    async def list(
        self,
        state: Literal["waiting", "decided"] = "waiting",
        *,
        limit: int = 100,
        cursor: str | None = None,
        project: str | None = None,
    ) -> Listed[Question]:
        """
        Those that wait, the oldest first; or those that were decided, the newest first. `more` says whether there are others: they
        begin at `cursor=` its `next`.
        """
        query = query_of(state=state, limit=limit, cursor=cursor, project=self._corral.project_or(project))
        answer = await self._corral.wire.ask("GET", path_of("approvals") + query)
        return Listed.from_json(answer, "approvals", Question.from_json)

    async def show(self, id: str) -> Question:
        return Question.from_json(await self._corral.wire.ask("GET", path_of("approvals", id)))

    async def decide(self, question: Question, answer: Answer, *, directory: str | None = None) -> Question:
        """Decides on a question as it was shown. @raises Conflict if another was faster, or it is another question now"""
        body: dict[str, Any] = {"answer": answer, "digest": question.digest}
        if directory is not None:
            body["directory"] = directory
        target = path_of("approvals", question.id, "decision")
        return Question.from_json(await self._corral.wire.ask("POST", target, json_body(body)))

    async def questions(
        self, *, root: str | None = None, project: str | None = None, until: Flag | None = None
    ) -> AsyncIterator[Question]:
        """
        Each question once, as it comes, without an end; again if other runs wait for it now, because an answer is for all of them.
        `root`: only those that this run or a run below it waits for.
        """
        over = Flag() if until is None else until
        seen: dict[str, None] = {}
        while not over.is_set():
            cursor: str | None = None
            for _ in range(_MAX_PAGES):
                page = await self.list(project=project, cursor=cursor)
                for question in page:
                    if question.digest in seen or (root is not None and root not in question.roots):
                        continue
                    seen[question.digest] = None
                    yield question
                cursor = page.next
                if cursor is None:
                    break
            while len(seen) > _MAX_SEEN:
                seen.pop(next(iter(seen)))
            await over.wait(_POLL_SECONDS)


class AsyncAnswering:
    """
    Answers questions while its block runs. If the function fails, the question is answered with no, and the error is
    raised at the end of the block.
    """

    def __init__(
        self,
        corral: AsyncCorral,
        on_question: OnQuestion,
        *,
        root: str | None = None,
        project: str | None = None,
    ) -> None:
        self._corral = corral
        self._on_question = on_question
        self._root = root
        self._project = project
        self._over = Flag()
        self._failure: BaseException | None = None
        self._watch: Background | None = None

    async def __aenter__(self) -> AsyncAnswering:
        self._watch = Background(self._answer_all, "corral-questions")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._over.set()
        if self._watch is not None:
            await self._watch.join(_LAST_SECONDS)
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raises what the function of the user raised."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def _answer_all(self) -> None:
        questions = self._corral.approvals.questions(root=self._root, project=self._project, until=self._over)
        try:
            async for question in questions:
                await self._answer(question)
                if self._failure is not None:
                    return
        except Exception as error:
            self._failure = error

    async def _answer(self, question: Question) -> None:
        try:
            answer = answer_of(question, await called(self._on_question, question))
        except Exception as error:
            self._failure, answer = error, "no"
        if answer is None:
            return
        try:
            await self._corral.approvals.decide(question, answer)
        except Conflict:
            # Another was faster, nothing waits for it any more, or other runs wait for it too: then it comes again.
            pass
