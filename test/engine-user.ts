import { execFile } from "node:child_process";
import { chown, cp, realpath, stat } from "node:fs/promises";
import { join } from "node:path";
import { connect } from "../src/isolation/engine/open.ts";
import { OTHER } from "./other-user.ts";

const ROOT = join(import.meta.dirname, "..");

/** The built package in this folder, where {@link OTHER} can reach it; the folder becomes its own. Its `corral`, for Node. */
export async function packageIn(folder: string): Promise<string> {
  for (const part of ["package.json", "action.yml", "dist", "policies", "images", "templates", "node_modules/zod"])
    await cp(join(ROOT, part), join(folder, "c", part), { recursive: true });
  await chown(folder, OTHER, OTHER);
  return join(folder, "c/dist/cli/corral.cjs");
}

/** The beginning of a command line that runs the rest as {@link OTHER}, who is in the group of the Engine's socket, in this environment alone. */
export async function asOther(env: Readonly<Record<string, string>>): Promise<string[]> {
  const { socketPath } = await connect(process.env);
  if (socketPath === null) throw new Error("an Engine over TCP has no group");
  const { gid } = await stat(await realpath(socketPath));
  const variables = Object.entries({ DOCKER_HOST: `unix://${socketPath}`, ...env }).map(
    ([name, value]) => `${name}=${value}`,
  );
  return ["setpriv", `--reuid=${OTHER}`, `--regid=${OTHER}`, `--groups=${gid}`, "env", "-i", ...variables];
}

/** A program that runs; `text` is what it prints on both streams. */
export function started([file = "", ...words]: readonly string[], cwd: string) {
  const { promise: ended, resolve } = Promise.withResolvers<{ readonly status: number; readonly text: string }>();
  const child = execFile(file, words, { cwd, timeout: 110_000, maxBuffer: 1 << 26 }, (error, stdout, stderr) =>
    resolve({ status: error === null ? 0 : Number(error.code ?? 1), text: stdout + stderr }),
  );
  return { child, ended };
}
