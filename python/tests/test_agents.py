"""
The tools of a session for frameworks of agents, each with a model that is a script. Where a framework is not installed, which is
so in `npm test`, its part that is used stands in: the call as its documentation has it.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import json
import sys
import types
import unittest
from typing import Any, Awaitable, Callable
from unittest import mock

from corral import Question, openai_agents, pydantic_ai

from .support import async_client, running

HAS_PYDANTIC_AI = importlib.util.find_spec("pydantic_ai") is not None
HAS_AGENTS = importlib.util.find_spec("agents") is not None

SCRIPT: list[tuple[str, dict[str, Any]]] = [
    ("read_file", {"path": "/docs/a.txt"}),
    ("read_file", {"path": "/etc/passwd"}),
    ("exec", {"command": "tr a-z A-Z < /docs/a.txt; exit 3"}),
    ("write_file", {"path": 7}),
]
EXPECTED = ["a document\n", "[PATH_NOT_IN_SANDBOX]", "A DOCUMENT\n", "[BAD_INPUT]"]


class Agents(unittest.TestCase):
    def test_pydantic_ai(self) -> None:
        self.check(pydantic_ai_answers if HAS_PYDANTIC_AI else pydantic_ai_stand_in)

    def test_the_openai_agents_sdk(self) -> None:
        self.check(openai_answers if HAS_AGENTS else openai_stand_in)

    def test_neither_is_needed_to_import_the_client(self) -> None:
        self.assertNotIn("pydantic_ai", [name for name in sys.modules if not HAS_PYDANTIC_AI])
        with self.assertRaises(ImportError), mock.patch.dict(sys.modules, {"agents": None}):
            running(lambda: openai_agents.session_tools(mock.Mock(tools=mock.AsyncMock(return_value=[]))))

    def check(self, answers: Callable[[Any], Awaitable[list[str]]]) -> None:
        async def body() -> list[str]:
            async with async_client().session("desk", on_question=_yes) as session:
                return await answers(session)

        found = running(body)
        self.assertEqual(len(found), len(EXPECTED))
        for text, expected in zip(found, EXPECTED, strict=True):
            self.assertTrue(text.startswith(expected), f"{expected}: {text}")
        self.assertIn("exit code 3", found[2])


async def _yes(_: Question) -> bool:
    return True


async def pydantic_ai_answers(session: Any) -> list[str]:
    """By a real agent."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    left = list(SCRIPT)
    found: list[str] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        assert {tool.name for tool in info.function_tools} >= {"read_file", "exec"}
        found.extend(str(part.content) for part in messages[-1].parts if isinstance(part, ToolReturnPart))
        return ModelResponse(parts=[ToolCallPart(*left.pop(0)) if left else TextPart("done")])

    agent = Agent(FunctionModel(model), tools=await pydantic_ai.session_tools(session))
    result = await agent.run("go")
    assert result.output == "done"
    return found


async def pydantic_ai_stand_in(session: Any) -> list[str]:
    module = types.ModuleType("pydantic_ai")

    class Tool:
        @classmethod
        def from_schema(
            cls,
            function: Callable[..., Any],
            name: str,
            description: str | None,
            json_schema: dict[str, Any],
            takes_ctx: bool = False,
            sequential: bool = False,
        ) -> Any:
            assert description and json_schema["type"] == "object" and inspect.iscoroutinefunction(function)
            return types.SimpleNamespace(name=name, function=function, takes_ctx=takes_ctx)

    setattr(module, "Tool", Tool)
    with mock.patch.dict(sys.modules, {"pydantic_ai": module}):
        tools = {tool.name: tool for tool in await pydantic_ai.session_tools(session)}
        only = await pydantic_ai.session_tools(session, only=["exec"])
    assert [tool.name for tool in only] == ["exec"]
    # By keywords alone, and without a context.
    return [await tools[name].function(**given) for name, given in SCRIPT]


async def openai_answers(session: Any) -> list[str]:
    """By a real runner."""
    import agents
    from agents.items import ModelResponse
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    left = list(SCRIPT)

    class Script(agents.Model):  # type: ignore[misc]
        async def get_response(self, *args: Any, **more: Any) -> ModelResponse:
            output: list[Any]
            if left:
                name, given = left.pop(0)
                call: Any = {"call_id": f"call{len(left)}", "name": name, "arguments": json.dumps(given)}
                output = [ResponseFunctionToolCall(type="function_call", **call)]
            else:
                text = ResponseOutputText(text="done", type="output_text", annotations=[])
                output = [ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")]
            return ModelResponse(output=output, usage=agents.Usage(), response_id=None)

        def stream_response(self, *args: Any, **more: Any) -> Any:
            raise NotImplementedError

    agents.set_tracing_disabled(True)
    agent: Any = agents.Agent(name="desk", model=Script(), tools=await openai_agents.session_tools(session))
    result = await agents.Runner.run(agent, "go")
    assert result.final_output == "done"
    return [str(item.output) for item in result.new_items if item.type == "tool_call_output_item"]


async def openai_stand_in(session: Any) -> list[str]:
    module = types.ModuleType("agents")

    @dataclasses.dataclass
    class FunctionTool:
        name: str
        description: str
        params_json_schema: dict[str, Any]
        on_invoke_tool: Callable[[Any, str], Awaitable[Any]]
        strict_json_schema: bool = True

    setattr(module, "FunctionTool", FunctionTool)
    with mock.patch.dict(sys.modules, {"agents": module}):
        tools = {tool.name: tool for tool in await openai_agents.session_tools(session)}
    assert not tools["exec"].strict_json_schema and tools["exec"].params_json_schema["required"] == ["command"]
    for wrong in ["{", "[]"]:
        assert (await tools["exec"].on_invoke_tool(None, wrong)).startswith("[BAD_INPUT]")
    return [await tools[name].on_invoke_tool(None, json.dumps(given)) for name, given in SCRIPT]


if __name__ == "__main__":
    unittest.main()
