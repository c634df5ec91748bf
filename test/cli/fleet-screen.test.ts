import { EventEmitter } from "node:events";
import { stripVTControlCharacters } from "node:util";
import fc from "fast-check";
import pc from "picocolors";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { drawFleet } from "../../src/cli/fleet/live-screen.ts";
import { fleetScreenFor } from "../../src/cli/fleet/ran-fleet.ts";
import { progressText } from "../../src/cli/fleet/text.ts";
import { FleetWitness, RecentRate } from "../../src/cli/fleet/witness.ts";
import { columnsOf, type FleetScreen, type Terminal } from "../../src/cli/terminal/terminal.ts";
import type { ItemResult } from "../../src/fleet/model/item.ts";
import type { FleetEvent, FleetSummary } from "../../src/fleet/running/events.ts";
import { result } from "../fleet/report/report-fleet.ts";

const HOSTILE = "evil\u001b[2J\u009b31m\u202e\nkey";

class FakeStream extends EventEmitter {
  readonly isTTY: boolean;
  readonly columns = 80;
  readonly rows = 24;
  text = "";
  writes = 0;

  constructor(isTTY: boolean) {
    super();
    this.isTTY = isTTY;
  }

  write(chunk: string): boolean {
    this.text += chunk;
    this.writes += 1;
    return true;
  }
}

function fakeTerminal(tty: { readonly stdout?: boolean; readonly stderr?: boolean } = {}) {
  const stdout = new FakeStream(tty.stdout ?? false);
  const stderr = new FakeStream(tty.stderr ?? false);
  const terminal = { env: {}, cwd: "/", stdout, stderr } as unknown as Terminal;
  return { terminal, stdout, stderr };
}

async function screenOn(terminal: Terminal, json = false): Promise<FleetScreen> {
  const screen = await fleetScreenFor(terminal, { json });
  onTestFinished(() => screen[Symbol.dispose]());
  return screen;
}

const loaded = (items: number, done = 0): FleetEvent => ({ type: "loaded", fleet: "0123456789ab", items, done });
const started = (index: number, key = `item ${index}`, attempt = 1): FleetEvent => ({
  type: "started",
  index,
  key,
  attempt,
  at: 0,
});
const settled = (index: number, special: Partial<ItemResult> = {}, retryInMs: number | null = null): FleetEvent => ({
  type: "settled",
  result: result(index, special),
  retryInMs,
  at: 0,
});
const failure = { status: "failed", exitCode: 1, error: { code: "EXIT", message: "ended with 1" } } as const;

const SUMMARY: FleetSummary = {
  fleet: "0123456789ab",
  state: "done",
  why: null,
  items: 10,
  done: 10,
  byStatus: { timed_out: 1, succeeded: 7, cached: 2 },
  byReason: { TIMED_OUT: 1 },
  failures: [{ count: 1, status: "timed_out", code: "TIMED_OUT", text: "page 7 of 9", example: "inbox/7.pdf" }],
  durationMs: 12_400,
};

