import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { sh, writable } from "../run/project-fixture.ts";
import { openFleetProject } from "./fleet-fixture.ts";

describe("a fleet of agents", () => {
  it("runs one for each item, on its own file and into its own folder", async () => {
    const answers = [
      { calls: [{ read_file: { path: "/attachments/in" } }, { list_files: { path: "/text" } }] },
      { calls: [{ exec: { command: 'cp /attachments/in "$(echo /text/*)/out"' } }] },
      { say: "done" },
    ];
    await using f = await openFleetProject({
      zones: { text: "rw", inbox: "ro" },
      files: { "s.yaml": JSON.stringify(answers), "inbox/0": "document 0", "inbox/1": "document 1" },
      workers: {
        w: {
          model: "script/s.yaml",
          tools: ["read_file", "list_files", "exec"],
          shell_rules: { default: "pre_approved" },
          sandbox: { zones: [writable("text")] },
        },
      },
    });
    const items = [0, 1].map((n) => ({
      attachments: [{ path: join(f.project.dir, "inbox", String(n)), name: "in" }],
      allowRead: [`/text/${n}`],
      allowWrite: [`/text/${n}`],
    }));
    const { summary, results } = await f.map({ reuse: "fresh" }, items);
    expect([...results.values()].flatMap(({ error }) => error ?? [])).toEqual([]);
    expect(summary).toMatchObject({ state: "done", byStatus: { succeeded: 2 } });
    for (const n of [0, 1]) expect(await readFile(join(f.project.dir, `text/${n}/out`), "utf8")).toBe(`document ${n}`);
  });

  it("is not to be had with scrubbed cells, and neither is a worker that chooses its attachments", async () => {
    await using f = await openFleetProject({
      files: { "s.yaml": "[]" },
      workers: { w: { model: "script/s.yaml" } },
    });
    expect(await f.open({ reuse: "scrubbed" }, [{}])).toMatchObject({
      ok: false,
      reason: expect.stringContaining("an agent has no command"),
    });
    await using choosy = await openFleetProject({
      workers: { w: { command: ["true"], attachments: { max_count: 1 } } },
    });
    expect(await choosy.open({ reuse: "scrubbed" }, [{}])).toMatchObject({
      ok: false,
      reason: expect.stringContaining("declares `attachments`"),
    });
  });
});

describe.each(["fresh", "scrubbed"] as const)("schemas of a worker in a fleet with %s cells", (reuse) => {
  it("hold for each item's input and output", async () => {
    await using f = await openFleetProject({
      workers: {
        w: {
          command: sh('read -r n; echo "$n"'),
          input_schema: { type: "integer" },
          output_schema: { type: "integer", maximum: 1 },
        },
      },
    });
    const { results } = await f.map({ reuse }, [{ input: 1 }, { input: 2 }, { input: "1" }]);
    const codes = [...results.values()].sort((a, b) => a.index - b.index).map(({ error }) => error?.code ?? null);
    expect(codes).toEqual([null, "OUTPUT_NOT_VALID", "INPUT_NOT_VALID"]);
  });
});
