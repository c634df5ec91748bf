from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

from corral import Conflict, Corral, Forbidden, NotFound, Refused, RunFailed, TimedOut, Unauthorized, WrongRequest

from .support import Cutter, client, env, port_of_service


class Runs(unittest.TestCase):
    def test_a_run_takes_input_and_arguments_and_answers_with_its_result(self) -> None:
        corral = client()
        result = corral.run("echo", input={"a": "ä"})
        self.assertEqual((result.status, result.exit_code, result.ok), ("succeeded", 0, True))
        self.assertEqual(result.stdout, '{"a":"ä"}\n')
        self.assertEqual(corral.run("words", arguments=["one", "two words"]).stdout, "one two words\n")
        self.assertEqual(corral.attach(result.run).show().status, "succeeded")
        newest = corral.runs(worker="echo", limit=1)
        self.assertEqual(newest[0].id, result.run)
        corral.run("echo", input="more")
        self.assertTrue(corral.runs(worker="echo", limit=1).more)
        self.assertFalse(corral.runs(worker="nothing-of-that-name").more)

    def test_attachments_are_paths_or_bytes_with_any_name(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "a file.txt")
            path.write_text("from a path\n")
            names = ['qu"ote; name="x".txt', "ümläut.txt", "per%41cent.txt", "empty"]
            result = client().run("attached", attachments=[path, *((name, b"x\n") for name in names[:-1]), ("empty", b"")])
        for name in ["a file.txt", *names]:
            self.assertIn(name, result.stdout.splitlines())
        self.assertIn("from a path", result.stdout)
        again = client().run("attached", attachments={"one.txt": b"1\n", "two.txt": b"2\n"})
        self.assertEqual(again.stdout, "one.txt\ntwo.txt\n1\n2\n")

    def test_a_large_attachment_streams(self) -> None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"x" * 6 * 1024**2)
            file.flush()
            result = client(timeout=120).run("attached", attachments=[("large", file.name)])
        self.assertEqual(result.status, "output_limit" if result.status != "succeeded" else "succeeded")

    def test_a_run_that_fails_is_a_result_and_with_check_an_exception(self) -> None:
        corral = client()
        result = corral.run("writer")
        self.assertEqual((result.status, result.exit_code, result.ok), ("failed", 3, False))
        with self.assertRaises(RunFailed) as caught:
            corral.run("writer", check=True)
        self.assertEqual(caught.exception.result.exit_code, 3)

    def test_what_it_wrote_is_downloaded_shown_applied_and_discarded(self) -> None:
        corral = client()
        id = corral.run("writer").changeset_id
        assert id is not None
        self.assertIn(id, [one.id for one in corral.changesets.list(worker="writer")])
        with tempfile.TemporaryDirectory() as folder:
            paths = corral.changesets.download(id, Path(folder, "new"))
            self.assertEqual(sorted(str(path.relative_to(folder)) for path in paths), ["new/out/dir/x", "new/out/new.txt"])
            self.assertEqual(Path(folder, "new/out/new.txt").read_text(), "new\n")
            self.assertTrue(os.access(Path(folder, "new/out/dir/x"), os.X_OK))
            with self.assertRaises(FileExistsError):
                corral.changesets.download(id, Path(folder, "new"))
        shown = corral.changesets.show(id)
        self.assertIn("+new", shown.diff)
        for none in (corral.changesets.apply(shown, only=[]), corral.changesets.apply(shown, which=[])):
            self.assertEqual((none.changes, none.left), ([], 3))
        applied = corral.changesets.apply(shown, only=["/out/new.txt"])
        self.assertEqual(applied.left, 2)
        with self.assertRaises(Conflict) as caught:
            corral.changesets.discard(dataclasses.replace(shown, digest="0" * 64))
        self.assertEqual(caught.exception.code, "CHANGESET_CHANGED")
        corral.changesets.discard(corral.changesets.show(id))
        with self.assertRaises(NotFound):
            corral.changesets.show(id)

    def test_links_of_a_worker_are_not_in_a_download(self) -> None:
        corral = client()
        id = corral.run("linker").changeset_id
        assert id is not None
        with tempfile.TemporaryDirectory() as folder:
            paths = corral.changesets.download(id, Path(folder, "new"))
            self.assertEqual([path.name for path in paths], ["new.txt"])


class Refusals(unittest.TestCase):
    def test_each_is_an_exception_with_its_code(self) -> None:
        corral = client()
        for kind, code, ask in [
            (NotFound, "UNKNOWN_WORKER", lambda: corral.run("nobody")),
            (NotFound, "UNKNOWN_PROJECT", lambda: corral.run("echo", project="other")),
            (WrongRequest, "ARGUMENTS", lambda: corral.run("echo", arguments=["x"])),
            (Conflict, "CONTINUE", lambda: corral.run("echo", continues="0123456789ab")),
            (WrongRequest, "UNKNOWN_POLICY", lambda: corral.run("echo", policy="nowhere")),
            (NotFound, "UNKNOWN_RUN", lambda: corral.attach("0123456789ab").show()),
            (WrongRequest, "WRONG_REQUEST", lambda: corral.attach("../projects").show()),
        ]:
            with self.subTest(code=code), self.assertRaises(kind) as caught:
                ask()
            self.assertEqual(caught.exception.code, code)

    def test_a_run_that_is_refused_says_which_violations(self) -> None:
        with self.assertRaises(Refused) as caught:
            client().run("hungry")
        self.assertEqual([one["code"] for one in caught.exception.violations], ["PATH_NOT_AVAILABLE"])
        assert caught.exception.result is not None
        self.assertEqual(caught.exception.result.status, "refused")

    def test_a_token_that_is_wrong_or_worth_less_is_refused_and_never_shown(self) -> None:
        secret = "corral_" + "s3cret" * 5
        wrong = Corral(env("CORRAL_TEST_URL"), token=secret)
        with self.assertRaises(Unauthorized) as caught:
            wrong.projects()
        reader = Corral(env("CORRAL_TEST_URL"), token=env("CORRAL_TEST_READER"))
        self.assertEqual(len(reader.projects()), 1)
        with self.assertRaises(Forbidden) as forbidden:
            reader.run("echo")
        self.assertEqual(forbidden.exception.code, "FORBIDDEN")
        for shown in [repr(wrong), str(caught.exception), repr(caught.exception), repr(vars(wrong.wire))]:
            self.assertNotIn("s3cret", shown)


