import { execFile } from "node:child_process";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Plan } from "../../src/isolation/plan/plan.ts";
import { itemRun, type OneRun } from "./one-run.ts";
import type { OpenedPeer } from "./peer.ts";
import { openSandboxRuntime } from "./sandbox-runtime.ts";
import { openTestcontainers } from "./testcontainers.ts";

const PEERS = fileURLToPath(new URL("../peers/", import.meta.url));
const execute = promisify(execFile);

/** Installs exactly what the peers' own lock file names. Returns why it failed, or null. */
export async function installPeers(): Promise<string | null> {
  return await execute("npm", ["ci", "--loglevel=error"], { cwd: PEERS }).then(
    () => null,
    (error: Error) => error.message,
  );
}

/** Opens the peers that are installed and can run an item, and reports why the others cannot. */
export async function openPeers(plan: Plan, projectDir: string): Promise<OpenedPeer[]> {
  const require = createRequire(`${PEERS}package.json`);
  const opened: OpenedPeer[] = [];
  for (const [index, [name, specifier, open]] of PACKAGES.entries()) {
    const entry = entryOf(require, specifier);
    if (entry === null) opened.push({ name, absent: "it is not installed; `npm run bench -- --peers` installs it" });
    else opened.push(await tried(await open(entry, plan.image.name), plan, await itemRun(projectDir, index, plan)));
  }
  return opened;
}

const PACKAGES = [
  ["testcontainers", "testcontainers", openTestcontainers],
  ["sandbox-runtime", "@anthropic-ai/sandbox-runtime", openSandboxRuntime],
] as const;

async function tried(peer: OpenedPeer, plan: Plan, trial: OneRun): Promise<OpenedPeer> {
  if ("absent" in peer) return peer;
  try {
    await peer.run(plan, trial);
    return peer;
  } catch (error) {
    await peer[Symbol.asyncDispose]();
    const [why = ""] = (error as Error).message
      .split("\n")
      .filter((line) => line !== "")
      .slice(-1);
    return { name: peer.name, absent: `it does not run here (${why})` };
  }
}

function entryOf(require: NodeJS.Require, specifier: string): string | null {
  try {
    return require.resolve(specifier);
  } catch {
    return null;
  }
}
