import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { run } from "../../src/run/run.ts";
import type { Ours } from "./ours.ts";

const CORRAL = fileURLToPath(new URL("../../dist/cli/corral.cjs", import.meta.url));
const execute = promisify(execFile);

/** A run of `echo` in this process. */
export async function runFromLibrary({ corral, worker }: Pick<Ours, "corral" | "worker">): Promise<void> {
  const asked = { worker: worker("echo"), signal: new AbortController().signal };
  const { status, error } = await run(asked, corral.environment);
  if (status !== "succeeded") throw new Error(error?.message ?? status);
}

/** The same by a process of its own. */
export async function runFromCommandLine({ projectDir, env }: Pick<Ours, "projectDir" | "env">): Promise<void> {
  await execute(process.execPath, [CORRAL, "run", "echo", "--project", projectDir], { env });
}
