import { execFile } from "node:child_process";
import { chown } from "node:fs/promises";
import { promisify } from "node:util";
import type { Plan } from "../../src/isolation/plan/plan.ts";
import { BUBBLEWRAP } from "../outcome/names.ts";
import type { ImageRoot } from "./image-root.ts";
import type { OneRun } from "./one-run.ts";
import type { Peer } from "./peer.ts";

const execute = promisify(execFile);

/** The program that Flatpak and sandbox-runtime use, with the image's files as its root. */
export function openBubblewrap({ dir }: ImageRoot): Peer {
  return {
    name: BUBBLEWRAP,
    difference: "bwrap limits no memory, processors, processes or file sizes, and has no seccomp filter",
    async run(plan, run) {
      // The worker's user number is, outside of its own user namespace, the user of this process.
      for (const { mode, host } of run.binds) {
        if (mode === "rw") await chown(host, process.getuid?.() ?? 0, process.getgid?.() ?? 0);
      }
      await execute("bwrap", bubblewrapArguments(plan, run, dir));
    },
    async [Symbol.asyncDispose]() {},
  };
}

function bubblewrapArguments(
  { user, env, tmpfs, workingDir }: Plan,
  { command, binds }: OneRun,
  root: string,
): string[] {
  return [
    ...["--unshare-all", "--uid", String(user.uid), "--gid", String(user.gid), "--cap-drop", "ALL"],
    ...["--new-session", "--die-with-parent", "--hostname", "bench", "--clearenv"],
    ...Object.entries(env).flatMap(([key, value]) => ["--setenv", key, value]),
    ...["--ro-bind", root, "/", "--proc", "/proc", "--dev", "/dev"],
    ...tmpfs.flatMap(({ path, bytes }) => ["--size", String(bytes), "--tmpfs", path]),
    ...binds.flatMap(({ host, path, mode }) => [mode === "ro" ? "--ro-bind" : "--bind", host, path]),
    ...["--chdir", workingDir, ...command],
  ];
}
