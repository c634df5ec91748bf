import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import type { Plan } from "../../src/isolation/plan/plan.ts";
import { RUNC_EXEC, RUNC_RUN } from "../outcome/names.ts";
import type { ImageRoot } from "./image-root.ts";
import { ociConfig } from "./oci-config.ts";
import type { OneRun } from "./one-run.ts";
import type { Inside, Peer } from "./peer.ts";

/** Memory, as on every machine with systemd: runc keeps its own notes there too. */
const BASE = "/run/corral-bench-";
/** It says that it runs, and ends with its input. */
const WAITING = ["sh", "-c", "echo begun; while read -r _; do :; done"];
const execute = promisify(execFile);

/** The runtime of the Engine, called directly: a bundle is written, and one program runs the container until its end. */
export async function openBareRunc({ dir: root }: ImageRoot, seccomp: string): Promise<Peer> {
  const base = await mkdtemp(BASE);
  const runc = ["--root", join(base, "state")];
  let made = 0;
  async function newBundle(plan: Plan, run: OneRun): Promise<{ readonly id: string; readonly dir: string }> {
    made += 1;
    const id = `${basename(base)}-${made}`;
    const dir = join(base, id);
    await mkdir(dir);
    const config = ociConfig(plan, run, { root, cgroup: `/corral-bench/${id}` }, seccomp);
    await writeFile(join(dir, "config.json"), JSON.stringify(config));
    return { id, dir };
  }
  return {
    name: RUNC_RUN,
    difference:
      "`runc run` mounts the image's layers once for all containers; it has no init, and nothing watches time, disk or output",
    async run(plan, run) {
      const { id, dir } = await newBundle(plan, run);
      await execute("runc", [...runc, "run", "--bundle", dir, id]);
      await rm(dir, { recursive: true });
    },
    async inside(plan): Promise<Inside> {
      const { id, dir } = await newBundle(plan, { command: WAITING, binds: [] });
      const child = spawn("runc", [...runc, "run", "--bundle", dir, id], { stdio: ["pipe", "pipe", "inherit"] });
      const ended = once(child, "exit");
      await Promise.race([once(child.stdout, "data"), ended.then(() => Promise.reject(new Error("runc run ended")))]);
      return {
        name: RUNC_EXEC,
        exec: async (command) => void (await execute("runc", [...runc, "exec", id, ...command])),
        async [Symbol.asyncDispose]() {
          child.stdin.end();
          await ended;
        },
      };
    },
    [Symbol.asyncDispose]: () => rm(base, { recursive: true, force: true }),
  };
}
