/** Makes the files of the Python client that are made: the models from today's OpenAPI document, and the blocking client. */
import { spawnSync } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openApiDocument } from "./openapi-document.ts";

const dir = await mkdtemp(join(tmpdir(), "corral-python-"));
try {
  await writeFile(join(dir, "openapi.json"), await openApiDocument());
  const generate = join(import.meta.dirname, "../python/generate.py");
  const { status } = spawnSync("python3", [generate, "--openapi", join(dir, "openapi.json")], { stdio: "inherit" });
  process.exitCode = status ?? 1;
} finally {
  await rm(dir, { recursive: true });
}
