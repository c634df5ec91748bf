import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { mapItems } from "../../src/operations/run-fleet.ts";
import { openCorral } from "../../src/run/open/corral.ts";
import { openProject, sh } from "../run/project-fixture.ts";

const OUT = { name: "out", mode: "rw", approval: "pre_approved" };
const WORKERS = {
  w: {
    command: sh("corral-call helper; cat /attachments/* > $(echo /out/*)/text"),
    calls: ["helper"],
    sandbox: { zones: [OUT] },
  },
  helper: { command: ["echo", "helped"] },
};

/** A project that is read anew for each map, as by a process of its own. */
async function cachedProject() {
  const project = await openProject({
    policy: "batch",
    zones: { out: "rw", elsewhere: "rw" },
    workers: WORKERS,
    files: { "in/a": "text\n", "elsewhere/a/old": "" },
  });
  const { dir, stateDir } = project;
  return {
    dir,
    async map(): Promise<string[]> {
      await using corral = await openCorral({ projectDir: dir, stateDir, engineEnv: process.env, emit: () => {} });
      const template = { attach: ["{path}"], allowWrite: ["/out/a"] };
      const results = mapItems(corral, { worker: "w", items: [join(dir, "in/a")], template });
      return (await Array.fromAsync(results)).map(({ status }) => status);
    },
    async change(file: string, from: string, to: string): Promise<void> {
      const text = await readFile(join(dir, file), "utf8");
      if (!text.includes(from)) throw new Error(`${file} has no ${from}: ${text}`);
      await writeFile(join(dir, file), text.replace(from, to));
    },
    [Symbol.asyncDispose]: () => project[Symbol.asyncDispose](),
  };
}

describe("what has succeeded before", () => {
  it("is run again where its output is gone, where it would write to another place, and where whom it calls is another", async () => {
    await using f = await cachedProject();
    expect(await f.map()).toEqual(["succeeded"]);
    expect(await f.map()).toEqual(["cached"]);
    await rm(join(f.dir, "out/a"), { recursive: true });
    expect(await f.map(), "its output is gone").toEqual(["succeeded"]);
    expect(await readFile(join(f.dir, "out/a/text"), "utf8")).toBe("text\n");
    expect(await f.map()).toEqual(["cached"]);

    await f.change("workers/helper.worker", "helped", "helped otherwise");
    expect(await f.map(), "whom it calls is another").toEqual(["succeeded"]);
    expect(await f.map()).toEqual(["cached"]);

    await f.change("corral.yaml", '"./out"', '"./elsewhere"');
    expect(await f.map(), "its place is another").toEqual(["succeeded"]);
    expect(await readFile(join(f.dir, "elsewhere/a/text"), "utf8")).toBe("text\n");

    await f.change("workers/w.worker", "\n---", "\n---\nA note for people.");
    expect(await f.map(), "a note changes nothing").toEqual(["cached"]);
  });
});
