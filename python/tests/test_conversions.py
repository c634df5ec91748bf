from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from corral import Corral, Forbidden, NotFound, WrongRequest

from .support import client, env


class Conversions(unittest.TestCase):
    def test_files_become_texts_in_a_folder_and_nothing_stays_at_the_service(self) -> None:
        corral = client()
        with tempfile.TemporaryDirectory() as folder:
            into = Path(folder, "texts")
            shown = corral.convert([("a b.txt", b"words\n"), ("broken.pdf", b"%PDF-1.4\n")], "text", into, timeout=600)
            self.assertEqual([(one.file, one.verdict, one.reason) for one in shown.files],
                             [("a b.txt", "done", None), ("broken.pdf", "not possible", "damaged")])
            self.assertEqual((shown.counts.done, shown.counts.not_possible), (1, 1))
            self.assertIn("words", Path(into, "a b.txt", "text.txt").read_text())
            self.assertTrue(Path(into, "report.html").exists())
        self.assertEqual(corral.conversions.list(), [])
        self.assertRaises(NotFound, corral.conversions.show, shown.id)

    def test_what_the_service_refuses_is_an_error(self) -> None:
        self.assertRaises(WrongRequest, client().conversions.start, [("a", b"a")], "text", ocr="../eng")
        self.assertRaises(WrongRequest, client().conversions.start, [], "text")
        reader = Corral(env("CORRAL_TEST_URL"), token=env("CORRAL_TEST_READER"))
        self.assertRaises(Forbidden, reader.conversions.start, [("a", b"a")], "text")