describe("a fleet where standard error is no terminal", () => {
  it("is told at its start, each 10 % and its end, on standard error alone", async () => {
    const { terminal, stdout, stderr } = fakeTerminal();
    const screen = await screenOn(terminal);
    screen.see(loaded(1000));
    for (let index = 0; index < 1000; index += 1) {
      screen.see(started(index));
      screen.see(settled(index));
    }
    screen.end(SUMMARY);
    const lines = stderr.text.trimEnd().split("\n");
    expect(lines[0]).toBe("corral: fleet 0123456789ab: 1,000 items");
    expect(lines.filter((line) => line.includes(" of 1,000 done (")).map((line) => line.match(/\d+%/)?.[0])).toEqual(
      [10, 20, 30, 40, 50, 60, 70, 80, 90].map((percent) => `${percent}%`),
    );
    expect(lines.slice(10)).toEqual([
      "corral: fleet 0123456789ab is done after 12.4s, 10 of 10 items done",
      "  7  succeeded",
      "  2  cached",
      "  1  timed out",
      "corral: failures:",
      "  1 item: timed out: page 7 of 9 (e.g. inbox/7.pdf)",
      "corral: `corral fleet results 0123456789ab --jsonl` lists each, `corral fleet retry 0123456789ab --failed` retries them",
    ]);
    expect(stdout.text).toBe("");
  });

  it("tells a slow fleet's progress every 10 seconds", async () => {
    vi.useFakeTimers();
    onTestFinished(() => {
      vi.useRealTimers();
    });
    const { terminal, stderr } = fakeTerminal();
    const screen = await screenOn(terminal);
    screen.see(loaded(1000));
    screen.see(settled(0));
    vi.advanceTimersByTime(35_000);
    expect(stderr.text.match(/1 of 1,000 done \(0%\)/g)).toHaveLength(3);
  });

  it("says of a file that cannot be converted that this is not possible, and counts it as no failure", async () => {
    const { terminal, stderr } = fakeTerminal();
    const screen = await screenOn(terminal);
    const damaged = { status: "not_possible", exitCode: 0, error: { code: "damaged", message: "damaged: no end" } };
    screen.see(loaded(10));
    for (const [index, special] of [damaged, failure, {}].entries()) {
      screen.see(started(index));
      screen.see(settled(index, special as Partial<ItemResult>));
    }
    expect(stderr.text).toContain("inbox/0.pdf not possible: damaged: no end\n");
    expect(stderr.text).toMatch(/: 3 of 10 done \(30%\), 1 failed, 1 not possible, 0 running/);
    const witness = new FleetWitness();
    for (const event of [loaded(10), started(0), settled(0, damaged as Partial<ItemResult>)]) witness.see(event);
    const drawing = drawFleet(witness.view(), {
      columns: 100,
      rows: 24,
      colors: pc.createColors(false),
      memoryBytes: 1e8,
    });
    expect(drawing).toContain("✓ 0 succeeded   ✗ 0 failed   ∅ 1 not possible   ▸ 0 running");
  });

  it("tells 20 failures one by one, and then only counts them; a failure that is tried again is none", async () => {
    const { terminal, stderr } = fakeTerminal();
    const screen = await screenOn(terminal);
    screen.see(loaded(10_000));
    for (let index = 0; index < 30; index += 1) screen.see(settled(index, failure, 500));
    expect(stderr.text).not.toContain("failed");
    for (let index = 0; index < 30; index += 1) screen.see(settled(index, failure));
    expect(stderr.text.match(/^corral: inbox\/\d+\.pdf failed: ended with 1$/gm)).toHaveLength(20);
    expect(stderr.text.match(/further failures are only counted/g)).toHaveLength(1);
  });

  it("lets nothing that a manifest or a worker chose reach the terminal as it is", async () => {
    const { terminal, stderr } = fakeTerminal();
    const screen = await screenOn(terminal);
    screen.see(loaded(2));
    screen.see(settled(0, { key: HOSTILE, status: HOSTILE, error: { code: HOSTILE, message: HOSTILE } }));
    screen.see({ type: "trouble", detail: HOSTILE });
    screen.see({ type: "draining", why: HOSTILE });
    screen.end({ ...SUMMARY, state: "paused", why: HOSTILE, byReason: { [HOSTILE]: 1 }, byStatus: { [HOSTILE]: 1 } });
    expect(stderr.text).toContain("evil\\u{1b}[2J\\u{9b}31m\\u{202e} key");
    expect(stderr.text).not.toMatch(/(?!\n)[\p{Cc}\p{Cf}]/u);
    expect(stderr.text).toContain("`corral fleet resume 0123456789ab` continues it");
  });

  it("counts troubles that go on and on, and does not tell them all", async () => {
    const { terminal, stderr } = fakeTerminal();
    const screen = await screenOn(terminal);
    for (let index = 0; index < 1000; index += 1) screen.see({ type: "trouble", detail: "the Engine is away" });
    screen.end(SUMMARY);
    expect(stderr.text.match(/the Engine is away/g)).toHaveLength(50);
    expect(stderr.text).toContain("corral: 950 more errors\n");
  });
});

