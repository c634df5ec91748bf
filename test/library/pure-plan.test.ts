import { describe, expect, it } from "vitest";
import { loadPolicy } from "../../src/index.ts";
import { type PlanRequest, planFor, sandboxOf } from "../../src/sandbox.ts";

const source = (kind: "directory" | "file" | "socket", uid: number) =>
  ({ device: "1", inode: "2", uid, gid: uid, kind }) as const;

/** A program's own request, out of what the package exports alone. */
async function request(narrowed: Parameters<ReturnType<typeof sandboxOf>["derive"]>[0]): Promise<PlanRequest> {
  const approval = { write: "pre_approved", delete: "pre_approved" } as const;
  const program = sandboxOf({
    mounts: { src: { host: "/srv/src" }, out: { host: "/srv/out", mode: "rw", approval } },
    policy: await loadPolicy("untrusted", { dirs: [] }),
  });
  return {
    run: { id: "a", root: "a", parent: null },
    worker: { name: "w", command: ["make"], env: {} },
    sandbox: program.derive(narrowed, "w").data,
    image: { name: "i", id: "sha256:1", env: [], volumes: [] },
    sources: new Map([
      ["/srv/src", source("directory", 0)],
      ["/srv/out", source("directory", 1000)],
      ["/gate", source("file", 0)],
      ["/socket", source("socket", 0)],
    ]),
    attachments: [],
    views: "would-be",
    plumbing: { gate: "/gate", socket: "/socket" },
    orchestratorUid: 0,
  };
}

describe("planFor, as the package exports it", () => {
  it("makes the container of a sandbox that `sandboxOf` and `derive` made, and the same one each time", async () => {
    const planning = planFor(await request({ inherit: true }));
    if (!planning.ok) throw new Error(JSON.stringify(planning.violations));
    const own = planning.plan.mounts.filter(({ origin }) => origin === "sandbox");
    expect(own.map(({ path, mode }) => `${path} ${mode}`)).toEqual(["/out rw", "/src ro"]);
    expect(planning.plan).toMatchObject({ policy: "untrusted", network: "none", user: { uid: 1000 } });
    expect(planFor(await request({ inherit: true }))).toEqual(planning);
  });

  it("binds nothing that was not asked for", async () => {
    const planning = planFor(await request({}));
    expect(planning.ok && planning.plan.mounts.filter(({ origin }) => origin === "sandbox")).toEqual([]);
  });
});
