"""Files that generate.py makes are as it makes them."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).parent.parent


class Made(unittest.TestCase):
    def test_the_blocking_client_is_that_for_asyncio_without_it(self) -> None:
        self.check([])

    def test_the_models_are_those_of_the_service(self) -> None:
        document = os.environ.get("CORRAL_TEST_OPENAPI")
        if not document:
            self.skipTest("CORRAL_TEST_OPENAPI is not set: this needs the document of a service")
        self.check(["--openapi", document])

    def check(self, more: list[str]) -> None:
        command = [sys.executable, str(ROOT / "generate.py"), "--check", *more]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr + "\nMake them anew: node scripts/python-client.ts")


if __name__ == "__main__":
    unittest.main()