describe("a fleet with --json", () => {
  it("prints each result that counts as one line on standard output, and nothing else there", async () => {
    const { terminal, stdout, stderr } = fakeTerminal();
    const screen = await screenOn(terminal, true);
    screen.see(loaded(2));
    screen.see(started(0));
    screen.see(settled(0, failure, 100));
    screen.see(settled(0, { ...failure, attempt: 2, key: HOSTILE }));
    screen.see(settled(1, { status: "cached" }));
    screen.see({ type: "trouble", detail: "the Engine is away" });
    screen.tell("a word");
    screen.end(SUMMARY);
    const lines = stdout.text.trimEnd().split("\n");
    expect(lines.map((line) => JSON.parse(line))).toEqual([
      result(0, { ...failure, attempt: 2, key: HOSTILE }),
      result(1, { status: "cached" }),
    ]);
    expect(stdout.text).not.toMatch(/(?!\n)[\p{Cc}\p{Cf}]/u);
    expect(stderr.text).toContain("a word");
  });

  it("draws besides where only standard error is a terminal", async () => {
    const draws = async (stdout: boolean): Promise<boolean> => {
      const fake = fakeTerminal({ stdout, stderr: true });
      const screen = await screenOn(fake.terminal, true);
      screen.see(loaded(2));
      await vi.waitUntil(() => fake.stderr.text !== "", 30_000);
      return fake.stderr.text.includes("░");
    };
    expect(await draws(false)).toBe(true);
    expect(await draws(true)).toBe(false);
  });
});

describe("a fleet on a terminal", () => {
  it("is drawn at most about eight times a second, whatever happens, and leaves only its summary", async () => {
    vi.useFakeTimers();
    onTestFinished(() => {
      vi.useRealTimers();
    });
    const { terminal, stderr, stdout } = fakeTerminal({ stderr: true });
    const screen = await screenOn(terminal);
    screen.see(loaded(10_000));
    for (let index = 0; index < 4000; index += 1) {
      screen.see(started(index));
      screen.see(settled(index));
      if (index % 4 === 3) vi.advanceTimersByTime(1);
    }
    expect(stderr.writes).toBeGreaterThanOrEqual(7);
    expect(stderr.writes).toBeLessThanOrEqual(8);
    expect(stripVTControlCharacters(stderr.text)).toMatch(/█+░+ 3\d% {2}3,\d{3} of 10,000/);
    stderr.text = "";
    screen.end(SUMMARY);
    const left = stripVTControlCharacters(stderr.text);
    expect(left.startsWith("corral: fleet 0123456789ab is done after 12.4s")).toBe(true);
    vi.advanceTimersByTime(1000);
    expect(stripVTControlCharacters(stderr.text)).toBe(left);
    expect(stdout.text).toBe("");
  });
});

