import { existsSync } from "node:fs";
import { chmod, chown, copyFile, mkdir, mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { loadPolicy, loadSeccompProfile } from "../../../src/declarations/policy/policy.ts";
import { type BwrapPrograms, hostEntries } from "../../../src/isolation/bwrap/cell-words.ts";
import { BwrapLedger } from "../../../src/isolation/bwrap/ledger.ts";
import { bwrapDriver, groundHere, hostImage, look } from "../../../src/isolation/bwrap/open.ts";
import type { BwrapOptions } from "../../../src/isolation/bwrap/start.ts";
import { closedGate } from "../../../src/isolation/gate/gate-streams.ts";
import type { Plan } from "../../../src/isolation/plan/plan.ts";
import type { Driver } from "../../../src/isolation/port/driver.ts";
import type { Maker } from "../../../src/isolation/port/labels.ts";
import { filterProgram } from "../../../src/isolation/seccomp/filter.ts";
import { ociSeccomp, plannedSeccomp } from "../../../src/isolation/seccomp/planned-profile.ts";
import type { Policy } from "../../../src/sandbox/policy.ts";
import { currentOwner, loadSealKey } from "../../../src/state/owner.ts";
import type { CellAsked } from "../engine/engine.ts";
import { type Planned, pinnedPlan } from "../pinned-plan.ts";

/** Cells are processes of this user, also where the tests run as root. */
export const USER =
  process.getuid?.() === 0
    ? { uid: 65532, gid: 65532 }
    : { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };

/** Why there are no cells of bubblewrap here; null if there are. */
export async function absence(): Promise<string | null> {
  return await groundHere(USER).then(
    () => null,
    (error: Error) => error.message,
  );
}

/** bubblewrap with a state directory and a seal of this test file's own. */
export async function openBwrapHere(groups: BwrapOptions["groups"] = { why: "a test has none" }) {
  const programs = await groundHere(USER);
  const dir = await mkdtemp(join(tmpdir(), "cb-"));
  const cells = join(dir, "cells");
  await mkdir(cells);
  for (const place of [dir, cells]) await chmod(place, 0o711);
  const maker: Maker = { owner: currentOwner(), sealKey: await loadSealKey(join(dir, "state")) };
  const [profile, image, untrusted] = [
    await loadSeccompProfile(),
    await hostImage(),
    await loadPolicy("untrusted", { dirs: [] }),
  ];
  const driverOf = (as: Maker, own = programs): Driver =>
    bwrapDriver({
      ledger: new BwrapLedger(dir, as, USER),
      user: USER,
      programs: own,
      profile,
      entries: hostEntries(look),
      groups,
      image,
    });
  await mkdir(join(dir, "gate"));
  await copyFile(programs.busybox, join(dir, "gate/busybox"));
  const gate = await closedGate(join(dir, "gate/busybox"));
  const socket = join(dir, "s");
  const server = createServer();
  await new Promise<void>((listening) => server.listen(socket, listening));
  const driver = driverOf(maker);
  const planned: Planned[] = [];
  const policy: Policy = { ...untrusted, hardening: { ...untrusted.hardening, limitScope: "process" } };
  return {
    dir,
    maker,
    driver,
    driverOf,
    driverWith: (own: BwrapPrograms): Driver => driverOf(maker, own),
    filterOf: (plan: Plan): Buffer => filterProgram(ociSeccomp(plannedSeccomp(plan, profile), process.arch)),
    policy,
    untrusted,
    withoutProcesses: "a cell of bubblewrap: it may have no process",
    async folder(name: string): Promise<string> {
      const path = join(dir, name);
      await mkdir(path, { recursive: true });
      await chown(path, USER.uid, USER.gid);
      return path;
    },
    async plan({ command, policy: own = policy, ...asked }: Omit<CellAsked, "image">): Promise<Planned> {
      const made = await pinnedPlan({ ...asked, command, policy: own, image, plumbing: { gate, socket } });
      planned.push(made);
      return made;
    },
    /** Everything that is left of a run: its directory, and so each process that works there. */
    async traces(run: string): Promise<string[]> {
      const folder = join(cells, run);
      return existsSync(folder) ? [folder] : [];
    },
    async [Symbol.asyncDispose](): Promise<void> {
      for (const { pins } of planned) await pins[Symbol.asyncDispose]();
      await new Promise((closed) => server.close(closed));
      await driver.removeLeft();
      await rm(dir, { recursive: true, force: true });
    },
  };
}
