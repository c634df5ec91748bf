import { describe, expect, it } from "vitest";
import { mountNameFault } from "../../../src/declarations/terms/names.ts";
import { planMounts } from "../../../src/isolation/plan/mounts.ts";
import type { Violation } from "../../../src/sandbox/violation.ts";
import { isReserved } from "../../../src/sandbox/virtual-path.ts";
import { at, mount, project } from "../../sandbox/sandboxes.ts";

const CANDIDATES =
  "bin boot dev etc home lib lib32 lib64 libx32 media mnt opt proc root run sbin srv sys tmp usr var attachments .corral data".split(
    " ",
  );

/** Whether a cell would refuse a mount there. */
function cellRefuses(name: string): boolean {
  const sandbox = project([mount(`/${name}`, "ro")]);
  const source = { kind: "directory", device: "1", inode: "1", uid: 1, gid: 1 } as const;
  const sources = new Map(["/host", `/host/${name}`, "gate", "socket"].map((host) => [host, source]));
  const violations: Violation[] = [];
  const plumbing = { gate: "gate", socket: "socket" };
  planMounts({ sandbox, sources, views: new Set(), attachments: [], plumbing }, violations);
  return violations.length > 0;
}

describe("the places at which nothing is granted", () => {
  it.each(CANDIDATES)("are those at which a cell takes no mount: /%s", (name) => {
    expect(isReserved(at(`/${name}`), { rooted: false })).toBe(cellRefuses(name));
    // A project cannot call a mount so either.
    if (cellRefuses(name)) expect(mountNameFault(name)).not.toBeNull();
  });

  it("are no more than the names that a project cannot give, but for the place of a rooted namespace", () => {
    const given = CANDIDATES.filter((name) => mountNameFault(name) === null);
    expect(given).toEqual(["home", "media", "mnt", "opt", "srv", "data"]);
    expect([mountNameFault("project"), isReserved(at("/project"), { rooted: false })]).toEqual([
      "is reserved: it would hide a system directory of the cell",
      false,
    ]);
  });
});
