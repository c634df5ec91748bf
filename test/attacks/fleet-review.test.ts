import fs from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type CliProject, cliProject, sh } from "../cli/cli-project.ts";

const KEYS = Array.from({ length: 6 }, (_, index) => `i${index}`);
const SCRIPT = `read -r json; it=$(echo "$json" | tr -d '"')
mkdir -p /out/$it; for n in 1 2 3; do echo "$it $n" > /out/$it/f$n; done; printf 'x\\033[2J\\342\\200\\256y' > /out/$it/evil`;

let project: CliProject;
let fleet: string;

/** A fleet of real cells, whose changes wait. */
beforeEach(async () => {
  project = await cliProject({
    yaml: { version: 1, sandbox: { mode: "direct", zones: { out: { path: "out", mode: "rw" } } } },
    workers: {
      w: {
        image: "corral/base",
        command: sh(SCRIPT),
        sandbox: { zones: [{ name: "out", mode: "rw", approval: "ask" }] },
      },
    },
    folders: ["out"],
  });
  const stdin = KEYS.map((key) => `${JSON.stringify({ key })}\n`).join("");
  const map = ["map", "w", "--manifest", "-", "--input", '"{key}"', "--concurrency", "3"];
  const mapped = await project.corral(map, { stdin });
  expect(mapped.status, mapped.stderr).toBe(3);
  fleet = /--fleet ([0-9a-f]{12})/.exec(mapped.stderr)?.[1] ?? "";
});

afterEach(async () => await project[Symbol.asyncDispose]());

const changes = (...args: string[]) => project.corral(["changes", ...args]);
const out = (...parts: string[]) => join(project.dir, "out", ...parts);
const whole = () => Object.fromEntries(KEYS.map((key) => [key, ["evil", "f1", "f2", "f3"]]));
const there = () => Object.fromEntries(fs.readdirSync(out()).map((key) => [key, fs.readdirSync(out(key)).toSorted()]));

async function statuses(): Promise<Record<string, number>> {
  const { stdout } = await project.corral(["fleet", "results", fleet]);
  const counts: Record<string, number> = {};
  for (const line of stdout.trim().split("\n")) {
    const { status } = JSON.parse(line) as { status: string };
    counts[status] = (counts[status] ?? 0) + 1;
  }
  return counts;
}

describe("a fleet's changes under review", () => {
  it("lead nowhere else, where a link was planted between show and apply", async () => {
    expect((await changes("ls", "--fleet", fleet)).status).toBe(0);
    const outside = join(project.stateDir, "outside");
    fs.mkdirSync(outside);
    fs.symlinkSync(outside, out("i0"));
    fs.symlinkSync(join(outside, "f1"), out("i1"));
    const listed = await changes("ls", "--fleet", fleet);
    expect(listed.stdout).toMatch(/^\d+ (conflict|refused): /);
    const applied = await changes("apply", "--fleet", fleet, "--yes");
    expect(applied.status).toBe(1);
    expect(fs.readdirSync(outside)).toEqual([]);
    expect(await statuses()).toEqual({ applied: 4, pending: 2 });
  });

  it("are applied once by two processes at the same time, and each is told what the other did", async () => {
    const both = await Promise.all([0, 1].map(() => changes("apply", "--fleet", fleet, "--yes", "--json")));
    const lines = both.flatMap(({ stdout }) => stdout.split("\n").filter((line) => line !== ""));
    const done = lines.map((line) => JSON.parse(line) as { id: string; changes: { path: string; outcome: string }[] });
    const applied = done.flatMap((one) => one.changes.filter(({ outcome }) => outcome === "applied"));
    expect(new Set(applied.map(({ path }) => path)).size, "nothing is applied twice").toBe(applied.length);
    expect(there()).toEqual(whole());
    expect(await statuses()).toEqual({ applied: KEYS.length });
    if (both.some(({ status }) => status !== 0))
      expect(both.map(({ stderr }) => stderr).join("")).toMatch(/another process/);
  });

  it("are neither lost nor applied twice when the process is killed, whenever that is", {
    timeout: 240_000,
  }, async () => {
    for (const afterLines of [1, 2, 3]) {
      const { child, ended } = project.start(["changes", "apply", "--fleet", fleet, "--yes", "--json"]);
      let seen = 0;
      child.stdout?.on("data", (chunk: Buffer) => {
        seen += chunk.toString().split("\n").length - 1;
        if (seen >= afterLines) child.kill("SIGKILL");
      });
      await ended;
    }
    const last = await changes("apply", "--fleet", fleet, "--yes");
    expect([0, 1], last.stderr).toContain(last.status);
    expect(there()).toEqual(whole());
    for (const key of KEYS) expect(fs.readFileSync(out(key, "f2"), "utf8")).toBe(`${key} 2\n`);
    expect(await statuses()).toEqual({ applied: KEYS.length });
    expect(fs.readdirSync(join(project.stateDir, "changes"))).toEqual([]);
    expect((await changes("ls", "--fleet", fleet)).stderr).toBe("No changes wait.\n");
  });

  it("are not what a digest of something else is for, and cannot be exchanged after they were shown", async () => {
    const [first = ""] = (await changes("show", "--fleet", fleet, "--json")).stdout.split("\n");
    const { id, digest } = JSON.parse(first) as { id: string; digest: string };
    const record = join(project.stateDir, "changes", id, "changeset.json");
    const text = fs.readFileSync(record, "utf8");
    fs.writeFileSync(record, text.replaceAll("/f1", "/f9").replaceAll('"f1"', '"f9"'));
    expect(await changes("apply", id, "--digest", digest, "--yes")).toMatchObject({
      status: 1,
      stderr: expect.stringContaining("not what was shown any more"),
    });
    fs.writeFileSync(record, text);
    fs.appendFileSync(join(project.stateDir, "changes", id, "content", "0", "i0", "f1"), "more");
    const applied = await changes("apply", id, "--digest", digest, "--yes");
    expect(applied.stderr).toMatch(/refused: \/out\/i0\/f1: its new content was changed/);
    expect(fs.existsSync(out("i0", "f1"))).toBe(false);
  });

  it("move no cursor and reverse no text of the terminal", async () => {
    const texts = [
      await changes("diff", "--fleet", fleet),
      await changes("show", "--fleet", fleet),
      await changes("ls", "--fleet", fleet),
    ];
    for (const { stdout, status } of texts) {
      expect(status).toBe(0);
      expect(stdout.replaceAll("\n", "")).not.toMatch(/[\p{Cc}\p{Cf}]/u);
    }
    expect(texts[0]?.stdout).toContain("evil");
  });

  it("are discarded only if that was said, and then all of them", async () => {
    expect(await changes("discard", "--fleet", fleet)).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("--yes"),
    });
    expect(await changes("apply", "--fleet", fleet)).toMatchObject({ status: 1 });
    expect(await statuses()).toEqual({ pending: KEYS.length });
    expect(await changes("discard", "--fleet", fleet, "--yes")).toMatchObject({
      status: 0,
      stdout: `discarded the changes of ${KEYS.length} items\n`,
    });
    expect(there()).toEqual({});
    expect(await statuses()).toEqual({ discarded: KEYS.length });
  });
});
