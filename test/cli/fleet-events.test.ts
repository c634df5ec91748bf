import { execFileSync } from "node:child_process";
import fs from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { EventSink } from "../../src/cli/fleet/event-sink.ts";
import { commandWords, notified } from "../../src/cli/fleet/ran-fleet.ts";
import type { FleetSummary } from "../../src/fleet/running/events.ts";

let dir: string;
let faults: string[];

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "corral-events-"));
  faults = [];
});

afterEach(async () => {
  await rm(dir, { recursive: true });
});

const open = (target: string): EventSink =>
  EventSink.open(target, { cwd: dir, stdout: process.stdout }, (why) => faults.push(why));

function fifo(): { readonly path: string; readonly reader: number } {
  const path = join(dir, "fifo");
  execFileSync("mkfifo", [path]);
  return { path, reader: fs.openSync(path, fs.constants.O_RDONLY | fs.constants.O_NONBLOCK) };
}

function taken(reader: number): string {
  const chunk = Buffer.alloc(1024 * 1024);
  let text = "";
  try {
    for (let read = fs.readSync(reader, chunk); read > 0; read = fs.readSync(reader, chunk))
      text += chunk.toString("utf8", 0, read);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EAGAIN") throw error;
  }
  return text;
}

describe("a sink of events", () => {
  it("appends to a file", async () => {
    fs.writeFileSync(join(dir, "events"), "before\n");
    const sink = open("events");
    for (const line of ["a\n", "b\n"]) sink.write(line);
    await sink.end();
    expect(await readFile(join(dir, "events"), "utf8")).toBe("before\na\nb\n");
    expect(faults).toEqual([]);
  });

  it("never waits for a slow reader: it keeps a bounded number of lines, whole ones, and counts the others", async () => {
    const { path, reader } = fifo();
    const sink = open(path);
    const line = `${JSON.stringify({ type: "progress", text: "x".repeat(1000) })}\n`;
    const begun = performance.now();
    for (let count = 0; count < 5000; count += 1) sink.write(line);
    expect(performance.now() - begun).toBeLessThan(20_000);
    let text = "";
    for (let idle = 0; idle < 10; idle += 1) {
      const more = taken(reader);
      if (more !== "") idle = 0;
      text += more;
      await new Promise((wake) => setTimeout(wake, 20));
    }
    sink.write('{"type":"last"}\n');
    await sink.end();
    text += taken(reader);
    fs.closeSync(reader);
    const events = text
      .trimEnd()
      .split("\n")
      .map((each) => JSON.parse(each) as { type: string; count?: number });
    const kept = events.filter(({ type }) => type === "progress").length;
    expect(kept).toBeGreaterThan(900);
    expect(events.slice(-2)).toEqual([{ type: "events_dropped", count: 5000 - kept }, { type: "last" }]);
  });

  it("gives up after a moment at its end, and says so", async () => {
    const { path, reader } = fifo();
    const sink = open(path);
    for (let count = 0; count < 200; count += 1) sink.write(`${"x".repeat(1000)}\n`);
    await sink.end();
    fs.closeSync(reader);
    expect(faults).toEqual(["its reader did not take all events"]);
  });

  it("says once that its reader has closed it", async () => {
    const { path, reader } = fifo();
    const sink = open(path);
    fs.closeSync(reader);
    for (let count = 0; count < 10; count += 1) sink.write("x\n");
    await sink.end();
    expect(faults).toEqual(["its reader has closed it"]);
  });

  it("is refused where no program reads a FIFO", () => {
    const { path, reader } = fifo();
    fs.closeSync(reader);
    expect(() => open(path)).toThrow("no program reads this FIFO");
  });
});

describe("the command of --notify", () => {
  it.each([
    ["mail -s done me", ["mail", "-s", "done", "me"]],
    [`sh -c 'jq . > "x y"'`, ["sh", "-c", 'jq . > "x y"']],
    [`  a"b c"d 'e' \\' "q\\"r" '' `, ["ab cd", "e", "'", 'q"r', ""]],
  ])("is read as words: %s", (text, words) => {
    expect(commandWords(text)).toEqual(words);
  });

  it.each([
    "a | b",
    "a > b",
    "a; b",
    "a && b",
    "echo $HOME",
    "echo `id`",
    "ls *",
    "~/bin/x",
    "a 'b",
    'a "b',
    "a\nb",
    " ",
    "a \\",
  ])("is refused where only a shell knows what it means: %j", (text) => {
    expect(() => commandWords(text)).toThrow(/--notify/);
  });

  const summary = { fleet: "0123456789ab" } as FleetSummary;
  const never = new AbortController().signal;

  it("gets the summary, and its failure is a warning", async () => {
    const run = async (...words: string[]) => await notified(words, summary, { cwd: dir, env: process.env }, never);
    expect(await run("sh", "-c", "cat > got")).toBeNull();
    expect(JSON.parse(await readFile(join(dir, "got"), "utf8"))).toEqual(summary);
    expect(await run("true")).toBeNull();
    expect(await run("sh", "-c", "exit 3")).toBe("corral: warning: --notify sh ended with exit status 3");
    expect(await run("sh", "-c", "kill -9 $$")).toBe("corral: warning: --notify sh was ended by SIGKILL");
    expect(await run("/nowhere/at/all")).toMatch(/could not be started: .*ENOENT/);
  });

  it("is ended by Ctrl-C with what it started", async () => {
    const stop = new AbortController();
    const script = "sleep 60 & echo $! > new; mv new pid; wait";
    const notifying = notified(["sh", "-c", script], summary, { cwd: dir, env: process.env }, stop.signal);
    await expect.poll(() => fs.existsSync(join(dir, "pid"))).toBe(true);
    stop.abort();
    const warning = await notifying;
    expect(warning).toBe("corral: warning: --notify sh was ended by Ctrl-C");
    const pid = Number(await readFile(join(dir, "pid"), "utf8"));
    await expect
      .poll(() => fs.existsSync(`/proc/${pid}/cmdline`) && fs.readFileSync(`/proc/${pid}/cmdline`, "utf8"))
      .toBeFalsy();
  });
});