class Following(unittest.TestCase):
    def test_events_are_followed_over_connections_that_break_in_the_middle(self) -> None:
        whole = client()
        run = whole.start("brief", input={"n": 1})
        cuts = [300, -1, 5, 210, -333, 150, 40]
        with Cutter(port_of_service(), cuts, only=b"/events") as proxy:
            through = Corral(f"http://127.0.0.1:{proxy.port}", token=env("CORRAL_TEST_TOKEN"))
            events = list(through.attach(run.id).events())
            self.assertGreaterEqual(proxy.made, 5)
        self.assertEqual([one.id for one in events], [one.id for one in run.events()])
        self.assertEqual([one.type for one in events], ["requested", "started", "output", "ended"])
        middle = events[1].id
        self.assertEqual([one.id for one in run.events(after=middle)], [one.id for one in events[2:]])

    def test_output_goes_on_behind_what_was_given(self) -> None:
        run = client().start("ticks")
        with Cutter(port_of_service(), [20, -300, 30, 95, -1, 110], only=b"/output") as proxy:
            through = Corral(f"http://127.0.0.1:{proxy.port}", token=env("CORRAL_TEST_TOKEN"))
            printed = b"".join(through.attach(run.id).output())
            self.assertGreaterEqual(proxy.made, 5)
        self.assertEqual(printed, b"".join(b"tick %d\n" % n for n in range(20)))

    def test_output_and_events_are_called_back(self) -> None:
        texts: list[str] = []
        types: list[str] = []
        result = client().run("ticks", on_output=texts.append, on_event=lambda event: types.append(event.type))
        self.assertEqual("".join(texts), result.stdout)
        self.assertEqual(types[-1], "ended")

    def test_a_stream_that_cannot_be_reached_again_ends_with_an_error(self) -> None:
        run = client().start("slow")
        try:
            with Cutter(port_of_service(), [900] + [0] * 100, only=b"/events") as proxy:
                through = Corral(f"http://127.0.0.1:{proxy.port}", token=env("CORRAL_TEST_TOKEN"), patience=0.5)
                events = through.attach(run.id).events(timeout=20)
                next(events)
                with self.assertRaises(Exception) as caught:
                    list(events)
            self.assertEqual(type(caught.exception).__name__, "Unreachable")
        finally:
            run.stop()


class Stopping(unittest.TestCase):
    def test_a_run_is_stopped(self) -> None:
        run = client().start("slow")
        self.assertIsNone(run.result())
        run.stop()
        self.assertEqual(run.wait(timeout=20).status, "cancelled")

    def test_a_run_that_takes_too_long_is_stopped_at_the_service(self) -> None:
        corral = client()
        began = time.monotonic()
        with self.assertRaises(TimedOut):
            corral.run("slow", timeout=1.5)
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual(_settled(corral.runs(worker="slow", limit=1)[0].id), "cancelled")

    def test_a_wait_that_takes_too_long_leaves_the_run(self) -> None:
        run = client().start("slow")
        with self.assertRaises(TimedOut):
            run.wait(timeout=0.5)
        with self.assertRaises(TimedOut):
            run.wait(timeout=0.5, on_event=lambda _: None)
        self.assertEqual(run.show().status, "running")
        run.stop()

    def test_an_error_of_a_callback_stops_the_run(self) -> None:
        corral = client()

        def fails(_: str) -> None:
            raise KeyError("mine")

        with self.assertRaises(KeyError):
            corral.run("slow", on_output=fails)
        self.assertEqual(_settled(corral.runs(worker="slow", limit=1)[0].id), "cancelled")

    def test_ctrl_c_stops_the_run_at_the_service(self) -> None:
        code = (
            "from corral import Corral\n"
            "Corral().run('slow', on_event=lambda event: print(event.run, event.type, flush=True))\n"
        )
        environment = {**os.environ, "CORRAL_URL": env("CORRAL_TEST_URL"), "CORRAL_TOKEN": env("CORRAL_TEST_TOKEN")}
        with subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None and child.stderr is not None
            id = child.stdout.readline().split()[0]
            child.send_signal(signal.SIGINT)
            self.assertIn("KeyboardInterrupt", child.stderr.read())
        self.assertEqual(_settled(id), "cancelled")


class Sockets(unittest.TestCase):
    def test_a_unix_socket_needs_no_token(self) -> None:
        path = env("CORRAL_TEST_SOCKET")
        for url in [f"unix:{path}", path]:
            with Corral(url) as corral:
                self.assertEqual(corral.health(), "ok")
                self.assertEqual(corral.run("echo", input=1).stdout, "1\n")

    def test_clients_may_be_used_by_several_threads(self) -> None:
        corral = client()
        found: list[str] = []
        threads = [
            threading.Thread(target=lambda n=n: found.append(corral.run("echo", input=n).stdout)) for n in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(found), [f"{n}\n" for n in range(6)])


def _settled(id: str) -> str:
    return client().attach(id).wait(timeout=20).status


if __name__ == "__main__":
    unittest.main()
