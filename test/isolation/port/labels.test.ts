import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Plan } from "../../../src/isolation/plan/plan.ts";
import { planFor } from "../../../src/isolation/plan/plan-for.ts";
import { containerName, labelsFor, planHash, readLabels } from "../../../src/isolation/port/labels.ts";
import { currentOwner } from "../../../src/state/owner.ts";
import { mount, project, strict } from "../../sandbox/sandboxes.ts";
import { requestFor } from "../plan-requests.ts";

const maker = { owner: currentOwner(), sealKey: Buffer.alloc(32, 7) };

const plan = ((): Plan => {
  const planning = planFor(requestFor({ sandbox: project([mount("/data", "ro")], { network: false }, strict) }));
  if (!planning.ok) throw new Error(JSON.stringify(planning.violations));
  return planning.plan;
})();
const labels = labelsFor(maker, "container", "corral-x", plan);

describe("the labels of what Corral makes", () => {
  it("say which run it is of, where that stands in its tree, whose it is, and what was planned", () => {
    expect(Object.keys(labels).sort()).toEqual(
      ["mount.1", "mounts", "owner", "parent", "plan", "project", "root", "run", "seal", "worker"].map(
        (name) => `dev.corral.${name}`,
      ),
    );
    expect(labels).toMatchObject({ "dev.corral.mounts": "1", "dev.corral.mount.1": "/host/data:/data:ro" });
    expect(readLabels(maker.sealKey, "container", "corral-x", labels)).toEqual({
      run: plan.run,
      root: plan.root,
      parent: plan.parent,
      worker: plan.worker,
      owner: maker.owner,
    });
  });

  it("tell of no parent as null", () => {
    const root = labelsFor(maker, "volume", "v", { ...plan, parent: null });
    expect(readLabels(maker.sealKey, "volume", "v", root)?.parent).toBeNull();
  });

  it("name the worker and the run in the name of a container, which any Engine takes", () => {
    expect(containerName({ worker: "a.B_c-1", run: "0123456789ab" })).toBe("corral-a.B_c-1-0123456789ab");
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (worker) => {
        expect(containerName({ worker, run: "0123456789ab" })).toMatch(/^corral-[A-Za-z0-9_.-]{0,64}-0123456789ab$/);
      }),
    );
  });

  it.each([
    ["another name", "container", "corral-y", labels],
    ["another kind of thing", "volume", "corral-x", labels],
    ["another run", "container", "corral-x", { ...labels, "dev.corral.run": "other" }],
    ["another owner", "container", "corral-x", { ...labels, "dev.corral.owner": `${labels["dev.corral.owner"]}1` }],
    ["no seal", "container", "corral-x", { ...labels, "dev.corral.seal": "" }],
    ["a seal cut short", "container", "corral-x", { ...labels, "dev.corral.seal": "ab" }],
    ["no labels", "container", "corral-x", {}],
    ["null", "container", "corral-x", null],
  ] as const)("are nobody's with %s", (_, kind, name, read) => {
    expect(readLabels(maker.sealKey, kind, name, read)).toBeNull();
  });

  it("are nobody's under another state directory's key", () => {
    expect(readLabels(Buffer.alloc(32, 8), "container", "corral-x", labels)).toBeNull();
  });

  it("are not to be had by guessing", () => {
    const text = fc.string();
    fc.assert(
      fc.property(text, text, text, text, (run, owner, seal, name) => {
        const made = { "dev.corral.run": run, "dev.corral.owner": owner, "dev.corral.seal": seal };
        expect(readLabels(maker.sealKey, "container", name, made)).toBeNull();
      }),
    );
  });
});

describe("the hash of a plan", () => {
  it("is the same for the same container, whatever its run and its place in the tree are called", () => {
    const renamed = JSON.parse(JSON.stringify(plan).replaceAll(plan.run, "ffffffffffff")) as Plan;
    expect(planHash({ ...renamed, root: "another", parent: null })).toBe(planHash(plan));
  });

  it.each([
    ["command", { command: ["other"] }],
    ["mounts", { mounts: [] }],
    ["user", { user: { uid: 1, gid: 1 } }],
    ["network", { network: "open" }],
    ["limits", { limits: { ...plan.limits, pids: 1 } }],
    ["hardening", { hardening: { ...plan.hardening, readOnlyRoot: false } }],
    ["environment", { env: {} }],
  ] as const)("is another where the %s differs", (_, change) => {
    expect(planHash({ ...plan, ...change } as Plan)).not.toBe(planHash(plan));
  });
});
