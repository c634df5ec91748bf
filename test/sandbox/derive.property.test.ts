import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { ApprovalRules, Consent } from "../../src/sandbox/approval.ts";
import { projectSandbox } from "../../src/sandbox/declare.ts";
import { derive } from "../../src/sandbox/derive.ts";
import { LIMIT_NAMES } from "../../src/sandbox/limits.ts";
import type { Mode, Mount } from "../../src/sandbox/mount.ts";
import { networkExcesses } from "../../src/sandbox/network/network.ts";
import type { Network } from "../../src/sandbox/network/rule.ts";
import type { Hardening, Policy } from "../../src/sandbox/policy.ts";
import type { Needs, Sandbox } from "../../src/sandbox/sandbox.ts";
import type { VirtualPath } from "../../src/sandbox/virtual-path.ts";
import { describeViolations } from "../../src/sandbox/wording.ts";
import { roomy } from "./sandboxes.ts";

const DEPTH = 6;
const NAMES = ["a", "b", "a-b"];

/** Every path of up to four components: small enough to try them all, so nothing depends on luck. */
const PLACES = ["/", ...pathsBelow("", 4)];
/** The first of them, up to three components, where mounts and allowlist entries stand. */
const SHALLOW = ["/", ...pathsBelow("", 3)] as VirtualPath[];

function pathsBelow(prefix: string, depth: number): string[] {
  const here = NAMES.map((name) => `${prefix}/${name}`);
  return depth === 1 ? here : [...here, ...here.flatMap((path) => pathsBelow(path, depth - 1))];
}

// The oracle: what a path means, said a second time and in the most literal way, without a line of the code under test.

interface Point {
  readonly host: string;
  readonly mount: Mount;
}

/** Climbs from the path to the first ancestor at which a mount stands. */
function pointAt(mounts: readonly Mount[], path: string): Point | null {
  const rest: string[] = [];
  for (let parts = path.split("/").filter(Boolean); ; parts = parts.slice(0, -1)) {
    const mount = mounts.find((each) => each.path === `/${parts.join("/")}`);
    if (mount !== undefined) return { mount, host: [mount.host, ...rest].join("/") };
    if (parts.length === 0) return null;
    rest.unshift(parts[parts.length - 1] ?? "");
  }
}

function isAtOrBelow(prefix: string, path: string): boolean {
  const [outer, inner] = [prefix, path].map((each) => each.split("/").filter(Boolean));
  return (outer ?? []).every((part, index) => inner?.[index] === part);
}

/** What the child must be able to do at one path, from the table of `derive` in docs/architecture.md: none, ro or rw. */
function expected(parent: Sandbox, needs: Needs, path: string): Mode | "none" {
  const point = pointAt(parent.mounts, path);
  if (point === null) return "none";
  const listed = (list: readonly string[]) => list.some((prefix) => isAtOrBelow(prefix, path));
  const named = (mode?: Mode) => {
    const names = needs.zones?.filter((zone) => mode === undefined || zone.mode === mode).map(({ name }) => name);
    return parent.mounts.some((mount) => names?.includes(mount.name) && isAtOrBelow(mount.path, path));
  };
  let read = false;
  let write = false;
  if (needs.zones !== undefined) [read, write] = [named(), named("rw")];
  else if (needs.allowRead === undefined && needs.allowWrite === undefined) read = write = needs.inherit === true;
  else {
    const written = (prefix: string) =>
      isAtOrBelow(prefix, path) &&
      parent.mounts.some(
        (mount) =>
          mount.mode === "rw" &&
          isAtOrBelow(mount.path, path) &&
          (isAtOrBelow(prefix, mount.path) || pointAt(parent.mounts, prefix)?.mount === mount),
      );
    // What can be written can be read, with the mounts that hide parts of it.
    const implied = !needs.readonly && (needs.allowWrite ?? []).some(written);
    [read, write] = [listed(needs.allowRead ?? needs.allowWrite ?? []) || implied, listed(needs.allowWrite ?? [])];
  }
  if (!read) return "none";
  return write && point.mount.mode === "rw" && !needs.readonly ? "rw" : "ro";
}

function parentSees(parent: Sandbox, host: string, mode: Mode): boolean {
  return parent.mounts.some((mount) => {
    if (!isAtOrBelow(mount.host, host)) return false;
    const place = pointAt(parent.mounts, mount.path.replace(/^\/$/, "") + host.slice(mount.host.length) || "/");
    return place?.mount === mount && (mode === "ro" || mount.mode === "rw");
  });
}

const STRICTNESS: readonly Consent[] = ["pre_approved", "ask", "blocked"];

