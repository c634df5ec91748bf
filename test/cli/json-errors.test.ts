import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { main } from "../../src/cli/program.ts";
import type { Terminal } from "../../src/cli/terminal/terminal.ts";

let base: string;

beforeAll(async () => {
  base = await mkdtemp(join(tmpdir(), "corral-json-errors-"));
  await mkdir(join(base, "good/workers"), { recursive: true });
  await mkdir(join(base, "bad/workers"), { recursive: true });
  await mkdir(join(base, "none"));
  for (const name of ["good", "bad"]) await writeFile(join(base, name, "corral.yaml"), "version: 1\n");
  await writeFile(join(base, "good/workers/w.worker"), "---\ncommand: [run]\n---\n");
  await writeFile(join(base, "bad/workers/w.worker"), "---\ncommand: [x]\ncpus: 1\noutput: xml\n---\n");
  await writeFile(join(base, "file"), "");
});
afterAll(() => rm(base, { recursive: true }));

/** `at`: the folder of the project; null: none is named, and there is none around the working directory. */
async function corral(args: readonly string[], { at = "good" as string | null, env = {} } = {}) {
  const text = { stdout: "", stderr: "" };
  const stream = (name: "stdout" | "stderr") => ({
    write: (piece: string) => (text[name] += piece),
    on: () => {},
    off: () => {},
  });
  const terminal = {
    env: { CORRAL_STATE_DIR: join(base, "state"), DOCKER_HOST: `unix://${join(base, "nowhere.sock")}`, ...env },
    cwd: join(base, "none"),
    stdin: { isTTY: false },
    stdout: stream("stdout"),
    stderr: stream("stderr"),
    onStop: () => () => {},
  } as unknown as Terminal;
  const named = at === null ? args : ["--project", join(base, at), ...args];
  return { status: await main(named, terminal), ...text };
}

const verbsIn = (help: string): string[] =>
  [...help.slice(help.indexOf("Commands:")).matchAll(/^ {2}([a-z]+)/gm)].map(([, name = ""]) => name);

/** Every verb whose help has `--json`. */
async function verbsWithJson(): Promise<string[][]> {
  const found: string[][] = [];
  for (const verb of verbsIn((await corral(["--help"])).stdout)) {
    const { stdout } = await corral([verb, "--help"]);
    const below = stdout.includes("\nCommands:") ? verbsIn(stdout) : [];
    for (const words of below.length === 0 ? [[verb]] : below.map((name) => [verb, name]))
      if (/^ {2}--json /m.test((await corral([...words, "--help"])).stdout)) found.push(words);
  }
  return found;
}

describe("an error of a verb with --json", () => {
  it("is one object on standard output for wrong usage of every such verb, and a text on standard error", async () => {
    const verbs = await verbsWithJson();
    expect(verbs.length).toBeGreaterThan(20);
    for (const words of verbs) {
      const { status, stdout, stderr } = await corral([...words, "--no-such-option", "--json"]);
      expect([words, status, JSON.parse(stdout)]).toMatchObject([words, 2, { error: { code: "WRONG_USAGE" } }]);
      expect(stderr).toContain("unknown option '--no-such-option'");
    }
  });

  const missing = "0123456789ab";
  it.each([
    ["explain x --json", {}, 2, "UNKNOWN_WORKER"],
    ["explain w --json --policy nope", {}, 2, "UNKNOWN_POLICY"],
    ["explain w --json", { at: null }, 2, "WRONG_USAGE"],
    ["explain w --json", { at: "bad" }, 2, "WRONG_DECLARATION"],
    [`fleet show ${missing} --json`, {}, 2, "UNKNOWN_FLEET"],
    [`changes show ${missing} --json`, {}, 2, "UNKNOWN_CHANGESET"],
    ["ps --json", {}, 125, "ENGINE_UNAVAILABLE"],
    ["run w --json", {}, 125, "ENGINE_UNAVAILABLE"],
    ["run w --json", { env: { CORRAL_STATE_DIR: "/dev/null/state" } }, 125, "STATE_DIRECTORY"],
    ["fleet --json", {}, 2, "WRONG_USAGE"],
    ["rnu --json", {}, 2, "WRONG_USAGE"],
  ])("says what failed: corral %s", async (line, where, status, code) => {
    const ended = await corral(line.split(" "), where);
    const { error } = JSON.parse(ended.stdout) as { error: { message: string } };
    expect([ended.status, error]).toMatchObject([status, { code, message: expect.stringMatching(/^(?!corral:)./) }]);
    expect(ended.stderr).toContain(error.message.split("\n")[0]);
  });

  it("has every mistake of a file at its place", async () => {
    const { stdout } = await corral(["explain", "w", "--json"], { at: "bad" });
    const { problems } = JSON.parse(stdout).error;
    expect(problems).toMatchObject([
      { file: expect.stringMatching(/w\.worker$/), line: 3, column: 1, path: "cpus" },
      { file: expect.stringMatching(/w\.worker$/), line: 4, column: 9, path: "output" },
    ]);
  });

  it("stays text alone without --json, and if only the worker's own words have it", async () => {
    expect(await corral(["explain", "x"])).toMatchObject({ status: 2, stdout: "" });
    expect(await corral(["explain", "x", "--", "--json"])).toMatchObject({ status: 2, stdout: "" });
  });
});

describe("--project", () => {
  it("may be said before the verb, also as -C, and after it; the later one holds", async () => {
    for (const args of [
      ["-C", "PLACE", "check"],
      ["--project", "PLACE", "check"],
      ["check", "-C", "PLACE"],
      ["-C", "/nowhere", "check", "--project", "PLACE"],
    ]) {
      const at = args.map((word) => word.replace("PLACE", join(base, "good")));
      expect(await corral([...at, "--json"], { at: null }), args.join(" ")).toMatchObject({ status: 0 });
    }
    expect(await corral(["-C", "", "check"])).toMatchObject({ status: 2 });
  });
});

describe("-V", () => {
  it("is --version", async () => {
    expect(await corral(["-V"])).toEqual(await corral(["--version"]));
    expect((await corral(["-V"])).stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
  });
});
