import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { SIZES } from "../../bench/sizes.ts";
import { TranscriptFolder } from "../../src/agent/transcript.ts";
import { approvalDecided } from "../../src/audit/records.ts";
import { ANYTHING, asked } from "../../src/isolation/engine/answers/asked.ts";
import type { Plan } from "../../src/isolation/plan/plan.ts";
import { OpenedProject } from "../../src/library/opened-project.ts";
import { Grants, ProjectAudit, ProjectChangesets, ProjectFleets } from "../../src/library/project-state.ts";
import { sandboxView } from "../../src/run/cell/prepare.ts";
import type { Job } from "../../src/run/model/job.ts";
import { unstartedResult } from "../../src/run/model/result.ts";
import { deliveryOf } from "../../src/sandbox/expand.ts";
import { openFiles, sandboxOf } from "../../src/sandbox.ts";
import { projectPaths } from "../../src/state/state-dir.ts";

const ROOT = join(import.meta.dirname, "../..");

/** A page with its line breaks as spaces, or the section of it that begins with a heading. */
async function page(path: string, heading = ""): Promise<string> {
  const whole = await readFile(join(ROOT, path), "utf8");
  const [, rest = ""] = whole.split(`\n${heading}\n`);
  return (heading === "" ? whole : (rest.split(/^## /m)[0] ?? "")).replaceAll(/\s+/g, " ");
}

const missing = (names: readonly string[], text: string): string[] =>
  names.filter((name) => !new RegExp(`\\b${name}\\b`).test(text));

describe("docs/formats", () => {
  it("names every field of a RunResult", async () => {
    const fields = Object.keys(unstartedResult({ run: "r", worker: "w" }, "lost", { code: "X", message: "x" }));
    const [, listed = ""] =
      /`\{(run, worker[^}]*)\}`/.exec(await page("docs/formats/results.md", "## RunResult")) ?? [];
    expect(missing(fields, listed)).toEqual([]);
  });

  it("names every field of the record of an approval", async () => {
    const request = { run: "r", root: "r", worker: "w" } as Parameters<typeof approvalDecided>[0];
    const {
      type: _type,
      run: _run,
      root: _root,
      worker: _worker,
      ...fields
    } = approvalDecided(request, { outcome: "denied", scope: "once", reason: "x" }, 1);
    const row = /\| `approval` \|([^|]*\|){2}/.exec(await page("docs/formats/audit-trail.md"))?.[0] ?? "";
    expect(missing([...Object.keys(fields), "note"], row)).toEqual([]);
  });

  it("names every status of the socket's answers", async () => {
    const source = await readFile(join(ROOT, "src/run/cell/broker.ts"), "utf8");
    const statuses = new Set([...source.matchAll(/(?<!= |max\()\b([245]\d\d)\b/g)].map(([, status = ""]) => status));
    expect(statuses.size).toBeGreaterThan(4);
    expect(missing([...statuses], await page("docs/formats/inside-a-cell.md"))).toEqual([]);
  });

  it("names every field of what a run may do", async () => {
    const job = { run: "r", worker: { name: "w", calls: [] }, attachments: [] } as unknown as Job;
    const plan = { mounts: [], workingDir: "/", limits: {}, policy: "default" } as unknown as Plan;
    const {
      run: _run,
      worker: _worker,
      ...view
    } = sandboxView(job, sandboxOf({ mounts: {} }).data, plan) as object & {
      run: string;
      worker: string;
    };
    expect(missing(Object.keys(view), await page("docs/formats/inside-a-cell.md"))).toEqual([]);
  });

  it("says that only what can be written is staged", async () => {
    const [mount] = sandboxOf({ mounts: { a: { host: "/srv/a", stage: true } } }).data.mounts;
    expect(mount && deliveryOf(mount)).toBe("direct");
    expect(await page("docs/formats/staged-mounts.md")).toMatch(/or that can be written and says `stage: true`/);
    expect(await page("docs/agreement.md")).toMatch(/With `stage: true` a mount that can be written is a view/);
  });
});

describe("docs/library.md", () => {
  it("says which methods return a promise, and which are iterated", async () => {
    const kept = [ProjectFleets, ProjectChangesets, Grants, ProjectAudit];
    const iterated = [OpenedProject, ...kept].flatMap(({ prototype }) =>
      Object.getOwnPropertyNames(prototype).filter((name) => {
        const value = Object.getOwnPropertyDescriptor(prototype, name)?.value;
        return name !== "constructor" && value.constructor.name !== "AsyncFunction";
      }),
    );
    const [, said = ""] = /All methods but (.*?) return a promise/.exec(await page("docs/library.md")) ?? [];
    expect(said.match(/\w+(?=`)/g)?.toSorted()).toEqual(iterated.toSorted());
  });

  it("says what is not in the files of a sandbox: reading that waits for consent, and discarded changes", async () => {
    const consent = { write: "pre_approved", delete: "pre_approved" } as const;
    const place = { host: tmpdir(), mode: "rw", approval: consent } as const;
    const sandbox = sandboxOf({
      mounts: { asks: { ...place, approval: { ...consent, read: "ask" } }, drops: { ...place, discard: true } },
    });
    using files = openFiles(sandbox, { backend: "host", approve: () => true });
    await expect(files.list("/asks")).rejects.toMatchObject({ code: "PATH_NOT_IN_SANDBOX" });
    await expect(files.write("/drops/a", "x")).rejects.toMatchObject({ code: "PERMISSION" });
    const text = await page("docs/library.md");
    expect(text).toMatch(/A mount whose `read` is `ask` is not there/);
    expect(text).toMatch(/A mount with `stage` or `discard` is not written on the host/);
  });
});

describe("docs/architecture.md and the pages beside it", () => {
  it("says how often a call is made", async () => {
    let calls = 0;
    const failing = (): Promise<never> => {
      calls += 1;
      return Promise.reject(new Error("cut"));
    };
    await expect(asked(failing, ANYTHING)).rejects.toThrow("cut");
    const driver = await readFile(join(ROOT, "src/isolation/engine/driver.ts"), "utf8");
    const [, cells = ""] = /const MAX_ATTEMPTS = (\d+);/.exec(driver) ?? [];
    const text = await page("docs/drivers.md", "## Failures of the Engine");
    expect(text).toContain(`a call that only asks, or a kill | it is made ${calls} times at most`);
    expect(text).toContain(`made again, until it was made ${cells} times`);
  });

  it("says how many transcripts of a project stay", async () => {
    const state = mkdtempSync(join(tmpdir(), "corral-transcripts-"));
    try {
      const { transcripts } = projectPaths(state, "/project");
      mkdirSync(transcripts, { recursive: true });
      const fill = (from: number, to: number): void => {
        for (let number = from; number < to; number += 1)
          writeFileSync(join(transcripts, `${number.toString(16).padStart(12, "0")}.jsonl`), "");
      };
      const folder = new TranscriptFolder(state, "/project");
      fill(0, 1100);
      await (await folder.open("e".repeat(12)))[Symbol.asyncDispose]();
      expect(readdirSync(transcripts)).toHaveLength(1101);
      await (await folder.open("f".repeat(12)))[Symbol.asyncDispose]();
      expect(readdirSync(transcripts)).toHaveLength(1001);
      const said = /if a project has more than 1,100, all but the newest 1,000 are removed before the next/;
      expect(await page("docs/state.md")).toMatch(said);
    } finally {
      rmSync(state, { recursive: true });
    }
  });

  it("says that what lies inside of a refused place is no mount source either", async () => {
    expect(await page("docs/architecture.md")).toMatch(/what is inside of one of them, and whatever contains one/);
  });
});

describe("docs/bench.md", () => {
  it("says how many settings of a contender are measured fully", async () => {
    expect([SIZES.usual.finalists, SIZES.full.finalists, SIZES.quick.finalists]).toEqual([2, 2, 1]);
    expect(await page("docs/bench.md")).toMatch(/Its two quickest settings \(with `--quick` only the quickest\)/);
    expect([SIZES.quick, SIZES.usual, SIZES.full].map(({ growth }) => growth.at(-1))).toEqual([100, 1000, 10_000]);
    expect(await page("docs/bench.md")).toMatch(/10 to 1,000 items, with `--quick` 100, with `--full` 10,000/);
  });
});