function isAsStrict(child: ApprovalRules | undefined, parent: ApprovalRules | undefined): boolean {
  if (child === undefined) return false;
  return (["write", "delete"] as const).every((operation) => {
    return STRICTNESS.indexOf(child[operation]) >= STRICTNESS.indexOf(parent?.[operation] ?? "pre_approved");
  });
}

function isAsHard(child: Hardening, parent: Hardening): boolean {
  return (
    (parent.rootUser || !child.rootUser) &&
    (parent.tmpExec || !child.tmpExec) &&
    (parent.fileWatches || !child.fileWatches) &&
    (parent.seccomp === "engine" || child.seccomp === "corral") &&
    child.capabilities.every((capability) => parent.capabilities.includes(capability)) &&
    (parent.runtime === undefined || parent.runtime === child.runtime)
  );
}

function expectNoMore(parent: Sandbox, child: Sandbox): void {
  expect(networkExcesses(child.network, parent.network)).toEqual([]);
  for (const limit of LIMIT_NAMES) {
    expect(child.limits[limit] ?? Infinity).toBeLessThanOrEqual(parent.limits[limit] ?? Infinity);
    expect(child.limits[limit] ?? Infinity).toBeLessThanOrEqual(child.policy.maxLimits[limit]);
  }
  expect(isAsHard(child.policy.hardening, parent.policy.hardening)).toBe(true);
  expect(child.policy.nofile).toBeLessThanOrEqual(parent.policy.nofile);
  const paths = child.mounts.map(({ path }) => path);
  expect(paths).toEqual([...new Set(paths)].sort());
}

// The worlds: parents with mounts inside mounts, and needs that mostly can be had.

const consents = fc.constantFrom<Consent>("pre_approved", "ask", "blocked");
const approvals = fc.record({ write: consents, delete: consents });
const modes = fc.constantFrom<Mode>("ro", "rw", "rw");
const places = fc.constantFrom(...SHALLOW);
const lists = fc.uniqueArray(places, { maxLength: 4 });
const suffixLists = fc.constantFrom([".md"], [".md", ".pdf"], [".pdf"]);

const mounts: fc.Arbitrary<Mount[]> = fc.uniqueArray(
  fc
    .tuple(
      places,
      modes,
      fc.constantFrom("own", "own", "/host/x", "/host/x/a"),
      fc.constantFrom(...NAMES),
      fc.option(suffixLists),
    )
    .map(
      ([path, mode, host, name, suffixes]): Mount => ({
        name,
        path,
        host: host === "own" ? `/host/own${path === "/" ? "" : path}` : host,
        mode,
        ...(suffixes === null ? {} : { suffixes }),
      }),
    ),
  { selector: ({ path }) => path, minLength: 1, maxLength: 6 },
);

const networks: fc.Arbitrary<Network> = fc.oneof(
  fc.boolean(),
  fc
    .uniqueArray(fc.constantFrom("a.org:443", "*.a.org:443", "b.a.org:*", "b.a.org:80"))
    .map((list) => ({ allow: list.map((to) => ({ to })) })),
);
const limits = fc.record(
  { cpus: fc.integer({ min: 1, max: 4 }), pids: fc.integer({ min: 1, max: 512 }) },
  { requiredKeys: [] },
);
const policies: fc.Arbitrary<Policy> = fc
  .record({
    rootUser: fc.boolean(),
    tmpExec: fc.boolean(),
    fileWatches: fc.boolean(),
    cpus: fc.integer({ min: 2, max: 4 }),
    nofile: fc.constantFrom(64, 4096),
  })
  .map(({ cpus, nofile, ...lines }) => ({
    ...roomy,
    name: `policy-${JSON.stringify(lines)}`,
    hardening: { ...roomy.hardening, ...lines },
    maxLimits: { ...roomy.maxLimits, cpus },
    nofile,
  }));

const rest = fc.record(
  { readonly: fc.constant(true), approval: approvals, network: networks, limits, policy: policies },
  { requiredKeys: [] },
);
const zoneNeeds = fc.record(
  { name: fc.constantFrom(...NAMES), mode: modes, approval: approvals },
  { requiredKeys: ["name"] },
);
const files = fc.oneof(
  fc.record({ inherit: fc.boolean(), allowRead: lists, allowWrite: lists }, { requiredKeys: [] }),
  fc.record({ zones: fc.array(zoneNeeds, { maxLength: 3 }) }),
);
const needs: fc.Arbitrary<Needs> = fc.tuple(files, rest).map(([a, b]) => ({ ...a, ...b }));

