import fs from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Approver } from "../../src/approval/approver.ts";
import type { WorkerDefinition } from "../../src/declarations/worker/worker.ts";
import type { GuardedFiles } from "../../src/files/guarded.ts";
import { canRead, checkWrite, consentTo, governingMount } from "../../src/sandbox/access.ts";
import type { ChangeOperation } from "../../src/sandbox/approval.ts";
import { SandboxError } from "../../src/sandbox/errors.ts";
import { deliveryOf } from "../../src/sandbox/expand.ts";
import type { Sandbox } from "../../src/sandbox/sandbox.ts";
import { covers, type VirtualPath } from "../../src/sandbox/virtual-path.ts";
import { openSessionIn } from "../run/session/session-fixture.ts";
import { isAgain } from "../tiers/again.ts";
import { AT_LENGTH } from "../tiers/at-length.ts";
import { sandboxOf } from "./compare.ts";
import { ATTACK, placed, projectOf, seenIn, type World, worlds } from "./nested-worlds.ts";

/*
 * Mounts in mounts, at every depth, mode, consent and constraint, beside a program that renames, replaces, links and unmounts for
 * a while. Whatever it did: the cell shows what the tools show, the host has no change that the sandbox does not allow, every
 * mount is where it was, and the next worker reads what is there.
 */

const NESTS = 20;
const CELLS = AT_LENGTH ? 500 : isAgain() ? 3 : 5;
/** What is tried against each of them. */
const ATTEMPTS = 50;
const TIME_LIMIT_MS = AT_LENGTH ? 7_200_000 : 240_000;

describe("mounts in mounts", () => {
  it(
    `are what the sandbox says for the worker, the tools, the host and the next worker (${CELLS * NESTS} cases)`,
    async () => {
      let cells = 0;
      await fc.assert(
        fc.asyncProperty(worlds(NESTS), async (world) => {
          cells += 1;
          const found = await differences(world);
          // To find a smaller world takes a cell for each step: what is wrong is said with the nests in which it is.
          const nests = world.nests.filter((_, index) => found.some((line) => line.startsWith(`/g${index}/`)));
          expect(found, JSON.stringify({ ...world, nests })).toEqual([]);
        }),
        { numRuns: CELLS, endOnFailure: true, interruptAfterTimeLimit: TIME_LIMIT_MS },
      );
      // A slow machine does less, and says so; at length, nothing may be left out.
      if (cells < CELLS)
        console.warn(`only ${cells * NESTS} of ${CELLS * NESTS} cases were tried in the time that there is`);
      expect(cells).toBeGreaterThanOrEqual(AT_LENGTH ? CELLS : 1);
    },
    2 * TIME_LIMIT_MS,
  );
});

type Seen = Readonly<Record<string, string>>;

async function differences(world: World): Promise<string[]> {
  const nests = world.nests.map(placed);
  const person: Approver = {
    decide: async () => ({ outcome: world.agrees ? "approved" : "denied", scope: "once", reason: "the test says so" }),
  };
  await using s = await openSessionIn(projectOf(world), { person, overlays: world.overlays });
  const { dir, corral } = s.project;
  const [sandbox, reads] = await Promise.all(
    ["w", "reader"].map((name) => sandboxOf(corral.project.workers.get(name) as WorkerDefinition, corral.environment)),
  );
  if (sandbox === undefined || reads === undefined) throw new Error("a worker has no sandbox");
  const before = snapshotOf(dir, nests.length);
  const told = {
    nests: nests.map(({ held }) => ({ held })),
    mine: sandbox.mounts.map(({ path }) => path),
    seed: world.seed,
    attempts: ATTEMPTS,
  };
  const attack = await s.exec(
    `exec python3 -c "$(cat <<'END'
${ATTACK}
END
)"`,
    {
      stdin: JSON.stringify(told),
    },
  );
  if (attack.exitCode !== 0) throw new Error(`the attack ended as ${attack.status}: ${attack.stderr}`);
  const found = await unlikeTools(s.session.files, sandbox, seenIn(attack.stdout), [...before.keys()]);
  await s.finish();
  const rules = { sandbox, agrees: world.agrees };
  const after = snapshotOf(dir, nests.length);
  found.push(...forbiddenOnHost(before, after, rules), ...missingOnHost(after, rules));
  const next = await s.project.run("reader");
  if (next.status !== "succeeded")
    return [...found, `the next worker ends as ${next.status}: ${JSON.stringify(next.violations)}${next.stderr}`];
  return [...found, ...unlikeHost(seenIn(next.stdout), after, reads)];
}

interface Entry {
  readonly type: "file" | "directory" | "link";
  readonly inode: number;
  /** Of a file. */
  readonly text: string;
}

