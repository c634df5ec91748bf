/** Makes the files of the Python client that are made: the models from today's OpenAPI document, and the blocking client. */
import { spawnSync } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { get } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import pino from "pino";
import { openService } from "../src/serve/service.ts";

const dir = await mkdtemp(join(tmpdir(), "corral-python-"));
try {
  await writeFile(join(dir, "corral.yaml"), "version: 1\n");
  await writeFile(join(dir, "openapi.json"), await documentOf(join(dir, "socket")));
  const generate = join(import.meta.dirname, "../python/generate.py");
  const { status } = spawnSync("python3", [generate, "--openapi", join(dir, "openapi.json")], { stdio: "inherit" });
  process.exitCode = status ?? 1;
} finally {
  await rm(dir, { recursive: true });
}

/** As a service of an empty project answers it. */
async function documentOf(socketPath: string): Promise<string> {
  await using _ = await openService({
    address: { kind: "unix", path: socketPath },
    hosts: [],
    projects: [dir],
    stateDir: join(dir, "state"),
    env: {},
    withPageToken: false,
    log: pino({ level: "silent" }),
  });
  const headers = { host: "localhost", connection: "close" };
  return await new Promise((resolve, reject) => {
    get({ socketPath, path: "/openapi.json", headers }, (response) => text(response).then(resolve, reject)).on(
      "error",
      reject,
    );
  });
}
