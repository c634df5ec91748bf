"""Files that generate.py makes are as it makes them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
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

    def test_the_package_has_its_types_and_needs_nothing(self) -> None:
        if importlib.util.find_spec("setuptools") is None:
            print("not tested: setuptools is missing, so no package can be built")
            return
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder, "python")
            shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
            code = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
            subprocess.run([sys.executable, "-c", code, folder], cwd=copy, check=True, capture_output=True)
            with zipfile.ZipFile(next(Path(folder).glob("corral_client-*.whl"))) as wheel:
                names = wheel.namelist()
                about = wheel.read(next(name for name in names if name.endswith("/METADATA"))).decode()
        self.assertIn("corral/py.typed", names)
        modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
        self.assertEqual({name for name in names if name.endswith(".py")}, modules)
        self.assertTrue(any(name.endswith("LICENSE") for name in names), names)
        self.assertNotIn("Requires-Dist", about)
        self.assertIn("License: Apache-2.0", about)

    def check(self, more: list[str]) -> None:
        command = [sys.executable, str(ROOT / "generate.py"), "--check", *more]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr + "\nMake them anew: node scripts/python-client.ts")


if __name__ == "__main__":
    unittest.main()
