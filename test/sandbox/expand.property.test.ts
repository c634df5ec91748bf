import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { canonicalMounts, governingMount, hostPathOf, select } from "../../src/sandbox/access.ts";
import type { Consent } from "../../src/sandbox/approval.ts";
import { type DirectoryGrant, expand } from "../../src/sandbox/expand.ts";
import type { Mount } from "../../src/sandbox/mount.ts";
import type { Sandbox } from "../../src/sandbox/sandbox.ts";
import { isReserved, type VirtualPath } from "../../src/sandbox/virtual-path.ts";
import { project, roomy } from "./sandboxes.ts";

const NAMES = ["a", "b", "a-b"];
/** Every path of up to three components, and the paths where mounts stand and directories are asked for. */
const PLACES = pathsBelow("", 3) as VirtualPath[];
const SHALLOW = pathsBelow("", 2) as VirtualPath[];

function pathsBelow(prefix: string, depth: number): string[] {
  const here = NAMES.map((name) => `${prefix}/${name}`);
  return depth === 1 ? here : [...here, ...here.flatMap((path) => pathsBelow(path, depth - 1))];
}

const consent = fc.constantFrom<Consent>("pre_approved", "ask", "blocked");
const constraints = fc.record(
  {
    suffixes: fc.subarray([".md", ".pdf", ".txt"], { minLength: 1 }),
    maxFileBytes: fc.integer({ min: 1, max: 3 }),
    approval: fc.record({ write: consent, delete: consent }),
  },
  { requiredKeys: [] },
);

/** Mounts whose host is the same directory as their path says, or another one that hides it. */
const mounts = fc
  .uniqueArray(
    fc.record({
      path: fc.constantFrom(...SHALLOW),
      mode: fc.constantFrom("ro" as const, "rw" as const),
      elsewhere: fc.boolean(),
      constraints,
    }),
    { selector: ({ path }) => path, maxLength: 4 },
  )
  .map((drafts) =>
    canonicalMounts(
      drafts.map(
        ({ path, mode, elsewhere, constraints }): Mount => ({
          name: path.split("/")[1] ?? "",
          path,
          host: `${elsewhere ? "/other" : "/host"}${path}`,
          mode,
          ...constraints,
        }),
      ),
    ),
  );

const worker = mounts.map((made): Sandbox => project(made, {}, roomy));
const grant = fc.record({
  id: fc.constant("g"),
  path: fc.constantFrom(...SHALLOW),
  mode: fc.constantFrom("read" as const, "write" as const),
  by: fc.constant("a person"),
  above: mounts,
});

function grantOf({ above, ...rest }: { above: Mount[] } & Omit<DirectoryGrant, "source">): DirectoryGrant {
  return { ...rest, source: select({ mounts: above }, rest.path) };
}

const RANK = { none: 0, ro: 1, rw: 2 } as const;
function modeAt(sandbox: Pick<Sandbox, "mounts">, path: VirtualPath): "none" | "ro" | "rw" {
  return governingMount(sandbox, path)?.mode ?? "none";
}

function isAtOrBelow(prefix: string, path: string): boolean {
  const [outer, inner] = [prefix, path].map((each) => each.split("/"));
  return (outer ?? []).every((part, index) => inner?.[index] === part);
}

function check(property: (before: Sandbox, after: Sandbox, grant: DirectoryGrant) => void): void {
  fc.assert(
    fc.property(worker, grant, (before, drawn) => {
      const given = grantOf(drawn);
      const kept = structuredClone(before);
      const after = expand(before, given);
      expect(before).toEqual(kept);
      property(before, after, given);
    }),
    { numRuns: 500 },
  );
}

describe("expand", () => {
  it("never takes access away, and never shows another directory where there was one", () => {
    check((before, after) => {
      for (const path of PLACES) {
        expect(RANK[modeAt(after, path)]).toBeGreaterThanOrEqual(RANK[modeAt(before, path)]);
        if (modeAt(before, path) !== "none") expect(hostPathOf(after, path)).toBe(hostPathOf(before, path));
      }
    });
  });

  it("changes nothing but at or below the directory that was granted", () => {
    check((before, after, { path: directory }) => {
      for (const path of PLACES.filter((place) => !isAtOrBelow(directory, place))) {
        const [had, has] = [governingMount(before, path), governingMount(after, path)];
        expect(has).toEqual(had);
      }
    });
  });

  it("gives no more than its source has there, and no writing where reading was granted", () => {
    check((before, after, { source, mode }) => {
      for (const path of PLACES.filter((place) => modeAt(after, place) !== modeAt(before, place))) {
        expect(RANK[modeAt(after, path)]).toBeLessThanOrEqual(RANK[modeAt({ mounts: source }, path)]);
        expect(hostPathOf(after, path)).toBe(hostPathOf({ mounts: source }, path));
        if (mode === "read") expect(modeAt(after, path)).toBe("ro");
      }
    });
  });

  it("gives all that was granted: reading wherever the source reads, writing wherever it is the same directory", () => {
    check((before, after, { source, mode, path: directory }) => {
      for (const path of PLACES.filter((place) => isAtOrBelow(directory, place))) {
        const has = modeAt({ mounts: source }, path);
        if (has !== "none") expect(modeAt(after, path)).not.toBe("none");
        const same = [null, hostPathOf({ mounts: source }, path)].includes(hostPathOf(before, path));
        if (mode === "write" && has === "rw" && same) expect(modeAt(after, path)).toBe("rw");
      }
    });
  });

  it("keeps every suffix, size and block of the worker's and of the source's where it opens or upgrades", () => {
    check((before, after, { source }) => {
      for (const path of PLACES) {
        const now = governingMount(after, path);
        if (now === undefined || now.mode === modeAt(before, path)) continue;
        for (const limit of [governingMount(before, path), governingMount({ mounts: source }, path)]) {
          const { suffixes, maxFileBytes, approval } = limit ?? {};
          if (suffixes !== undefined) for (const each of now.suffixes ?? ["any"]) expect(suffixes).toContain(each);
          if (maxFileBytes !== undefined) expect(now.maxFileBytes).toBeLessThanOrEqual(maxFileBytes);
          if (approval?.write === "blocked") expect(now.approval?.write).toBe("blocked");
          if (approval?.delete === "blocked") expect(now.approval?.delete).toBe("blocked");
        }
      }
    });
  });

  it("leaves limits, policy, network, working directory and what was taken away as they are", () => {
    check((before, after) => {
      const { mounts: _, narrowings, ...rest } = after;
      const { mounts: __, narrowings: told, ...same } = before;
      expect(rest).toEqual(same);
      expect(narrowings.slice(0, told.length)).toEqual(told);
      expect(narrowings.length - told.length).toBe(after === before ? 0 : 1);
    });
  });

  it("changes nothing the second time", () => {
    check((_, after, given) => expect(expand(after, given)).toBe(after));
  });

  it("never makes a mount at a reserved place", () => {
    check((before, after) => {
      for (const { path } of after.mounts) {
        if (!before.mounts.some((mount) => mount.path === path)) expect(isReserved(path, after)).toBe(false);
      }
    });
  });
});
