from __future__ import annotations

import asyncio
import os
import tempfile
import time
import unittest
from pathlib import Path

from corral.compat import e2b, swerex
from corral.compat.e2b import AsyncSandbox, Sandbox
from corral.compat.swerex import BashAction, BashInterruptAction, Command, CorralRuntime, CreateBashSessionRequest

from .support import async_client, client, env, running


def where() -> dict[str, str]:
    return {"api_url": env("CORRAL_TEST_URL"), "api_key": env("CORRAL_TEST_TOKEN")}


class E2b(unittest.TestCase):
    def test_commands_have_output_ends_and_handles(self) -> None:
        with Sandbox.create("desk", envs={"A": "one"}, **where()) as sandbox:
            pieces: list[str] = []
            done = sandbox.commands.run("echo $A $B; echo ä >&2", envs={"B": "two"}, on_stdout=pieces.append)
            self.assertEqual((done.stdout, done.stderr, done.exit_code, done.error), ("one two\n", "ä\n", 0, None))
            self.assertEqual("".join(pieces), "one two\n")
            with self.assertRaises(e2b.CommandExitException) as failed:
                sandbox.commands.run("echo no; exit 3", cwd="/tmp")
            self.assertEqual((failed.exception.exit_code, failed.exception.stdout), (3, "no\n"))
            with self.assertRaises(e2b.TimeoutException):
                sandbox.commands.run("sleep 4772", timeout=0.5)
            # Longer than what a model would be shown.
            self.assertEqual(len(sandbox.commands.run("head -c 300000 /dev/zero | tr '\\000' x").stdout), 300_000)

            handle = sandbox.commands.run("while read line; do echo got $line; done", background=True, stdin=True)
            handle.send_stdin("a\n")
            self.assertIn(handle.pid, [one.pid for one in sandbox.commands.list()])
            handle.close_stdin()
            self.assertEqual(sandbox.commands.connect(handle.pid).wait().stdout, "got a\n")
            self.assertFalse(sandbox.commands.kill(handle.pid))
            other = sandbox.commands.run("sleep 4773", background=True, timeout=0)
            self.assertTrue(other.kill())
            with self.assertRaises(e2b.CommandExitException) as killed:
                other.wait()
            self.assertEqual((killed.exception.exit_code, killed.exception.error), (137, "signal: SIGKILL"))

            for ask, name in [
                (lambda: sandbox.commands.run("true", user="root"), "user"),
                (lambda: sandbox.files.read("/docs/a.txt", format="stream"), "stream"),
                (lambda: sandbox.pty, "pty"),
            ]:
                with self.assertRaisesRegex(e2b.NotSupported, name):
                    ask()
            self.assertFalse(hasattr(sandbox, "get_metrics"))

    def test_files_are_those_of_the_worker_and_of_the_container(self) -> None:
        with Sandbox.create("desk", **where()) as sandbox:
            files = sandbox.files
            self.assertEqual(files.read("/docs/a.txt"), "a document\n")
            self.assertEqual([(one.name, one.type, one.size) for one in files.list("/docs")], [("a.txt", e2b.FileType.FILE, 11)])
            content = bytes(range(256))
            for top in ["/tmp", "/out"]:
                self.assertEqual(files.write(f"{top}/e2b/x y/b.bin", content).path, f"{top}/e2b/x y/b.bin")
                self.assertEqual(files.read(f"{top}/e2b/x y/b.bin", format="bytes"), bytearray(content))
                listed = [(one.path, one.type) for one in files.list(f"{top}/e2b", depth=2)]
                below = (f"{top}/e2b/x y/b.bin", e2b.FileType.FILE)
                self.assertEqual(sorted(listed), [(f"{top}/e2b/x y", e2b.FileType.DIR), below])
                self.assertTrue(files.exists(f"{top}/e2b/x y"))
                if top == "/tmp":
                    files.rename("/tmp/e2b/x y/b.bin", "/tmp/e2b/c.bin")
                    self.assertEqual(files.get_info("/tmp/e2b/c.bin").size, 256)
                    self.assertTrue(files.make_dir("/tmp/e2b/d"))
                    files.remove("/tmp/e2b")
                    self.assertFalse(files.exists("/tmp/e2b"))
            for missing in ["/docs/none", "/tmp/none"]:
                with self.assertRaises(e2b.FileNotFoundException):
                    files.read(missing)
                with self.assertRaises(e2b.FileNotFoundException):
                    files.list(missing)
            with self.assertRaises(e2b.SandboxException) as refused:
                files.write("/docs/a.txt", "x")
            self.assertIn("[", str(refused.exception))
            # With nothing changed, its end asks nobody.
            sandbox.commands.run("rm -r /out/e2b")

    def test_what_is_not_supported_is_refused_by_its_name(self) -> None:
        for more in [{"metadata": {"a": "b"}}, {"allow_internet_access": True}, {"domain": "x"}]:
            with self.assertRaisesRegex(e2b.NotSupported, next(iter(more))):
                Sandbox.create("desk", **more, **where())

    def test_a_sandbox_ends(self) -> None:
        sandbox = Sandbox.create("desk", **where())
        other = Sandbox.connect(sandbox.sandbox_id, **where())
        self.assertTrue(other.is_running())
        sandbox.files.write("/out/unasked", "x")
        self.assertTrue(sandbox.kill())
        # No one was asked, and nothing is lost: it waits.
        settled = sandbox._session.settled
        self.assertIsNotNone(settled.changeset)
        self.assertIn("without asking", settled.changes[0].reason)
        self.assertFalse(other.is_running())
        self.assertFalse(other.kill())
        with self.assertRaises(e2b.SandboxNotFoundException):
            other.commands.run("true")
        with self.assertRaises(e2b.AuthenticationException):
            Sandbox.create("desk", api_url=env("CORRAL_TEST_URL"), api_key="corral_" + "0" * 43)
        short = Sandbox.create("desk", timeout=0.2, **where())
        until = time.monotonic() + 60
        while short.is_running():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.1)

    def test_asyncio_has_the_same(self) -> None:
        async def body() -> str:
            async with await AsyncSandbox.create("desk", **where()) as sandbox:
                self.assertEqual(await sandbox.commands.list(), [])
                return (await sandbox.files.list("/docs"))[0].path

        self.assertEqual(running(body), "/docs/a.txt")


