from __future__ import annotations

import asyncio
import tempfile
import unittest
from pathlib import Path
from typing import Any

from corral import AsyncCorral, NotFound, Question, Refused, TimedOut, ToolRefused, Unreachable

from .support import Cutter, async_client, client, env, port_of_service, running


class Async(unittest.TestCase):
    def test_runs_at_once_with_the_names_of_the_blocking_client(self) -> None:
        async def body() -> None:
            async with async_client() as corral:
                results = await asyncio.gather(*(corral.run("echo", input=n) for n in range(5)))
                self.assertEqual([one.stdout for one in results], [f"{n}\n" for n in range(5)])
                sent = await corral.run("attached", attachments=[("ä.txt", b"x" * 300_000 + b"\n")])
                self.assertEqual(len(sent.stdout), len("ä.txt\n") + 300_001)
                with self.assertRaises(NotFound):
                    await corral.run("nobody")
                with self.assertRaises(Refused):
                    await corral.run("hungry")

        running(body)

    def test_events_over_broken_connections(self) -> None:
        async def body() -> None:
            run = await async_client().start("ticks")
            with Cutter(port_of_service(), [300, -1, 5, 450, -333, 700, 40], only=b"/events") as proxy:
                through = AsyncCorral(f"http://127.0.0.1:{proxy.port}", token=env("CORRAL_TEST_TOKEN"))
                ids = [event.id async for event in through.attach(run.id).events()]
                self.assertGreaterEqual(proxy.made, 5)
            self.assertEqual(ids, [event.id async for event in run.events()])
            printed = b"".join([piece async for piece in run.output()])
            self.assertEqual(printed, b"".join(b"tick %d\n" % n for n in range(20)))

        running(body)

    def test_a_fleet_a_session_and_a_download(self) -> None:
        async def body() -> None:
            corral = async_client()
            items = [{"id": str(n), "n": n, "fail": n == 3} for n in range(12)]
            how: dict[str, Any] = {"input": {"n": "{n}", "fail": "{fail}"}, "cache": False, "reuse": "scrubbed", "policy": "batch"}
            results = [one async for one in corral.map("picky", items, **how)]
            self.assertEqual(sorted(one.index for one in results if one.ok), [n for n in range(12) if n != 3])
            async with corral.session("desk", on_question=_yes) as session:
                self.assertEqual(await session.read_file("/docs/a.txt"), "a document\n")
                await session.write_file("/out/async.txt", "x")
                self.assertEqual((await session.exec("cat /out/async.txt")).stdout, "x")
                with self.assertRaises(ToolRefused):
                    await session.read_file("/etc/passwd")
            assert session.settled is not None
            self.assertEqual(session.settled.changes[0].outcome, "applied")
            id = (await corral.run("writer")).changeset_id
            assert id is not None
            with tempfile.TemporaryDirectory() as folder:
                self.assertEqual(len(await corral.changesets.download(id, Path(folder, "new"))), 2)
            await corral.changesets.discard(await corral.changesets.show(id))

        running(body)

    def test_a_callback_may_be_async(self) -> None:
        async def body() -> None:
            texts: list[str] = []

            async def output(text: str) -> None:
                await asyncio.sleep(0)
                texts.append(text)

            result = await async_client().run("proposes", arguments=["test_async_1"], on_question=_yes, on_output=output)
            self.assertEqual([one.outcome for one in result.changes], ["applied"])

        running(body)

    def test_a_task_that_is_cancelled_stops_the_run_at_the_service(self) -> None:
        async def body() -> str:
            corral = async_client()
            began: asyncio.Future[str] = asyncio.get_running_loop().create_future()

            def event(one: object) -> None:
                if not began.done():
                    began.set_result(str(getattr(one, "run")))

            task = asyncio.ensure_future(corral.run("slow", on_event=event, on_question=_yes))
            id = await began
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            with self.assertRaises(TimedOut):
                await corral.run("slow", timeout=0.7)
            return id

        id = running(body)
        self.assertEqual(client().attach(id).wait(timeout=20).status, "cancelled")

    def test_a_unix_socket_and_a_port_where_nothing_listens(self) -> None:
        async def body() -> None:
            corral = AsyncCorral(f"unix:{env('CORRAL_TEST_SOCKET')}")
            self.assertEqual((await corral.run("echo", input=1)).stdout, "1\n")
            with self.assertRaises(Unreachable):
                await AsyncCorral("http://127.0.0.1:1", patience=0.2).health()

        running(body)


async def _yes(_: Question) -> bool:
    return True


if __name__ == "__main__":
    unittest.main()
