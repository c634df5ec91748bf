import { type ChildProcess, spawn } from "node:child_process";
import fs from "node:fs";
import { basename, dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { openHostFiles } from "../../src/files/host/host-files.ts";
import { type Files, mountedPlace } from "../../src/files/model/files.ts";
import { SandboxError } from "../../src/sandbox/errors.ts";
import { temporaryFolder } from "../files/temporary-folder.ts";
import { at, mount } from "../sandbox/sandboxes.ts";
import { AT_LENGTH } from "../tiers/at-length.ts";

const CANARY = "CANARY: nobody in the sandbox may read or change this";
const OPERATIONS = AT_LENGTH ? 20_000 : 4000;
/** The naive way fails within moments; this is when the test gives up waiting for it. */
const NAIVE_LIMIT_MS = 30_000;

let folder: ReturnType<typeof temporaryFolder>;
let shared: string;
let outside: string;
let flipper: ChildProcess;

beforeEach(async () => {
  folder = temporaryFolder();
  shared = join(folder.path, "shared");
  outside = join(folder.path, "outside");
  for (const path of [join(shared, "folder"), join(shared, "outer/inner"), outside]) {
    fs.mkdirSync(path, { recursive: true });
    fs.writeFileSync(join(path, "canary"), path === outside ? CANARY : "theirs");
  }
  fs.writeFileSync(join(shared, "file"), "theirs");
  const script = join(import.meta.dirname, "flipper.ts");
  flipper = spawn(process.execPath, [script, shared, outside], { stdio: ["ignore", "pipe", "inherit"] });
  await new Promise((resolve) => flipper.stdout?.once("data", resolve));
});

afterEach(async () => {
  const gone = new Promise((resolve) => flipper.once("exit", resolve));
  flipper.kill("SIGKILL");
  await gone;
  folder.remove();
});

/** The operations of a worker, on paths relative to the shared folder. */
interface Victim {
  read(path: string): Promise<string>;
  write(path: string, content: string): Promise<unknown>;
  append(path: string, content: string): Promise<unknown>;
  copy(from: string, to: string): Promise<unknown>;
  move(from: string, to: string): Promise<unknown>;
  delete(path: string): Promise<unknown>;
}

const targets = ["file", "folder/canary", "outer/inner/canary"];

/** The list that both victims work through: each kind of operation on each kind of place. */
const list: readonly ((victim: Victim, target: string) => Promise<unknown>)[] = [
  (victim, target) => victim.read(target),
  (victim, target) => victim.write(target, "ours"),
  (victim, target) => victim.read(target),
  (victim, target) => victim.append(target, "ours"),
  (victim, target) => victim.copy(target, "taken"),
  (victim) => victim.read("taken"),
  (victim, target) => victim.copy("taken", target),
  (victim, target) => victim.write(join(dirname(target), "new"), "ours"),
  (victim, target) => victim.move(join(dirname(target), "new"), "moved"),
  (victim, target) => victim.move("moved", join(dirname(target), basename(target))),
  (victim, target) => victim.delete(target),
];

/** What became of the canary and of what stands around it. */
function damage(): string[] {
  const found: string[] = [];
  const names = fs.readdirSync(outside);
  if (names.join() !== "canary") found.push(`outside holds ${names.join()}`);
  else if (fs.readFileSync(join(outside, "canary"), "utf8") !== CANARY) found.push("the canary was changed");
  return found;
}

/** Works through the list; answers what went wrong, at the latest after the operation that did it. */
async function attack(
  victim: Victim,
  until: (done: number) => boolean,
): Promise<{ done: number; refused: number; found: string[] }> {
  let refused = 0;
  let done = 0;
  for (; !until(done); done++) {
    const operation = list[done % list.length];
    const target = targets[Math.floor(done / list.length) % targets.length];
    if (operation === undefined || target === undefined) throw new RangeError("the list is empty");
    try {
      const content = await operation(victim, target);
      if (typeof content === "string" && content.includes("CANARY")) return { done, refused, found: ["it was read"] };
    } catch (error) {
      if (!(error instanceof SandboxError) && !isErrno(error)) throw error;
      refused++;
    }
    const found = damage();
    if (found.length > 0) return { done, refused, found };
  }
  return { done, refused, found: [] };
}

function isErrno(error: unknown): boolean {
  return error instanceof Error && "syscall" in error;
}

function guardedVictim(files: Files): Victim {
  const mounts = [mount("/data", "rw")];
  const place = (path: string) => {
    const found = mountedPlace(mounts, at(`/data/${path}`));
    if (found === null) throw new RangeError(path);
    return found;
  };
  return {
    read: async (path) => {
      const read = await files.read(place(path));
      return read.type === "text" ? read.content : "";
    },
    write: (path, content) => files.write(place(path), content),
    append: (path, content) => files.append(place(path), content),
    copy: (from, to) => files.copy(place(from), place(to), { overwrite: true }),
    move: (from, to) => files.move(place(from), place(to), { overwrite: true }),
    delete: (path) => files.delete(place(path)),
  };
}

/** What is often written: resolve the path, check that it is inside, then open it. */
function naiveVictim(): Victim {
  const checked = async (path: string): Promise<string> => {
    const host = join(shared, path);
    const real = await fs.promises
      .realpath(host)
      .catch(async () => join(await fs.promises.realpath(dirname(host)), "new"));
    if (!real.startsWith(`${shared}/`)) throw new SandboxError("PATH_NOT_IN_SANDBOX", path, "outside");
    return host;
  };
  return {
    read: async (path) => fs.promises.readFile(await checked(path), "utf8"),
    write: async (path, content) => fs.promises.writeFile(await checked(path), content),
    append: async (path, content) => fs.promises.appendFile(await checked(path), content),
    copy: async (from, to) => fs.promises.copyFile(await checked(from), await checked(to)),
    move: async (from, to) => fs.promises.rename(await checked(from), await checked(to)),
    delete: async (path) => fs.promises.unlink(await checked(path)),
  };
}

describe("while another process flips a file, a folder and a folder above between themselves and links to a canary", () => {
  it(`${OPERATIONS} reads, writes, copies, moves and deletes never read or change the canary`, async () => {
    using files = openHostFiles([{ path: at("/data"), host: shared }]);
    const { done, refused, found } = await attack(guardedVictim(files), (count) => count >= OPERATIONS);
    expect({ done, found }).toEqual({ done: OPERATIONS, found: [] });
    // Both happen, or the flipping was not seen at all.
    expect(refused).toBeGreaterThan(100);
    expect(done - refused).toBeGreaterThan(1000);
  });

  it("the same list, done by checking the path and then opening it, does", async () => {
    const end = performance.now() + NAIVE_LIMIT_MS;
    const { found } = await attack(naiveVictim(), () => performance.now() > end);
    expect(found).not.toEqual([]);
  });
});
