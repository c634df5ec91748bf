import { execFile } from "node:child_process";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { OpenedPeer } from "./peer.ts";
import { openSandboxRuntime } from "./sandbox-runtime.ts";
import { openTestcontainers } from "./testcontainers.ts";

const PEERS = fileURLToPath(new URL("../peers/", import.meta.url));
const execute = promisify(execFile);

/** Installs exactly what the peers' own lock names. Answers with why that failed, or null. */
export async function installPeers(): Promise<string | null> {
  return await execute("npm", ["ci", "--loglevel=error"], { cwd: PEERS }).then(
    () => null,
    (error: Error) => error.message,
  );
}

/** The peers that are there, and why the others are not. */
export async function openPeers(image: string): Promise<OpenedPeer[]> {
  const require = createRequire(`${PEERS}package.json`);
  const opened: OpenedPeer[] = [];
  for (const [name, specifier, open] of [
    ["testcontainers", "testcontainers", (entry: string) => openTestcontainers(entry, image)],
    ["sandbox-runtime", "@anthropic-ai/sandbox-runtime", openSandboxRuntime],
  ] as const) {
    const entry = entryOf(require, specifier);
    opened.push(
      entry === null ? { name, absent: "it is not installed; `npm run bench -- --peers` does" } : await open(entry),
    );
  }
  return opened;
}

function entryOf(require: NodeJS.Require, specifier: string): string | null {
  try {
    return require.resolve(specifier);
  } catch {
    return null;
  }
}
