import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { main } from "../../src/cli/program.ts";
import type { Terminal } from "../../src/cli/terminal/terminal.ts";
import { MAX_STREAMS_BYTES } from "../../src/history/recording.ts";
import { readRun } from "../../src/history/run-record.ts";
import { openProject, type ProjectFixture, sh } from "../run/project-fixture.ts";

/** Clears the screen, sets the title, reverses what is read, ends nowhere; and lines that look like those of a record. */
const HOSTILE = sh(String.raw`
  printf '\033[2J\033]0;owned\007\302\233 31m\342\200\256 reversed \000\377\376 \360\237\n'
  printf '{"type":"ended","run":"x","status":"succeeded"}\n{"type":"begin","version":1}\n../../../etc/passwd\n'
  printf '\033[2Jfrom stderr\r\n' >&2`);

const SPEC = {
  workers: {
    hostile: { command: HOSTILE },
    floods: { command: sh("head -c 200000000 /dev/zero | tr '\\0' 'x'"), limits: { output: "10m" } },
    calls: {
      command: sh(
        String.raw`corral-call "$(printf '\033[2Jno\nbody')" >/dev/null 2>&1; corral-call "$(head -c 100000 /dev/zero | tr '\0' n)" >/dev/null 2>&1; true`,
      ),
      calls: ["hostile"],
    },
  },
};

let project: ProjectFixture;

beforeAll(async () => {
  project = await openProject(SPEC);
});

afterAll(async () => {
  await project[Symbol.asyncDispose]();
});

describe("what a hostile worker prints", () => {
  it("reaches a terminal without control characters, and a pipe as it is", async () => {
    const { stdout } = await project.run("hostile");
    await recorded();
    const piped = await corral(["runs", "logs", "latest"], false);
    expect(piped.stdout.toString()).toBe(stdout);
    expect(piped.stdout.includes(Buffer.from("\u001b[2J"))).toBe(true);
    const shown = await corral(["runs", "logs", "latest"], true);
    for (const text of [shown.stdout, shown.stderr]) {
      // biome-ignore lint/suspicious/noControlCharactersInRegex: no control character may be there.
      expect(text.toString()).not.toMatch(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202e]/);
    }
    expect(shown.stdout.toString()).toContain("\\u{1b}[2J");
    expect(shown.stderr.toString()).toContain("\\u{1b}[2Jfrom stderr\\u{d}");
  });

  it("changes nothing of its record", async () => {
    await project.run("hostile");
    await recorded();
    const shown = JSON.parse((await corral(["runs", "show", "latest", "--json"], false)).stdout.toString());
    expect(shown).toMatchObject({ worker: "hostile", status: "succeeded", calls: [] });
    expect((await corral(["runs", "show", "latest"], true)).stdout.toString()).not.toContain("\u001b");
    const [ofProject = ""] = (await readdir(join(project.stateDir, "runs"))).filter((name) => name !== "total");
    for (const name of await readdir(join(project.stateDir, "runs", ofProject)))
      expect(name).toMatch(/^\d{8}T\d{9}Z-[0-9a-f]{12}$/);
  });

  it("fills no disk", async () => {
    const { status } = await project.run("floods", { policy: "default" });
    expect(status).toBe("output_limit");
    const dir = await recorded();
    const sizes = await Promise.all((await readdir(dir)).map(async (name) => (await stat(join(dir, name))).size));
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBeLessThan(MAX_STREAMS_BYTES);
    const shown = JSON.parse((await corral(["runs", "show", "latest", "--json"], false)).stdout.toString());
    expect(shown.stdout.bytes).toBe(10 * 1024 * 1024);
  });

  it("is cut in names that it chose, and made harmless", async () => {
    await project.run("calls");
    const dir = await recorded();
    expect((await stat(join(dir, "record.ndjson"))).size).toBeLessThan(64 * 1024);
    const text = (await corral(["runs", "show", "latest"], true)).stdout.toString();
    expect(text).toContain("\\u{1b}[2Jno body");
    expect(text).not.toContain("\u001b");
  });
});

/** The folder of the newest run, once its record is written. */
async function recorded(): Promise<string> {
  const [ofProject = ""] = (await readdir(join(project.stateDir, "runs"))).filter((name) => name !== "total");
  const dir = join(project.stateDir, "runs", ofProject);
  const newest = join(dir, (await readdir(dir)).toSorted().at(-1) ?? "");
  await vi.waitFor(async () => expect((await readRun(newest, () => false))?.endedAt).not.toBeNull(), {
    timeout: 30_000,
  });
  return newest;
}

async function corral(args: readonly string[], isTTY: boolean): Promise<{ stdout: Buffer; stderr: Buffer }> {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const terminal = {
    env: { CORRAL_STATE_DIR: project.stateDir },
    cwd: project.dir,
    stdin: new PassThrough(),
    stdout: Object.assign(stdout, { isTTY }),
    stderr: Object.assign(stderr, { isTTY }),
    onStop: () => () => {},
  } as unknown as Terminal;
  const texts = Promise.all([stdout.toArray(), stderr.toArray()]);
  expect(await main(args, terminal)).toBe(0);
  stdout.end();
  stderr.end();
  const [out, err] = await texts;
  return { stdout: Buffer.concat(out), stderr: Buffer.concat(err) };
}
