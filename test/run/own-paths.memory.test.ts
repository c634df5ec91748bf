import { chown } from "node:fs/promises";
import { join } from "node:path";
import pc from "picocolors";
import { describe, expect, it } from "vitest";
import { explanationText } from "../../src/cli/project/explain.ts";
import { type ExplainedRun, explain } from "../../src/run/explain/explain.ts";
import { openPreview } from "../../src/run/open/preview.ts";
import { openSession } from "../../src/run/open-session.ts";
import { type FleetFixture, openFleetProject } from "../fleet/fleet-fixture.ts";
import { memoryEngine } from "./memory-engine.ts";
import { WORKER_UID } from "./project-fixture.ts";

const signal = new AbortController().signal;
const own = (paths: object, more: object = {}) => ({ command: ["w"], sandbox: { paths, ...more } });

const workers = {
  greedy: own({ w: { root: "./a", mode: "rw" }, q: { root: "../outside", mode: "rw" } }),
  modest: own({ w: { root: "./a/deep" }, b: { root: "./real", mode: "rw", approval: "pre_approved" } }),
  roomy: { ...own({ w: { root: "./a" } }, { network: true }), limits: { memory: "100m" } },
  planted: own({ l: { root: "./b/link" } }),
  elsewhere: own({ l: { root: "./to-outside" } }),
  file: own({ f: { root: "./a/deep/x.md", mode: "rw" } }),
};

const DECLARED = { paths: { a: { root: "./a", suffixes: [".md"] }, b: { root: "./b", mode: "rw" } } };

/** `a` is `ro` and `.md` only; `b` is the owner's link to `real`. `outside` is beside the project's folder. */
async function opened(sandbox: object | undefined): Promise<FleetFixture> {
  const engine = memoryEngine({ programs: { w: () => 0 } });
  const declared = sandbox && { ...sandbox, limits: { memory: "64m" } };
  const files = { "a/deep/x.md": "x", "real/y": "y", "../outside/kept": "kept" };
  const links = { b: "real", "to-outside": "../outside", "real/link": "../../outside" };
  const fleet = await openFleetProject({ workers, yaml: { sandbox: declared }, files, links }, { engine: engine.open });
  for (const dir of ["a", "real", "../outside"]) await chown(join(fleet.project.dir, dir), WORKER_UID, WORKER_UID);
  return fleet;
}

const codes = (violations: readonly { readonly code: string }[]) => violations.map(({ code }) => code);

async function explained({ project }: FleetFixture, name: keyof typeof workers): Promise<ExplainedRun> {
  const preview = await openPreview(project.corral.project, { stateDir: project.stateDir, engineEnv: {} });
  const worker = project.corral.project.workers.get(name);
  if (worker === undefined) throw new Error(`no worker ${name}`);
  return (await explain(worker, null, preview)).tree;
}

describe("own paths of a worker that is run by itself", () => {
  it("exceed their project by no way in", async () => {
    await using o = await opened(DECLARED);
    const refused = ["WRITE_NOT_AVAILABLE", "OWN_PATH_OUTSIDE"];
    const ran = await o.project.run("greedy");
    expect(ran.status).toBe("refused");
    expect(codes(ran.violations)).toEqual(refused);
    expect(ran.violations.map(({ message }) => message)).toEqual([
      "Own path 'w': '/a' is read-only: the project does not grant writing. Ask to read it only, or write at or below one of: /b.",
      expect.stringContaining("The project gives: /a (ro, only .md), /b (rw)."),
    ]);

    const { environment, project } = o.project.corral;
    const worker = project.workers.get("greedy");
    if (worker === undefined) throw new Error("no worker");
    const session = await openSession({ worker, signal }, environment);
    expect(session.ok ? null : codes(session.violations)).toEqual(refused);

    for (const reuse of ["fresh", "scrubbed"] as const) {
      const fleet = await o.open({ worker: "greedy", reuse }, [{ input: 1 }]);
      expect(fleet.ok, reuse).toBe(false);
      expect(JSON.stringify(fleet)).toContain("OWN_PATH_OUTSIDE");
    }
    expect(codes((await explained(o, "greedy")).refused ?? [])).toEqual(refused);
  });

  it("have the project's terms, by the real directory, and its network and limits", async () => {
    await using o = await opened(DECLARED);
    const { sandbox } = await explained(o, "modest");
    expect(sandbox?.mounts).toMatchObject([
      { path: "/b", host: expect.stringMatching(/\/real$/), mode: "rw", own: "inside" },
      { path: "/w", mode: "ro", suffixes: [".md"], own: "inside" },
    ]);
    expect((await o.project.run("modest")).status).toBe("succeeded");
    expect(codes((await explained(o, "roomy")).refused ?? [])).toEqual(["NETWORK_NOT_AVAILABLE", "LIMIT_TOO_LARGE"]);
    expect(codes((await explained(o, "planted")).refused ?? [])).toEqual(["MOUNT_SOURCE_REFUSED"]);
    expect(codes((await explained(o, "elsewhere")).refused ?? [])).toEqual(["OWN_PATH_OUTSIDE"]);
    expect(codes((await explained(o, "file")).refused ?? [])).toEqual(["WRITE_NOT_AVAILABLE"]);
  });

  it("are below a project's root form with what that shields", async () => {
    await using o = await opened({ root: { root: ".", suffixes: [".md"] } });
    expect((await explained(o, "modest")).sandbox?.mounts).toMatchObject([
      { path: "/b", mode: "rw", suffixes: [".md"] },
      { path: "/w", mode: "ro", suffixes: [".md"] },
    ]);
    expect(codes((await explained(o, "greedy")).refused ?? [])).toEqual(["OWN_PATH_OUTSIDE"]);
  });

  it.each([
    ["there is no `sandbox`", undefined],
    ["it says so", { ...DECLARED, own_paths: "allowed" }],
  ])("are their own where %s, and marked", async (_, sandbox) => {
    await using o = await opened(sandbox);
    const tree = await explained(o, "greedy");
    const { sandbox: has, refused } = tree;
    const text = explanationText(
      { worker: "greedy", tree, driving: null, drivingItems: null, notes: [] },
      pc.createColors(false),
    );
    expect(text).toMatch(/\/q rw .*\/outside {2}own path, not given by the project/);
    expect(refused).toBeNull();
    expect(has?.mounts).toMatchObject([
      { path: "/q", mode: "rw", own: "brought" },
      { path: "/w", mode: "rw", own: "brought" },
    ]);
    expect((await o.project.run("greedy")).status).toBe("succeeded");
  });
});