const pathNeeds: fc.Arbitrary<Needs> = fc
  .uniqueArray(
    fc.record({
      name: fc.constantFrom("p", "q"),
      host: fc.oneof(
        places.map((path) => `/host/own${path}`.replace(/\/$/, "")),
        fc.constantFrom("/host/x", "/host/x/a/b"),
      ),
      mode: modes,
    }),
    { selector: ({ name }) => name, minLength: 1 },
  )
  .map((paths) => ({ paths }));

function projectOf(declared: readonly Mount[]): Sandbox {
  return projectSandbox({ mounts: declared, rooted: false, network: true }, roomy);
}

/** Goes down as far as the needs lead; where one is refused, its level inherits instead, so that trees get deep. */
function descend(
  root: Sandbox,
  tree: readonly Needs[],
  visit: (parent: Sandbox, needs: Needs, child: Sandbox) => void,
): void {
  let parent = root;
  for (const [depth, asked] of tree.entries()) {
    const inherit = { inherit: true, network: parent.network };
    const derivation = derive(parent, asked, `w${depth}`);
    const [taken, result] = derivation.ok ? [asked, derivation] : [inherit, derive(parent, inherit, `w${depth}`)];
    if (!result.ok) throw new Error(`inheriting was refused: ${JSON.stringify(result.violations)}`);
    visit(parent, taken, result.sandbox);
    // An empty sandbox has nothing left to test below it.
    if (result.sandbox.mounts.length > 0) parent = result.sandbox;
  }
}

describe("derive, for random trees of needs", () => {
  it("opens exactly what the table says at every path, at the parent's host places, and never more of anything", () => {
    fc.assert(
      fc.property(mounts, fc.array(needs, { minLength: 1, maxLength: DEPTH }), (declared, tree) => {
        descend(projectOf(declared), tree, (parent, asked, child) => {
          expectNoMore(parent, child);
          for (const path of PLACES) {
            const [had, has] = [pointAt(parent.mounts, path), pointAt(child.mounts, path)];
            expect(has?.mount.mode ?? "none", `${path} of ${JSON.stringify(asked)}`).toBe(
              expected(parent, asked, path),
            );
            if (has === null) continue;
            expect([has.host, has.mount.suffixes]).toEqual([had?.host, had?.mount.suffixes]);
            expect(isAsStrict(has.mount.approval, had?.mount.approval)).toBe(true);
          }
        });
      }),
      { numRuns: 150 },
    );
  });

  it("shows by worker-level paths only host places that the caller sees, with no more than its mode", () => {
    fc.assert(
      fc.property(mounts, needs, pathNeeds, (declared, asked, paths) => {
        const expectInside = (caller: Sandbox): void => {
          const derivation = derive(caller, paths, "callee");
          if (!derivation.ok) return;
          for (const place of SHALLOW) {
            for (const path of [`/p${place}`, `/q${place}`]) {
              const point = pointAt(derivation.sandbox.mounts, path);
              if (point !== null) expect(parentSees(caller, point.host, point.mount.mode), path).toBe(true);
            }
          }
        };
        const whole = projectOf(declared);
        // A worker that is run by itself has the project as its caller.
        expectInside(whole);
        descend(whole, [{ inherit: true }, asked], (_, __, caller) => expectInside(caller));
      }),
      { numRuns: 200 },
    );
  });

  it("changes nothing where nothing is narrowed", () => {
    fc.assert(
      fc.property(mounts, fc.array(needs, { minLength: 1, maxLength: 3 }), (declared, tree) => {
        descend(projectOf(declared), tree, (_, __, child) => {
          const { network, workingDir } = child;
          const again = derive(child, { inherit: true, network, workingDir }, "again");
          expect(again).toEqual({ ok: true, sandbox: { ...child, chain: [...child.chain, "again"] } });
        });
      }),
      { numRuns: 150 },
    );
  });

  it("refuses in words that hold neither a host path nor the word zone, naming an ancestor or a policy", () => {
    let refused = 0;
    fc.assert(
      fc.property(mounts, needs, fc.oneof(needs, pathNeeds), (declared, first, second) => {
        descend(projectOf(declared), [first], (_, __, parent) => {
          const derivation = derive(parent, second, "callee");
          if (derivation.ok) return;
          refused += 1;
          expect(describeViolations(derivation.violations)).not.toMatch(/zone|\/host|undefined/i);
          for (const violation of derivation.violations) {
            if ("by" in violation) expect(violation.by).toMatch(/^(project|w0|policy .*)$/);
          }
        });
      }),
      { numRuns: 300 },
    );
    expect(refused).toBeGreaterThan(50);
  });
});