class SweRex(unittest.TestCase):
    def test_shells_commands_and_files(self) -> None:
        async def body() -> None:
            async with CorralRuntime(await async_client().session("desk").open()) as runtime:
                with self.assertRaises(swerex.SessionDoesNotExistError):
                    await runtime.run_in_session(BashAction("true"))
                await runtime.create_session(CreateBashSessionRequest())
                await runtime.create_session(CreateBashSessionRequest(session="other"))
                with self.assertRaises(swerex.SessionExistsError):
                    await runtime.create_session(CreateBashSessionRequest())

                async def run(command: str, **how: object) -> swerex.BashObservation:
                    return await runtime.run_in_session(BashAction(command, **how))  # type: ignore[arg-type]

                await asyncio.gather(run("x=42; cd /tmp"), run("x=24", session="other"))
                self.assertEqual((await run("echo $x; pwd; echo err >&2")).output, "42\n/tmp\nerr")
                self.assertEqual((await run("echo $x", session="other")).output, "24")
                # A command cannot take the lines that follow it.
                self.assertEqual((await run("cat; read a; echo 'hello\nworld'\n\n")).output, "hello\nworld")
                self.assertEqual((await run("cat <<E\n$x\nE\n# end")).output, "42")
                self.assertEqual((await run("false", check="silent")).exit_code, 1)
                self.assertEqual((await run("nonesuch", check="ignore")).exit_code, None)
                self.assertEqual((await run("", check="raise")).output, "")
                with self.assertRaisesRegex(swerex.NonZeroExitCodeError, "mine: .*exit code 7"):
                    await run("(exit 7)", error_msg="mine")
                with self.assertRaises(swerex.BashIncorrectSyntaxError) as wrong:
                    await run("echo begun; (a")
                self.assertNotIn("begun\n", wrong.exception.extra_info["bash_stderr"])
                with self.assertRaisesRegex(swerex.NotSupported, "is_interactive_command"):
                    await run("python3", is_interactive_command=True)
                with self.assertRaises(swerex.CommandTimeoutError):
                    await run("echo begun; sleep 4774", timeout=1)
                self.assertEqual((await runtime.run_in_session(BashInterruptAction(timeout=20))).output, "begun")
                self.assertEqual((await run("echo $x")).output, "42")
                with self.assertRaises(swerex.SessionNotInitializedError):
                    await run("exit 3")
                await runtime.create_session(CreateBashSessionRequest(startup_source=["/dev/null"]))
                await runtime.close_session(swerex.CloseBashSessionRequest())
                with self.assertRaises(swerex.SessionDoesNotExistError):
                    await run("true")
                await commands_and_files(runtime)
            self.assertFalse(await runtime.is_alive())

        async def commands_and_files(runtime: CorralRuntime) -> None:
            self.assertTrue(await runtime.is_alive())
            done = await runtime.execute(Command(["echo", "a  b"], env={"A": "1"}, cwd="/tmp"))
            self.assertEqual((done.stdout, done.exit_code), ("a  b\n", 0))
            self.assertEqual((await runtime.execute(Command("echo $A; pwd", shell=True, env={"A": "1"}, cwd="/tmp"))).stdout, "1\n/tmp\n")
            self.assertEqual((await runtime.execute(Command("", shell=True, check=True))).stdout, "")
            with self.assertRaises(swerex.CommandTimeoutError):
                await runtime.execute(Command(["sleep", "4775"], timeout=0.3))
            with self.assertRaises(swerex.NonZeroExitCodeError):
                await runtime.execute(Command("exit 2", shell=True, check=True))
            await runtime.write_file(swerex.WriteFileRequest(path="/tmp/new/a.txt", content="ä\n"))
            self.assertEqual((await runtime.read_file(swerex.ReadFileRequest("/tmp/new/a.txt"))).content, "ä\n")
            with self.assertRaises(FileNotFoundError):
                await runtime.read_file(swerex.ReadFileRequest("/tmp/none"))
            (folder / "below").mkdir()
            (folder / "below" / "f.txt").write_text("content")
            await runtime.upload(swerex.UploadRequest(str(folder), "/tmp/up"))
            self.assertEqual((await runtime.read_file(swerex.ReadFileRequest("/tmp/up/below/f.txt"))).content, "content")
            await runtime.upload(swerex.UploadRequest(str(folder / "below" / "f.txt"), "/tmp/one.txt"))
            self.assertEqual((await runtime.read_file(swerex.ReadFileRequest("/tmp/one.txt"))).content, "content")

        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            running(body)
        self.assertEqual([name for name in os.listdir(tempfile.gettempdir()) if name.startswith("corral-") and name.endswith(".tar")], [])


class Followed(unittest.TestCase):
    def test_output_is_given_as_it_comes_and_a_function_that_fails_ends_the_command(self) -> None:
        with client().session("desk") as session:
            with self.assertRaises(KeyError):
                session.exec("echo one; sleep 4776", on_stdout=lambda _: {}["mine"])
            until = time.monotonic() + 60
            while any(one.about.status == "running" for one in session.commands()):
                self.assertLess(time.monotonic(), until)
                time.sleep(0.1)
            with self.assertRaises(ValueError):
                session.exec("cat", stdin="x", on_stdout=print)


if __name__ == "__main__":
    unittest.main()
