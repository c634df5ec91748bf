from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from .support import env

EXAMPLES = Path(__file__).parent.parent / "examples"


class Examples(unittest.TestCase):
    def test_run_worker(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("the content\n")
            file.flush()
            done = run("run_worker.py", "attached", file.name)
            self.assertEqual((done.returncode, done.stdout.splitlines()[1]), (0, "the content"), done.stderr)
            refused = run("run_worker.py", "hungry", file.name)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("[PATH_NOT_AVAILABLE]", refused.stderr)

    def test_map_items(self) -> None:
        with tempfile.NamedTemporaryFile("w") as file:
            file.write('{"text": "one"}\n{"text": "two"}\n')
            file.flush()
            done = run("map_items.py", "echo", file.name)
        self.assertRegex(done.stdout, r'\{"index": 0, "status": "\w+", "output": .*one', done.stderr)
        self.assertIn("2 of 2", done.stderr)

    def test_decide(self) -> None:
        done = run("decide.py", "asks", given="y\n")
        self.assertIn("asked\n", done.stdout, done.stderr)
        self.assertIn("/out/asked.txt: applied", done.stdout)

    def test_use_session(self) -> None:
        done = run("use_session.py", "desk", "/docs/a.txt", "/etc/passwd")
        self.assertEqual(done.stdout.splitlines()[0], "/docs/a.txt: 2 words", done.stderr)
        self.assertIn("/etc/passwd", done.stdout.splitlines()[1])

    def test_each_has_a_test(self) -> None:
        tested = {f"{name.removeprefix('test_')}.py" for name in dir(self) if name.startswith("test_")}
        self.assertEqual({path.name for path in EXAMPLES.glob("*.py")} - tested, set())


def run(name: str, *args: str, given: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CORRAL_URL": env("CORRAL_TEST_URL"), "CORRAL_TOKEN": env("CORRAL_TEST_TOKEN")}
    command = [sys.executable, str(EXAMPLES / name), *args]
    return subprocess.run(command, env=environment, input=given, capture_output=True, text=True, timeout=60)


if __name__ == "__main__":
    unittest.main()
