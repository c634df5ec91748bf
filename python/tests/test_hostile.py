"""Answers, archives and arguments that are meant to do harm. None of these tests needs a service."""

from __future__ import annotations

import asyncio
import io
import json
import os
import tarfile
import tempfile
import traceback
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from corral import AsyncCorral, Corral, CorralError, ProtocolError, ServiceError, Unreachable, UnsafeArchive
from corral._archive import unpack
from corral._request import Request, form_body, path_of, query_of
from corral.errors import shown
from corral.results import Question, answer_of

from .support import Liar, answer, stream

TOKEN = "corral_" + "s3cret" * 5


def entry(name: str, content: bytes = b"x", **more: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content) if more.get("type", tarfile.REGTYPE) == tarfile.REGTYPE else 0
    for field, value in more.items():
        setattr(info, field, value)
    return info, content


def archive(*entries: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as made:
        for info, content in entries:
            made.addfile(info, io.BytesIO(content) if info.isreg() else None)
    file.seek(0)
    return file


class Lists(unittest.TestCase):
    def test_an_empty_list_is_sent_and_grants_an_item_nothing(self) -> None:
        corral = Corral("http://127.0.0.1:1", token=TOKEN)
        cases: list[dict[str, Any]] = [{}, {"allow_read": [], "allow_write": []}]
        with mock.patch.object(corral.wire, "ask", side_effect=CorralError("none")) as ask:
            for lists in cases:
                with self.assertRaises(CorralError):
                    corral.start_map("w", [], **lists)
        sent = [json.loads(call.args[2].content) for call in ask.call_args_list]
        self.assertEqual([order.get("template") for order in sent], [None, {"allowRead": [], "allowWrite": []}])


class Archives(unittest.TestCase):
    def test_nothing_leaves_the_folder_and_nothing_of_a_refused_archive_stays(self) -> None:
        link: dict[str, Any] = {"type": tarfile.SYMTYPE, "linkname": "/etc"}
        hostile = {
            "absolute": archive(entry("/etc/corral-was-here")),
            "up": archive(entry("good"), entry("../up")),
            "up in the middle": archive(entry("a/../../up")),
            "a link out": archive(entry("link", **link)),
            "a file through a link": archive(entry("link", **link), entry("link/passwd")),
            "a hard link": archive(entry("hard", type=tarfile.LNKTYPE, linkname="../../etc/passwd")),
            "a device": archive(entry("device", type=tarfile.CHRTYPE, devmajor=1, devminor=3)),
            "a named pipe": archive(entry("pipe", type=tarfile.FIFOTYPE)),
            "the same file twice": archive(entry("a"), entry("a")),
            "a file that is a folder": archive(entry("a"), entry("a/b")),
            "a folder that is a file": archive(entry("a", type=tarfile.DIRTYPE), entry("a")),
            "an empty part": archive(entry("a//b")),
            "a name of only a dot": archive(entry("./")),
            "a long name": archive(entry("a" * 300)),
            "a deep path": archive(entry("/".join("a" * 150))),
            "nonsense": io.BytesIO(b"not an archive" * 100),
            "one that broke off": io.BytesIO(archive(entry("a", b"y" * 5000)).getvalue()[:2000]),
        }
        for what, file in hostile.items():
            with self.subTest(what), tempfile.TemporaryDirectory() as folder:
                with self.assertRaises(UnsafeArchive):
                    unpack(file, Path(folder, "in"))
                self.assertEqual(os.listdir(folder), [])

    def test_special_bits_owners_and_times_are_left_out(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            unpack(archive(entry("setuid", mode=0o6777, uid=0, gid=0), entry("plain", mode=0o000)), Path(folder, "in"))
            self.assertEqual(os.stat(Path(folder, "in/setuid")).st_mode & 0o7777, 0o755)
            self.assertEqual(os.stat(Path(folder, "in/plain")).st_mode & 0o7777, 0o644)

    def test_the_umask_holds_for_all_that_is_unpacked(self) -> None:
        folder_of = entry("b", type=tarfile.DIRTYPE, mode=0o777)
        before = os.umask(0o077)
        try:
            with tempfile.TemporaryDirectory() as folder:
                unpack(archive(entry("a"), folder_of, entry("b/run", mode=0o755), entry("c/d")), Path(folder, "in"))
                modes = {path: os.stat(Path(folder, "in", path)).st_mode & 0o7777 for path in ["", "a", "b", "b/run", "c"]}
        finally:
            os.umask(before)
        self.assertEqual(modes, {"": 0o700, "a": 0o600, "b": 0o700, "b/run": 0o700, "c": 0o700})

    def test_a_folder_that_has_something_or_is_a_link_is_not_written_to(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "full").mkdir()
            Path(folder, "full/mine").write_text("mine")
            Path(folder, "other").mkdir()
            Path(folder, "link").symlink_to("other")
            for name in ["full", "link"]:
                with self.assertRaises(FileExistsError):
                    unpack(archive(entry("mine")), Path(folder, name))
            self.assertEqual(Path(folder, "full/mine").read_text(), "mine")
            self.assertEqual(os.listdir(Path(folder, "other")), [])


class Arguments(unittest.TestCase):
    def test_paths_and_queries_are_quoted_whole(self) -> None:
        self.assertEqual(path_of("runs", "a/b?c#d\r\nX: y"), "/v1/runs/a%2Fb%3Fc%23d%0D%0AX%3A%20y")
        self.assertEqual(query_of(key="a&b=c\r\n", none=None, yes=True), "?key=a%26b%3Dc%0D%0A&yes=true")
        for name in ["", ".", ".."]:
            with self.assertRaises(ValueError):
                path_of("runs", name)

    def test_headers_and_targets_with_line_breaks_are_refused(self) -> None:
        for headers in [{"A": "b\r\nC: d"}, {"A": "b\n"}, {"A\r\nB": "c"}, {"A": "ä"}, {"A b": "c"}]:
            with self.assertRaises(ValueError):
                Request("GET", "/v1/health", headers)
        for target in ["/v1 HTTP/1.1\r\nX: y", "v1", "/ä", "/a b"]:
            with self.assertRaises(ValueError):
                Request("GET", target)

    def test_addresses_and_tokens_are_checked_without_being_shown(self) -> None:
        for url in ["ftp://x", "http://", "http://u:s3cret@h", "http://h/?t=s3cret", "http://h\r\nX: y", "unix:x", "http://h:x"]:
            with self.subTest(url), self.assertRaises(ValueError) as caught:
                Corral(url)
            self.assertNotIn("s3cret", str(caught.exception))
        for token in ["s3cret\r\nX: y", "s3cret ", "s3crét", "s3cret" * 1000]:
            with self.assertRaises(ValueError) as caught:
                Corral("http://h", token=token)
            self.assertNotIn("s3c", "".join(traceback.format_exception(caught.exception)))

    def test_attachments_are_named_without_folders(self) -> None:
        for name in ["../x", "/etc/passwd", "a\\b", "a\r\nb", "", "..", "a\0b"]:
            with self.assertRaises(ValueError):
                form_body({}, [(name, b"")])
        with self.assertRaises(ValueError):
            form_body({}, ["/dev/zero"])
        body = form_body({}, [('a"; filename="b', b"content")])
        whole = b"".join(body.pieces())
        self.assertIn(b"filename*=utf-8''a%22%3B%20filename%3D%22b", whole)
        self.assertEqual(len(whole), body.length)

    def test_the_environment_is_used_and_is_no_proxy(self) -> None:
        with Liar(answer({"status": "ok"})) as liar, mock.patch.dict(
            os.environ,
            {"CORRAL_URL": liar.url, "CORRAL_TOKEN": TOKEN, "http_proxy": "http://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1"},
        ):
            self.assertEqual(Corral().health(), "ok")
        self.assertIn(f"authorization: bearer {TOKEN}".lower().encode(), liar.requests[0].lower())


class Questions(unittest.TestCase):
    def test_a_general_yes_does_not_cover_what_the_host_would_execute(self) -> None:
        asked = {"run": "r", "root": "r", "worker": "w", "operations": ["write"], "paths": ["/repo/.envrc"]}
        executed = [{"path": "/repo/.envrc", "why": "direnv would run it"}]
        for more, yes in [({}, "once"), ({"hostExecuted": executed}, "no")]:
            question = Question.from_json(
                {
                    "id": "q", "project": "p", "state": "waiting", "digest": "0", "askedAt": "", "question": asked | more,
                    "lookAlike": [], "answers": ["once", "no"], "at": "board",
                }
            )
            self.assertEqual([answer_of(question, given) for given in (True, "once", False)], [yes, "once", "no"])
            self.assertEqual(question.host_executed, [one["path"] for one in more.get("hostExecuted", [])])


class Answers(unittest.TestCase):
    def each(self, said: bytes) -> list[Exception]:
        """What both clients raise for an answer."""
        found: list[Exception] = []
        with Liar(said) as liar:
            for ask in [
                lambda: Corral(liar.url, token=TOKEN, patience=0).projects(),
                lambda: asyncio.run(AsyncCorral(liar.url, token=TOKEN, patience=0).projects()),
            ]:
                with self.assertRaises(Exception) as caught:
                    ask()
                found.append(caught.exception)
        for error in found:
            self.assertNotIn("s3cret", "".join(traceback.format_exception(error)))
        return found

    def test_what_is_no_answer_of_a_service_is_a_protocol_error(self) -> None:
        for said in [
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]",
            answer({"projects": [{"name": 1}], "x": 1})[:-40].replace(b"HTTP/1.1", b"SSH-2.0"),
        ]:
            for error in self.each(said):
                self.assertIsInstance(error, (ProtocolError, Unreachable), said)

    def test_an_answer_that_breaks_off_is_not_taken_for_a_whole_one(self) -> None:
        for said in [
            b"",
            b"HTTP/1.1 200 OK\r\nconte",
            b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{"projects": []}',
            b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"projects": []}',
            b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n10\r\n{"projects": []}\r\n',
            b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n20\r\n{"projects": []}',
        ]:
            for error in self.each(said):
                self.assertIsInstance(error, Unreachable, said)

    def test_a_redirect_is_not_followed_so_no_token_goes_elsewhere(self) -> None:
        with Liar(answer({})) as other:
            for error in self.each(answer({}, "302 Found", f"location: {other.url}/v1/projects\r\n")):
                self.assertEqual((type(error), getattr(error, "status")), (ServiceError, 302))
            self.assertEqual(other.requests, [])

    def test_an_error_is_printed_without_what_a_terminal_obeys(self) -> None:
        said = answer({"error": {"code": "X", "message": "\x1b]0;title\x07 \x9b2J \u202e text", "violations": [1, {"code": "A"}]}}, "422 X")
        for error in self.each(said):
            assert isinstance(error, ServiceError)
            self.assertTrue(all(c.isprintable() for c in str(error)), ascii(str(error)))
            self.assertEqual(error.violations, [{"code": "A"}])
        self.assertEqual(shown("a\nb\x1b"), "a\nb\\u{1b}")

    def test_fields_that_are_new_are_kept_and_values_that_are_new_are_text(self) -> None:
        run: dict[str, Any] = {
            "id": "0" * 12, "project": "p", "kind": "dream", "worker": "w", "status": "levitating", "queuedAt": "", "startedAt": None,
            "endedAt": None, "exitCode": None, "signal": None, "error": None, "durationMs": None, "changeset": None,
            "stdout": {"bytes": 0, "keptBytes": 0}, "stderr": {"bytes": 0, "keptBytes": 0}, "callCount": 0, "calls": [], "hasEvents": False,
            "policy": None, "image": None, "model": None, "limits": None, "held": None, "usage": None, "truncated": False, "input": None,
            "arguments": [], "continues": None, "attachments": [], "leftOut": 0, "novelty": {"a": 1},
        }  # fmt: skip
        with Liar(answer(run)) as liar:
            shown_run = Corral(liar.url).attach("0" * 12).show()
            self.assertEqual((shown_run.status, shown_run.kind, shown_run.raw["novelty"]), ("levitating", "dream", {"a": 1}))
            missing = {key: value for key, value in run.items() if key != "worker"}
        with Liar(answer(missing)) as liar, self.assertRaises(ProtocolError) as caught:
            Corral(liar.url).attach("0" * 12).show()
        self.assertIn("Run.worker", str(caught.exception))

    def test_an_event_that_breaks_off_or_is_forged_in_text_is_none(self) -> None:
        forged = 'id: 9\nevent: ended\ndata: {"type":"ended"}\n\n'
        line = b'id: 5\nevent: output\ndata: {"type":"output","at":"","text":"' + forged.replace("\n", "\\n").replace('"', '\\"').encode() + b'"}\n\n'
        rest = b'id: 7\nevent: output\ndata: {"type":"output"}\n'

        def say(request: bytes) -> bytes:
            after = b"last-event-id: 5" in request.lower()
            whole = stream(b": events\r\n\r\n" + line + rest, is_whole=False)
            return b"HTTP/1.1 204 No Content\r\n\r\n" if after else whole

        with Liar(say) as liar:
            events = list(Corral(liar.url).attach("0" * 12).events())
        self.assertEqual([(one.id, one.type, one.text) for one in events], [(5, "output", forged)])

    def test_an_output_goes_on_after_the_service_was_being_stopped(self) -> None:
        busy = answer({"error": {"code": "STOPPING", "message": "stopping"}}, "503 Service Unavailable")

        def say(_: bytes) -> bytes:
            return {1: stream(b"abc", is_whole=False), 2: busy}.get(len(liar.requests), stream(b"abcdef"))

        with Liar(say) as liar:
            self.assertEqual(b"".join(Corral(liar.url).attach("0" * 12).output()), b"abcdef")

    def test_an_endless_event_is_refused(self) -> None:
        with mock.patch("corral.events._MAX_EVENT_BYTES", 1000), Liar(stream(b"data: " + b"x" * 5000)) as liar:
            with self.assertRaises(ProtocolError):
                list(Corral(liar.url, patience=0).attach("0" * 12).events())

    def test_only_what_reads_is_sent_again(self) -> None:
        with Liar(b"") as liar:
            corral = Corral(liar.url, patience=0.3)
            with self.assertRaises(CorralError):
                corral.start("echo")
            self.assertEqual(len(liar.requests), 1)
            with self.assertRaises(CorralError):
                corral.projects()
            self.assertGreater(len(liar.requests), 2)


if __name__ == "__main__":
    unittest.main()
