import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { get } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import pino from "pino";
import { openService } from "../src/serve/service.ts";

/** `/openapi.json` as a service of an empty project answers it. */
export async function openApiDocument(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "corral-openapi-"));
  try {
    await writeFile(join(dir, "corral.yaml"), "version: 1\n");
    return await documentOf(dir, join(dir, "socket"));
  } finally {
    await rm(dir, { recursive: true });
  }
}

async function documentOf(dir: string, socketPath: string): Promise<string> {
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
