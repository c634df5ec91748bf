"""
The tools of a session for agents of pydantic-ai, which is imported when a function of this module is called.

    async with corral.session("desk") as session:
        agent = Agent("anthropic:claude-sonnet-5", tools=await session_tools(session))
        await agent.run("Summarize /docs")
"""

from __future__ import annotations

from typing import Any, Collection

from ._async.sessions import AsyncSession
from ._tool_text import answer_text
from .models import SessionTool


async def session_tools(session: AsyncSession, *, only: Collection[str] | None = None) -> list[Any]:
    """
    A `pydantic_ai.Tool` for each tool of an open session, or for `only` some. A refusal goes back to the model, which can do
    something else; it is never an end of the agent's run.
    """
    from pydantic_ai import Tool

    return [
        Tool.from_schema(
            _function(session, tool),
            name=tool.name,
            description=tool.description,
            json_schema=tool.input_schema,
            takes_ctx=False,
        )
        for tool in await session.tools()
        if only is None or tool.name in only
    ]


def _function(session: AsyncSession, tool: SessionTool) -> Any:
    async def use(**given: Any) -> str:
        return await answer_text(session, tool.name, given)

    use.__name__ = tool.name
    return use
