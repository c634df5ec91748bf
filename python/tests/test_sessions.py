from __future__ import annotations

import contextlib
import io
import os
import tempfile
import unittest
from pathlib import Path

from corral import CommandFailed, Conflict, CorralError, NotFound, ProtocolError, Question, Refused, ToolRefused

from .support import client


class Sessions(unittest.TestCase):
    def test_a_session_has_files_and_commands(self) -> None:
        corral = client()
        with corral.session("desk", on_question=lambda _: True) as session:
            self.assertIn(session.id, [one.id for one in corral.sessions()])
            self.assertEqual(session.read_file("/docs/a.txt"), "a document\n")
            session.write_file("/out/report.txt", "one\ntwo\n")
            session.append_file("/out/report.txt", "three\n")
            session.edit_file("/out/report.txt", "two", "2")
            self.assertEqual(session.read_file("/out/report.txt", offset=2, limit=1), "2\n")
            session.copy_file("/out/report.txt", "/out/copy.txt")
            session.move_file("/out/copy.txt", "/out/moved.txt")
            session.delete_file("/out/moved.txt")
            self.assertEqual([one["path"] for one in session.list_files("/out", pattern="rep*.txt")], ["/out/report.txt"])
            self.assertEqual(session.file_info("/docs/a.txt")["type"], "file")
            done = session.exec("cat /out/report.txt; echo no >&2; exit 3", env={"A": "b"}, cwd="/out", timeout=20)
            self.assertEqual((done.exit_code, done.stdout, done.stderr), (3, "one\n2\nthree\n", "no\n"))
            self.assertEqual(session.exec("echo $A; cat", env={"A": "b"}, stdin="in").stdout, "b\nin")
            with self.assertRaises(CommandFailed):
                session.exec("exit 3", check=True)
            tools = {one.name: one for one in session.tools()}
            self.assertEqual(tools["exec"].input_schema["required"], ["command"])
        assert session.settled is not None
        self.assertEqual([one.path for one in session.settled.changes], ["/out/report.txt"])
        self.assertEqual(session.settled.changes[0].outcome, "applied")
        with self.assertRaises(NotFound):
            session.exec("true")

    def test_commands_run_in_the_background_and_files_have_any_size(self) -> None:
        with client().session("desk", name="dev", end_after=3600) as session:
            self.assertIn(("dev", session.id), [(one.name, one.id) for one in client().sessions()])
            command = session.start(["sh", "-c", "echo up; while read line; do echo got $line; done; exit 4"], input=True)
            command.write("one\n")
            command.write("two\n", end=True)
            self.assertEqual(command.wait(timeout=30).exit_code, 4)
            self.assertEqual(b"".join(command.stdout), b"up\ngot one\ngot two\n")
            other = session.start("sleep 4771")
            other.signal("KILL")
            self.assertEqual(other.wait(timeout=30).signal, "SIGKILL")
            content = bytes(range(256)) * 40_000
            self.assertEqual(session.upload("/tmp/large", content).bytes, len(content))
            with tempfile.TemporaryFile() as file:
                session.download("/tmp/large", file)
                file.seek(0)
                self.assertEqual(file.read(), content)
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "large")
                path.write_bytes(b"old")
                for most in (10, len(content) - 1):
                    for to in (io.BytesIO(), path):
                        with self.assertRaises(ProtocolError):
                            session.download("/tmp/large", to, max_bytes=most)
                self.assertEqual((path.read_bytes(), os.listdir(folder)), (b"old", ["large"]))
                session.download("/tmp/large", path)
                self.assertEqual((path.read_bytes(), os.listdir(folder)), (content, ["large"]))

    def test_a_session_has_snapshots_and_forks(self) -> None:
        with client().session("desk") as session:
            session.start("printf one > /out/forked").wait(timeout=30)
            kept = session.snapshot("python")
            self.assertEqual((kept.name, kept.has), ("python", ["/out"]))
            session.start("printf other > /out/forked").wait(timeout=30)
            self.assertEqual([(one.kind, one.path) for one in session.differences("python")], [("modify", "/out/forked")])
            fork = session.fork("python")
            self.assertEqual(fork.read_file("/out/forked"), "one")
            self.assertEqual(fork.finish(discard=True).changes, [])
            session.restore("python")
            self.assertEqual(session.read_file("/out/forked"), "one")
            self.assertIn("python", [one.name for one in session.snapshots()])
            session.remove_snapshot("python")
            with self.assertRaises(NotFound):
                session.restore("python")
            session.start("rm /out/forked").wait(timeout=30)

    def test_a_long_file_is_read_whole(self) -> None:
        text = "".join(f"line {n} \N{GRINNING FACE} ä\n" for n in range(150_000)) + "x" * 2_100_000 + "\nlast"
        with client().session("desk", on_question=lambda _: True) as session:
            session.write_file("/out/long.txt", text[:3_000_000])
            session.append_file("/out/long.txt", text[3_000_000:])
            self.assertEqual(session.read_file("/out/long.txt"), text)
            session.delete_file("/out/long.txt")

    def test_a_refusal_of_a_tool_says_what_is_allowed(self) -> None:
        with client().session("desk") as session:
            for ask in [
                lambda: session.read_file("/etc/passwd"),
                lambda: session.write_file("/docs/a.txt", "x"),
                lambda: session.tool("no_such_tool"),
            ]:
                with self.assertRaises(ToolRefused) as caught:
                    ask()
                self.assertTrue(caught.exception.code.isupper(), caught.exception.code)
                self.assertNotEqual(caught.exception.message, "")

    def test_a_session_that_is_not_open_says_so(self) -> None:
        with self.assertRaises(CorralError):
            client().session("desk").id


