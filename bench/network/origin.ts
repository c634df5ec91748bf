import { execFile, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { ServerPorts, ServerRequest } from "./server.ts";

/** The host that the contenders reach. Disposing ends it. */
export interface Origin extends Disposable {
  readonly ports: ServerPorts;
  /** Its certificate, which signs itself. */
  readonly cert: string;
}

const SERVER = fileURLToPath(new URL("./server.ts", import.meta.url));
const execute = promisify(execFile);

/** `names`: those in its certificate. Throws without the `openssl` program. */
export async function openOrigin(addresses: readonly string[], names: readonly string[]): Promise<Origin> {
  const pair = await certificateFor(names);
  const child = fork(SERVER);
  child.send({ addresses, ...pair } satisfies ServerRequest);
  const [ports] = (await Promise.race([once(child, "message"), once(child, "exit")])) as [ServerPorts];
  return { ports, cert: pair.cert, [Symbol.dispose]: () => void child.kill("SIGKILL") };
}

async function certificateFor(names: readonly string[]): Promise<{ key: string; cert: string }> {
  const dir = await mkdtemp(join(tmpdir(), "corral-bench-cert-"));
  try {
    const [key, cert] = [join(dir, "key"), join(dir, "cert")];
    const options = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=bench -addext";
    const alternatives = `subjectAltName=${names.map((name) => `DNS:${name}`).join(",")}`;
    await execute("openssl", [...options.split(" "), alternatives, "-keyout", key, "-out", cert]);
    return { key: await readFile(key, "utf8"), cert: await readFile(cert, "utf8") };
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}
