"""
The tools of a session for the OpenAI Agents SDK (`openai-agents`), which is imported when a function of this module is called.

    async with corral.session("desk") as session:
        agent = Agent(name="desk", tools=await session_tools(session))
        await Runner.run(agent, "Summarize /docs")
"""

from __future__ import annotations

import json
from typing import Any, Collection

from ._async.sessions import AsyncSession
from ._tool_text import answer_text
from .models import SessionTool


async def session_tools(session: AsyncSession, *, only: Collection[str] | None = None) -> list[Any]:
    """
    An `agents.FunctionTool` for each tool of an open session, or for `only` some. A refusal goes back to the model, which can
    do something else; it is never an end of the agent's run.
    """
    from agents import FunctionTool

    return [
        FunctionTool(
            name=tool.name,
            description=tool.description,
            params_json_schema=tool.input_schema,
            on_invoke_tool=_invoke(session, tool),
            # Fields may be absent, which the strict form of a schema does not have.
            strict_json_schema=False,
        )
        for tool in await session.tools()
        if only is None or tool.name in only
    ]


def _invoke(session: AsyncSession, tool: SessionTool) -> Any:
    async def invoke(_: Any, arguments: str) -> str:
        try:
            given = json.loads(arguments or "{}")
        except ValueError:
            return "[BAD_INPUT] the arguments are not JSON"
        if not isinstance(given, dict):
            return "[BAD_INPUT] the arguments are not an object"
        return await answer_text(session, tool.name, given)

    return invoke
