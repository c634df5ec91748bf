import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { auditKey, recordsOf, type SealedRecord } from "../../src/audit/seal.ts";
import { verifyTrail } from "../../src/audit/verify.ts";
import { openTrail } from "../../src/run/recorded/run-history.ts";
import { loadSealKey } from "../../src/state/owner.ts";
import { projectPaths } from "../../src/state/state-dir.ts";

const PROJECT = "/some/project";
let stateDir: string;

beforeEach(() => {
  stateDir = realpathSync(mkdtempSync(join(tmpdir(), "corral-audit-")));
});

afterEach(() => {
  rmSync(stateDir, { recursive: true, force: true });
});

interface Appender {
  readonly child: ChildProcess;
  /** Runs of which the process was told that they are on disk. */
  readonly written: () => string[];
  readonly exit: Promise<number | null>;
}

function appender(order: { name: string; count?: number; size?: number }): Appender {
  const script = join(import.meta.dirname, "appender.ts");
  const child = spawn(process.execPath, [script, JSON.stringify({ stateDir, projectDir: PROJECT, ...order })], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let text = "";
  child.stdout?.setEncoding("utf8").on("data", (chunk: string) => {
    text += chunk;
  });
  const exit = once(child, "close").then(() => child.exitCode);
  return { child, written: () => text.split("\n").slice(0, -1), exit };
}

async function trail() {
  const place = projectPaths(stateDir, PROJECT).trail;
  const key = auditKey(await loadSealKey(stateDir), PROJECT);
  const verdict = await verifyTrail(place, key);
  const records: SealedRecord[] = [];
  for await (const some of recordsOf(place, key)) records.push(...some.filter((record) => record !== null));
  return { verdict, records };
}

describe("several processes at one trail", () => {
  it("make one whole chain, in which the records of each stand in their order", async () => {
    const names = ["a", "b"];
    const appenders = names.map((name) => appender({ name, count: 500 }));
    expect(await Promise.all(appenders.map(({ exit }) => exit))).toEqual([0, 0]);
    const { verdict, records } = await trail();
    expect(verdict).toMatchObject({ ok: true, records: 1000, problems: [], notes: [] });
    for (const name of names) {
      const own = records.filter(({ worker }) => worker === name).map(({ run }) => run);
      expect(own).toEqual(Array.from({ length: 500 }, (_, index) => `${name}-${index}`));
    }
  });

  it("leave a whole trail with every record that was promised, however often one of them is killed", async () => {
    const promised: string[] = [];
    for (let round = 0; round < 12; round += 1) {
      const [killed, other] = [
        appender({ name: `k${round}`, size: 4000 }),
        appender({ name: `o${round}`, size: 4000 }),
      ];
      while (killed.written().length === 0) await new Promise((later) => setTimeout(later, 5));
      await new Promise((later) => setTimeout(later, round * 3));
      killed.child.kill("SIGKILL");
      await killed.exit;
      // The other one goes on over whatever lock the killed one held.
      const soFar = other.written().length;
      while (other.written().length <= soFar) await new Promise((later) => setTimeout(later, 5));
      other.child.kill("SIGKILL");
      await other.exit;
      promised.push(...killed.written(), ...other.written());
    }
    await using last = await openTrail(stateDir, PROJECT);
    await last.append({ type: "run_requested", run: "last", root: "last", worker: "w", parent: null, attachments: [] });
    const { verdict, records } = await trail();
    expect(verdict).toMatchObject({ ok: true, problems: [] });
    for (const { what } of verdict?.notes ?? []) expect(what).toContain("incomplete");
    const kept = new Set(records.map(({ run }) => run));
    expect(promised.length).toBeGreaterThan(100);
    expect(promised.filter((run) => !kept.has(run))).toEqual([]);
    expect(kept.has("last")).toBe(true);
  });
});
