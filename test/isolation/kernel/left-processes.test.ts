import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdirSync, rmdirSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { expect, it } from "vitest";
import { endLeftProcesses } from "../../../src/isolation/kernel/left-processes.ts";

const HIERARCHY = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].find((dir) => existsSync(`${dir}/cgroup.procs`));

const NAMES = [(id: string) => id, (id: string) => `docker-${id}.scope`];

it.skipIf(process.getuid?.() !== 0 || HIERARCHY === undefined).each(NAMES)(
  "ends what is in the group of this container alone, and removes the group: %s",
  async (nameOf) => {
    const [ours, others] = [randomBytes(32).toString("hex"), randomBytes(32).toString("hex")];
    const groupOf = (id: string): string => `${HIERARCHY}/corral-test-${id}/${nameOf(id)}`;
    const started = [ours, others].map((id) => {
      mkdirSync(groupOf(id), { recursive: true });
      const child = spawn("sleep", ["300"], { stdio: "ignore" });
      writeFileSync(`${groupOf(id)}/cgroup.procs`, String(child.pid));
      return child;
    });
    try {
      const [first, second] = started;
      const ended = once(first as NonNullable<typeof first>, "exit");
      await endLeftProcesses(ours);
      expect(await ended).toEqual([null, "SIGKILL"]);
      expect(second?.exitCode ?? second?.signalCode).toBe(null);
      expect(existsSync(groupOf(ours))).toBe(false);
    } finally {
      for (const child of started) {
        if (child.exitCode !== null || child.signalCode !== null) continue;
        const ended = once(child, "exit");
        child.kill("SIGKILL");
        await ended;
      }
      for (const id of [ours, others]) {
        for (const group of [groupOf(id), dirname(groupOf(id))]) if (existsSync(group)) rmdirSync(group);
      }
    }
  },
);