class Approvals(unittest.TestCase):
    def test_a_callback_decides_and_sees_what_is_asked(self) -> None:
        asked: list[Question] = []

        def decide(question: Question) -> bool:
            asked.append(question)
            return True

        result = client().run("proposes", arguments=["test_sessions_1"], on_question=decide)
        self.assertEqual([one.outcome for one in result.changes], ["applied"])
        self.assertEqual((asked[0].worker, asked[0].operations, asked[0].root), ("proposes", ["write"], result.run))
        self.assertIn("asked\n", asked[0].diff or "")
        self.assertEqual(len(asked), 1)

    def test_a_callback_denies(self) -> None:
        result = client().run("proposes", arguments=["test_sessions_2"], on_question=lambda _: False, on_event=lambda _: None)
        self.assertEqual((result.status, [one.outcome for one in result.changes]), ("denied", ["denied"]))

    def test_a_callback_that_fails_answers_with_no_and_its_error_is_raised(self) -> None:
        def fails(_: Question) -> bool:
            raise KeyError("mine")

        corral = client()
        with self.assertRaises(KeyError):
            corral.run("proposes", arguments=["test_sessions_3"], on_question=fails)
        decided = corral.approvals.list("decided")
        self.assertEqual(decided[0].outcome, "denied")
        first = corral.approvals.list("decided", limit=1)
        self.assertEqual(first.more, len(decided) > 1)
        if first.next is not None:
            self.assertEqual(corral.approvals.list("decided", limit=1, cursor=first.next)[0].id, decided[1].id)

    def test_questions_are_iterated_and_the_slower_one_gets_a_conflict(self) -> None:
        corral = client()
        run = corral.start("proposes", arguments=["test_sessions_4"])
        for question in corral.approvals.questions(root=run.id):
            corral.approvals.decide(question, "once")
            with self.assertRaises(Conflict) as caught:
                corral.approvals.decide(question, "no")
            self.assertEqual(caught.exception.code, "ALREADY_DECIDED")
            break
        self.assertEqual([one.outcome for one in run.wait(timeout=20).changes], ["applied"])
        self.assertEqual(corral.approvals.show(question.id).outcome, "approved")

    def test_a_run_that_asks_what_another_one_asks_already_is_shown_to_its_own_client(self) -> None:
        corral = client()
        first = corral.start("same", arguments=["test_sessions_5"])
        for _ in corral.approvals.questions(root=first.id):
            break
        asked: list[Question] = []

        def decide(question: Question) -> bool:
            asked.append(question)
            return True

        second = corral.start("same", arguments=["test_sessions_5"])
        # Both changed the same file, so one of them is in conflict.
        with contextlib.suppress(Refused):
            second.wait(timeout=40, on_question=decide)
        self.assertEqual((asked[-1].root, asked[-1].roots), (first.id, [first.id, second.id]))
        with contextlib.suppress(Refused):
            first.wait(timeout=40)
        self.assertEqual(corral.approvals.show(asked[-1].id).outcome, "approved")


if __name__ == "__main__":
    unittest.main()
