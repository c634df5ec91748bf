import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { addRunToStepSummary, fleetHtml, runHtml } from "../../../src/cli/github/step-summary.ts";
import type { FleetDetails } from "../../../src/operations/fleets.ts";
import type { RunResult } from "../../../src/run/model/result.ts";

const HOSTILE = [
  "\n\n# A heading\n\n[link](https://evil.example) ![picture](https://evil.example/p.png)\n\n",
  "</pre></code></td></table><img src=https://evil.example/p.png onerror=alert(1)><!-- ",
  "`code` **bold** @everyone #1 \u001b[31mred\u202ereversed\r\n\r\n<script>alert(1)</script>\n\n```\n\n| a | b |",
].join("");

const result = (more: Partial<RunResult>): RunResult =>
  ({
    run: "0123456789ab",
    worker: "w",
    status: "succeeded",
    exitCode: 0,
    signal: null,
    output: "",
    stdout: "",
    stderr: "",
    changeset: null,
    durationMs: 1234,
    error: null,
    ...more,
  }) as RunResult;

const failed = result({
  worker: HOSTILE,
  status: "failed",
  exitCode: 3,
  stdout: `${"x".repeat(10_000)}${HOSTILE}`,
  stderr: HOSTILE,
  error: { code: "WORKER_FAILED", message: HOSTILE },
  changeset: { id: null, counts: { applied: 2, refused: 1, denied: 0, held: 0, conflict: 0 } },
  network: {
    allowed: [],
    denied: [{ to: HOSTILE, count: 1, reason: "host", detail: HOSTILE }],
    unlisted: 0,
  } as unknown as NonNullable<RunResult["network"]>,
});

/** What is left beside the tags that Corral writes. */
const beside = (html: string): string =>
  html.replace(/<\/?(?:table|tr|td|code|pre|details|summary)>|<th align="left">|<\/th>/g, "");

describe("the summary of a step", () => {
  it("says how a run ended", () => {
    expect(runHtml(result({}))).toBe(
      [
        "<table>",
        '<tr><th align="left">corral run</th><td><code>w</code></td></tr>',
        '<tr><th align="left">result</th><td>succeeded, exit status 0, 1.23s</td></tr>',
        "</table>",
      ].join("\n"),
    );
    const html = runHtml(failed);
    expect(html).toContain("<td>failed, exit status 3, 1.23s</td>");
    expect(html).toContain("<td>2 applied, 1 refused</td>");
  });

  it("is one block of HTML, which nothing that a worker chose can end or add to", () => {
    const fleet = fleetHtml(
      {
        fleet: "f",
        state: "done",
        why: HOSTILE,
        items: 2,
        done: 2,
        byStatus: { failed: 1, succeeded: 1 },
        byReason: { [HOSTILE]: 1 },
        failures: [],
        durationMs: 10,
      },
      {
        spec: { worker: HOSTILE },
        lastFailures: [{ key: HOSTILE, status: HOSTILE, error: { code: "X", message: HOSTILE } }],
      } as unknown as Pick<FleetDetails, "spec" | "lastFailures">,
    );
    for (const html of [runHtml(failed), fleet]) {
      expect(html).not.toMatch(/\n[ \t]*\n|\r/);
      expect(html).toMatch(/^<table>\n/);
      expect(beside(html)).not.toMatch(/[<>"]/);
      expect(html).not.toMatch(/(?!\n)[\p{Cc}\p{Cf}]/u);
      // GitHub makes mentions and links of texts, but not in these.
      expect(html.replace(/<code>[^<]*<\/code>|<pre>[^<]*<\/pre>/g, "")).not.toMatch(/@everyone|evil\.example/);
      expect(html.length).toBeLessThan(40_000);
    }
  });

  describe("is appended to a file", () => {
    let dir: string;
    let said: string;
    const at = async (path: string): Promise<void> => {
      said = "";
      const stderr = { write: (text: string) => (said += text) } as unknown as NodeJS.WriteStream;
      await addRunToStepSummary(result({}), { env: { GITHUB_STEP_SUMMARY: path }, stderr });
    };

    beforeEach(() => {
      dir = mkdtempSync(join(tmpdir(), "corral-step-"));
    });
    afterEach(() => rmSync(dir, { recursive: true, force: true }));

    it("after what is there, apart from it", async () => {
      writeFileSync(join(dir, "s"), "before");
      await at(join(dir, "s"));
      await at(join(dir, "s"));
      expect(readFileSync(join(dir, "s"), "utf8")).toMatch(/^before\n\n<table>.+<\/table>\n\n\n\n<table>/s);
      expect(said).toBe("");
    });

    it("that is made if it is missing", async () => {
      await at(join(dir, "s"));
      expect(readFileSync(join(dir, "s"), "utf8")).toContain("<table>");
    });

    it("and not through a link, to a FIFO or a folder, or beyond 1 MiB: that is said, and changes nothing", async () => {
      writeFileSync(join(dir, "target"), "mine");
      symlinkSync("target", join(dir, "link"));
      execFileSync("mkfifo", [join(dir, "fifo")]);
      writeFileSync(join(dir, "large"), Buffer.alloc(1024 * 1024));
      for (const name of ["link", "fifo", ".", "large", "no/such"]) {
        await at(join(dir, name));
        expect(said).toMatch(/^corral: the summary of this step cannot be written to \$GITHUB_STEP_SUMMARY: .+\n$/);
      }
      expect(readFileSync(join(dir, "target"), "utf8")).toBe("mine");
      expect(readFileSync(join(dir, "large")).length).toBe(1024 * 1024);
    });
  });
});