/** All that the host has in the folders of the nests, by its virtual path. */
function snapshotOf(dir: string, nests: number): Map<VirtualPath, Entry> {
  const entries = new Map<VirtualPath, Entry>();
  const add = (path: string): void => {
    const host = join(dir, path);
    const stats = fs.lstatSync(host);
    const type = stats.isDirectory() ? "directory" : stats.isSymbolicLink() ? "link" : "file";
    entries.set(path as VirtualPath, {
      type,
      inode: stats.ino,
      text: type === "file" ? fs.readFileSync(host, "utf8") : "",
    });
    if (type === "directory") for (const name of fs.readdirSync(host)) add(`${path}/${name}`);
  };
  for (let index = 0; index < nests; index += 1) add(`/g${index}`);
  return entries;
}

/** What a cell shows after the attack must be what the tools of the same session show. A view has what a command left in it. */
async function unlikeTools(
  files: GuardedFiles,
  sandbox: Sandbox,
  seen: Seen,
  others: readonly VirtualPath[],
): Promise<string[]> {
  const found: string[] = [];
  for (const path of new Set([...Object.keys(seen), ...others]) as Set<VirtualPath>) {
    const told = await textOf(files, path);
    const inCell = seen[path] ?? null;
    const mount = governingMount(sandbox, path);
    const isHidden = inCell !== null && mount !== undefined && !canRead(sandbox, path, { size: inCell.length });
    if (told === inCell || (told === null && isHidden && deliveryOf(mount) === "view")) continue;
    found.push(`${path}: the tools read ${JSON.stringify(told)}, the cell ${JSON.stringify(inCell)}`);
  }
  return found;
}

async function textOf(files: GuardedFiles, path: VirtualPath): Promise<string | null> {
  try {
    return (await files.bytes(path, { maxBytes: 1000 })).toString();
  } catch (error) {
    if (error instanceof SandboxError) return null;
    throw error;
  }
}

interface Rules {
  readonly sandbox: Sandbox;
  readonly agrees: boolean;
}

/** Whether a change can have reached the host. */
function allows({ sandbox, agrees }: Rules, act: ChangeOperation, path: VirtualPath, { type, text }: Entry): boolean {
  const mount = governingMount(sandbox, path);
  const facts = { directory: type === "directory", size: act === "delete" ? 0 : text.length };
  if (mount === undefined || mount.discard || checkWrite(sandbox, path, facts) !== null) return false;
  const consent = consentTo(sandbox, path, act);
  return consent === "pre_approved" || (consent === "ask" && agrees);
}

function forbiddenOnHost(
  before: ReadonlyMap<VirtualPath, Entry>,
  after: ReadonlyMap<VirtualPath, Entry>,
  rules: Rules,
): string[] {
  const found: string[] = [];
  const { mounts } = rules.sandbox;
  for (const [path, was] of before) {
    const is = after.get(path);
    const isHeld = mounts.some((mount) => covers(path, mount.path));
    const isOwnFile = was.type === "file" && mounts.some((mount) => mount.path === path);
    if (isHeld && (is?.type !== was.type || (!isOwnFile && is.inode !== was.inode)))
      found.push(`${path}: it is no longer in its place on the host`);
    if (is === undefined || is.type !== was.type) {
      if (!allows(rules, "delete", path, was)) found.push(`${path}: it was removed from the host`);
    } else if (is.text !== was.text && !allows(rules, "write", path, is))
      found.push(`${path}: it was changed on the host`);
  }
  for (const [path, is] of after) {
    if (before.get(path)?.type !== is.type && !allows(rules, "write", path, is))
      found.push(`${path}: it was made on the host`);
  }
  return found;
}

/** What every worker may leave in its mounts must get there too. */
function missingOnHost(after: ReadonlyMap<VirtualPath, Entry>, rules: Rules): string[] {
  const mine: Entry = { type: "file", inode: 0, text: "mine" };
  return rules.sandbox.mounts.flatMap(({ path }) => {
    const at = `${path}/mine.md` as VirtualPath;
    const isThere = after.get(at)?.text === mine.text;
    const isFile = after.get(path)?.type === "file";
    return isFile || isThere === allows(rules, "write", at, mine)
      ? []
      : [`${at}: it is ${isThere ? "" : "not "}on the host`];
  });
}

/** The next worker has the inner mounts alone, and only reads. */
function unlikeHost(seen: Seen, after: ReadonlyMap<VirtualPath, Entry>, sandbox: Sandbox): string[] {
  const expected = [...after].flatMap(([path, { type, text }]) =>
    type === "file" && canRead(sandbox, path, { size: text.length }) ? [[path, text] as const] : [],
  );
  const [found, there] = [new Map(Object.entries(seen)), new Map<string, string>(expected)];
  return [...new Set([...found.keys(), ...there.keys()])].flatMap((path) =>
    found.get(path) === there.get(path)
      ? []
      : [
          `${path}: the next worker reads ${JSON.stringify(found.get(path))}, and the host has ${JSON.stringify(there.get(path))}`,
        ],
  );
}
