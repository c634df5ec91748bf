import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Ours } from "../contenders/ours.ts";

const CORRAL = fileURLToPath(new URL("../../dist/cli/corral.cjs", import.meta.url));

interface Parts {
  readonly ours: Ours;
  readonly env: Readonly<Record<string, string>>;
  readonly slots: number;
}

/** Processes of `corral work` beside each other, each with a state directory of its own. Disposing ends them. */
export async function startMachines(
  count: number,
  parts: Parts,
): Promise<AsyncDisposable & { readonly count: number }> {
  await using opening = new AsyncDisposableStack();
  const base = await mkdtemp(join(tmpdir(), "corral-bench-work-"));
  opening.defer(() => rm(base, { recursive: true, force: true }));
  for (let at = 0; at < count; at += 1) {
    const child = start(join(base, `state-${at}`), `bench-${at}`, parts);
    opening.defer(async () => {
      if (child.exitCode !== null) return;
      const exit = once(child, "exit");
      child.kill("SIGTERM");
      await exit;
    });
    await joined(child);
  }
  const moved = opening.move();
  return { count, [Symbol.asyncDispose]: () => moved.disposeAsync() };
}

function start(stateDir: string, name: string, { ours, env, slots }: Parts): ChildProcess {
  const args = ["work", "--name", name, "--concurrency", String(slots), "--json", "-C", ours.projectDir];
  return spawn(process.execPath, [CORRAL, ...args], {
    env: { ...ours.env, ...env, CORRAL_STATE_DIR: stateDir },
    stdio: ["ignore", "pipe", "inherit"],
  });
}

async function joined(child: ChildProcess): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let said = "";
  child.stdout?.on("data", (chunk: Buffer) => {
    // What it says later is read, and not kept.
    if (said.length < 100_000) said += chunk;
    if (said.includes('"type":"joined"')) resolve();
  });
  child.once("exit", (code) => reject(new Error(`corral work ended with exit code ${code}`)));
  await promise;
}
