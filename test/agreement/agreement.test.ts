import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { isAgain } from "../tiers/again.ts";
import { AT_LENGTH } from "../tiers/at-length.ts";
import { giveGate } from "../tiers/give-gate.ts";
import { compared } from "./compare.ts";
import { type Entry, OUTSIDE, type Scenario, scenarios } from "./sandboxes.ts";
import { STRICTER } from "./stricter.ts";

/** Sandboxes in a cell. */
const BESIDE = 4;
/** A cell for each of so many, and at most as long again to find the smallest that shows a difference. */
const CELLS = AT_LENGTH ? 100 : isAgain() ? 4 : 8;
const TIME_LIMIT_MS = 60_000;

let stateDir: string;

beforeAll(async () => {
  stateDir = await mkdtemp(join(tmpdir(), "corral-agree-state-"));
  await giveGate(stateDir);
});

afterAll(async () => {
  await rm(stateDir, { recursive: true, force: true });
});

describe("the validator and the kernel", () => {
  it(
    "allow the same things at the same paths, whatever the sandbox",
    async () => {
      await fc.assert(
        fc.asyncProperty(scenarios(BESIDE), async (scenario) => {
          const { differences } = await compared(scenario, stateDir);
          expect(differences).toEqual([]);
        }),
        { numRuns: CELLS, interruptAfterTimeLimit: TIME_LIMIT_MS },
      );
    },
    2 * TIME_LIMIT_MS,
  );

  it("differ where the validator is meant to be stricter, and every such reason is met", async () => {
    const { differences, met, written } = await compared(everyReason, stateDir);
    expect(differences).toEqual([]);
    expect(STRICTER.filter((row) => !met.has(row))).toEqual([]);
    expect(written).not.toContain("/etc/new");
  });

  // Only root may mount the overlays.
  it.runIf(process.getuid?.() === 0 && !isAgain())("agree if the root of the container is writable", async () => {
    const { differences, written } = await compared({ ...everyReason, rootFiles: "writable" }, stateDir);
    expect(differences).toEqual([]);
    expect(written).toContain("/etc/new");
    expect(written).not.toContain("/nowhere/a.md");
  });
});

const entry = (name: string, kind: Entry["kind"], target = ""): Entry => ({ place: 0, dir: "sub", name, kind, target });
const FREE = { write: "pre_approved", delete: "pre_approved" } as const;

/** One sandbox that has all that the table speaks of. */
const everyReason: Scenario = {
  form: "zones",
  rootAt: "area",
  readonly: false,
  approval: FREE,
  parts: [
    {
      places: [
        { name: "data", mode: "rw", approval: FREE },
        { name: "data-evil", mode: "ro", approval: FREE },
        { name: "asks", mode: "rw", approval: { write: "ask", delete: "ask" } },
      ],
      inner: "none",
      note: "none",
      needs: "all",
      reads: [],
      writes: [],
      entries: [
        entry("back\\slash", "file"),
        entry("new\nline", "file"),
        entry("inside", "link", "../a.md"),
        entry("absolute", "link", "/data/a.md"),
        entry("beside", "link", "../../data-evil/a.md"),
        entry("host", "link", OUTSIDE),
        entry("fifo", "fifo"),
      ],
    },
  ],
};