describe("drawFleet", () => {
  const plain = pc.createColors(false);

  it("stays within any terminal, whatever stands in keys and messages", () => {
    const text = fc.string({ unit: "binary", maxLength: 300 });
    fc.assert(
      fc.property(
        fc.array(fc.tuple(text, text), { maxLength: 12 }),
        fc.integer({ min: 1, max: 120 }),
        fc.integer({ min: 1, max: 40 }),
        fc.boolean(),
        (texts, columns, rows, draining) => {
          const witness = new FleetWitness(() => 0);
          witness.see(loaded(1_000_000));
          for (const [index, [key, message]] of texts.entries()) {
            witness.see(started(index, key));
            witness.see(settled(1000 + index, { ...failure, key, error: { code: "EXIT", message } }));
          }
          witness.see({ type: "elsewhere", running: texts.length });
          witness.see({ type: "machines", machines: texts.map(([name]) => ({ name, running: 1 })) });
          if (draining) witness.see({ type: "draining", why: texts[0]?.[1] ?? "enough" });
          const drawing = drawFleet(witness.view(), { columns, rows, colors: plain, memoryBytes: 1e8 });
          const lines = drawing.split("\n");
          expect(lines.length).toBeLessThanOrEqual(Math.max(1, rows - 1));
          for (const line of lines) expect(columnsOf(line)).toBeLessThanOrEqual(columns);
          expect(drawing).not.toMatch(/(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u);
        },
      ),
    );
  });

  it("shows counts, pace, what runs longest and the last failures", () => {
    let now = 0;
    const witness = new FleetWitness(() => now);
    witness.see(loaded(100, 20));
    witness.see(started(0, "slow.pdf"));
    now = 2000;
    witness.see(started(1, "文書.pdf"));
    for (let index = 2; index < 22; index += 1) witness.see(settled(index));
    witness.see(settled(30, { status: "cached" }));
    witness.see(settled(31, { ...failure, key: "bad.pdf" }));
    witness.see(settled(32, failure, 1000));
    now = 5000;
    const drawing = drawFleet(witness.view(), { columns: 80, rows: 24, colors: plain, memoryBytes: 150 * 1024 ** 2 });
    expect(drawing.split("\n")).toEqual([
      "█████████████████████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░ 42%  42 of 100",
      "✓ 20 succeeded   ✗ 1 failed   ▸ 2 running   ≡ 1   ↻ 1   · 20",
      "4.4/s (4.4/s overall)   about 14s left   5s so far   memory 150 MiB",
      "running longest",
      "▸ slow.pdf  5s",
      "▸ 文書.pdf  3s",
      "last failures",
      "✗ bad.pdf  failed  ended with 1",
    ]);
  });

  it("cuts no word of its counts on a narrow terminal: their marks alone stay", () => {
    const witness = new FleetWitness(() => 0);
    for (const event of [loaded(303, 135), started(1), started(2), settled(2)]) witness.see(event);
    const lines = drawFleet(witness.view(), { columns: 40, rows: 24, colors: plain, memoryBytes: 1e8 }).split("\n");
    expect(lines[1]).toBe("✓ 1   ✗ 0   ▸ 1   · 135");
    expect(lines[2]).not.toMatch(/…$/);
  });

  it("shows what other machines run, and on which, although nothing runs here", () => {
    const witness = new FleetWitness(() => 0);
    const drawn = (columns: number) =>
      drawFleet(witness.view(), { columns, rows: 24, colors: plain, memoryBytes: 1e8 }).split("\n").slice(1);
    witness.see(loaded(100));
    witness.see({ type: "elsewhere", running: 12 });
    witness.see({
      type: "machines",
      machines: [
        { name: "gpu-1", running: 8 },
        { name: "gpu-2", running: 4 },
      ],
    });
    // What a machine has delivered runs no longer.
    witness.see({ type: "started", index: 0, key: "a", attempt: 1, at: 0, machine: "gpu-1" });
    expect(drawn(60)).toEqual([
      "✓ 0 succeeded   ✗ 0 failed   ⇄ 12 elsewhere",
      expect.stringContaining("0s so far"),
      "on 2 machines: gpu-1 8, gpu-2 4",
    ]);
    expect(progressText(witness.view())).toContain("0 failed, 12 elsewhere, ");
    witness.see(settled(0));
    witness.see({ type: "elsewhere", running: 0 });
    expect(drawn(60)).toEqual(["✓ 1 succeeded   ✗ 0 failed   ▸ 0 running", expect.any(String)]);
  });
});

describe("FleetWitness", () => {
  it("keeps no more than it shows, and counts right, at little cost for each event", () => {
    const witness = new FleetWitness();
    witness.see(loaded(200_000));
    for (let index = 0; index < 200_000; index += 1) {
      witness.see(started(index));
      witness.see(settled(index, index % 2 === 0 ? failure : {}));
    }
    const view = witness.view();
    expect(view).toMatchObject({ done: 200_000, succeeded: 100_000, failed: 100_000, running: 0, leftMs: null });
    expect(view.failures.map(({ key }) => key)).toEqual(
      [199_998, 199_996, 199_994, 199_992, 199_990, 199_988, 199_986, 199_984].map((index) => `inbox/${index}.pdf`),
    );
  });

  it("knows the rate of the last ten seconds beside the overall one", () => {
    let now = 0;
    const witness = new FleetWitness(() => now);
    witness.see(loaded(10_000));
    for (now = 0; now < 60_000; now += 100) witness.see(settled(now));
    for (; now < 80_000; now += 1000) witness.see(settled(now));
    const view = witness.view();
    expect(view.recentRate).toBeCloseTo(1, 0);
    expect(view.overallRate).toBeCloseTo(620 / 80, 1);
    now += 20_000;
    expect(witness.view().recentRate).toBe(0);
    // Where nothing ended for a while, what is left is guessed from all of it.
    expect(witness.view().leftMs).toBeGreaterThan(0);
  });
});

describe("RecentRate", () => {
  it("tells a steady rate as it is, from the first seconds on", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 100 }), fc.integer({ min: 3000, max: 60_000 }), (everyMs, untilMs) => {
        const rate = new RecentRate(0);
        for (let now = 0; now <= untilMs; now += everyMs) rate.add(now);
        expect(rate.perSecond(untilMs) / (1000 / everyMs)).toBeCloseTo(1, 0);
      }),
    );
  });
});
