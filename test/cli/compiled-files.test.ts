import { spawnSync } from "node:child_process";
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { PROGRAM } from "./program.ts";

const LOADER = join(import.meta.dirname, "../../src/cli/compiled-files.ts");
const START = `const [loader, dir, kept, name, status] = process.argv.slice(1);
import(loader).then(({ compiledFiles }) => {
  process.stdout.write(String(compiledFiles(dir, kept)(name).said()));
  process.exitCode = Number(status);
});`;

let dir = "";
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "corral-compiled-"));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

/** A pack with one module. */
const file = (said: string, pack = "a") =>
  `({"${pack}:one": function (exports) { exports.said = () => ${JSON.stringify(said)}; }})`;

function loaded(name: string, status = 0): string {
  const kept = join(dir, "kept", "run");
  const { stdout, stderr } = spawnSync(process.execPath, ["-e", START, LOADER, dir, kept, name, `${status}`], {
    encoding: "utf8",
  });
  expect(stderr).toBe("");
  return stdout;
}

/** What a file says after its content was replaced by another of the same length: only a kept form still says the first. */
async function afterReplacement(name: string, between: () => Promise<void> = async () => {}): Promise<string> {
  await rm(kept(), { force: true });
  const pack = name.slice(0, 1);
  await writeFile(join(dir, name), file("first", pack));
  expect(loaded(`${pack}:one`)).toBe("first");
  await writeFile(join(dir, name), file("other", pack));
  await between();
  return loaded(`${pack}:one`);
}

const kept = () => join(dir, "kept", "run");

describe("what V8 compiled of a file of the bundle", () => {
  it("is used by the next start", async () => {
    expect(await afterReplacement("a-0Ab_-9Zz.cjs")).toBe("first");
    expect((await stat(kept())).mode & 0o777).toBe(0o600);
    expect(await readdir(join(dir, "kept"))).toEqual(["run"]);
  });

  it("is of no file whose name says nothing of its content", async () => {
    await writeFile(join(dir, "a.cjs"), file("first"));
    const { stderr } = spawnSync(process.execPath, ["-e", START, LOADER, dir, kept(), "a:one", "0"], {
      encoding: "utf8",
    });
    expect(stderr).toContain("Cannot find module 'a:one'");
    expect(await readdir(dir)).toEqual(["a.cjs"]);
  });

  it("is not used if another user could have written it", async () => {
    expect(await afterReplacement("a-0Ab_-9Zz.cjs", () => chmod(kept(), 0o620))).toBe("other");
    expect(await afterReplacement("b-0Ab_-9Zz.cjs", () => chmod(kept(), 0o602))).toBe("other");
  });

  it("is compiled again if it is cut, or is nothing of the kind", async () => {
    const half = async () => await truncate(kept(), Math.floor((await stat(kept())).size / 2));
    expect(await afterReplacement("a-0Ab_-9Zz.cjs", half)).toBe("other");
    for (const text of ["", "\n", "[]", '[["b-0Ab_-9Zz.cjs",99]]\n', '{"a":1}\n'])
      expect(await afterReplacement("b-0Ab_-9Zz.cjs", () => writeFile(kept(), text)), text).toBe("other");
  });

  it("is kept together with that of other files, and without that of files that are gone", async () => {
    for (const pack of ["a", "b"]) {
      await writeFile(join(dir, `${pack}-00000000.cjs`), file(pack, pack));
      loaded(`${pack}:one`);
    }
    expect(await readFile(kept(), "latin1")).toMatch(/^\[\["a-.*"b-/);
    await rm(join(dir, "a-00000000.cjs"));
    await writeFile(join(dir, "c-00000000.cjs"), file("c", "c"));
    loaded("c:one");
    expect(await readFile(kept(), "latin1")).toMatch(/^\[\["b-.*"c-/);
  });

  it("is not kept of a command that failed", async () => {
    await writeFile(join(dir, "a-00000000.cjs"), file("a"));
    expect(loaded("a:one", 1)).toBe("a");
    expect(await readdir(dir)).toEqual(["a-00000000.cjs"]);
  });
});

describe("the command line", () => {
  const start = (stateDir: string, ...args: readonly string[]) =>
    spawnSync(process.execPath, [PROGRAM, ...args], { env: { ...process.env, CORRAL_STATE_DIR: stateDir } }).status;
  const names = async (stateDir: string) => await readdir(stateDir, { recursive: true });

  it("keeps it for each command, in the state directory, if no other user can write there", async () => {
    const own = join(dir, "own");
    await mkdir(own, { mode: 0o700 });
    // Twice, because the help alone is a text that needs no code.
    expect(start(own, "run", "-h", "-h")).toBe(0);
    expect(start(own, "-h", "-h")).toBe(0);
    expect(start(own, "no-command")).toBe(2);
    expect(start(own, "nocommand")).toBe(2);
    const version = `compiled/${process.version}-${process.arch}`;
    expect((await names(own)).sort()).toEqual(["compiled", version, `${version}/other`, `${version}/run`]);
    const open = join(dir, "open");
    await mkdir(open);
    await chmod(open, 0o770);
    expect(start(open, "-h", "-h")).toBe(0);
    expect(await names(open)).toEqual([]);
    expect(start(join(dir, "absent"), "-h", "-h")).toBe(0);
    expect((await readdir(dir)).sort()).toEqual(["open", "own"]);
  });
});
