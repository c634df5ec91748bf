"""What a model reads of a tool's answer."""

from __future__ import annotations

from typing import Any

from ._async.sessions import AsyncSession
from .errors import ServiceError
from .models import ToolAnswer


async def answer_text(session: AsyncSession, name: str, given: dict[str, Any]) -> str:
    """The answer of a tool as a model reads it. An error of the connection or of the service is raised."""
    try:
        answer = await session.answer(name, given)
    except ServiceError as error:
        if error.status not in (400, 413):
            raise
        # What the model sent is too large or of a wrong form.
        return f"[{error.code}] {error.message}"
    if isinstance(answer, ToolAnswer):
        return answer.text
    return f"[{answer.code}] {answer.message}"
