import { chmod, mkdir, readFile, rm, symlink, truncate, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { fleetFacts } from "../../src/fleet/cache/agreement.ts";
import type { ItemRequest } from "../../src/fleet/model/item.ts";
import { rootSandbox } from "../../src/run/model/permission.ts";
import { memoryEngine } from "../run/memory-engine.ts";
import { openFleetProject } from "./fleet-fixture.ts";

const NEVER = new AbortController().signal;

const OUT = { name: "out", mode: "rw", approval: "pre_approved" };
const ITEMS = ["a", "b"].map((key) => ({ key, input: key, allowWrite: [`/out/${key}`] }));

/** A fleet whose worker writes its input into its own folder; `meanwhile` runs in place of the rest of its work. */
async function cachedFleet(sandbox: Record<string, unknown> = { zones: [{ name: "tools", mode: "ro" }, OUT] }) {
  const work = { meanwhile: async (): Promise<void> => {} };
  const place = { dir: "" };
  const engine = memoryEngine({
    programs: {
      w: async ({ stdin }) => {
        const key = JSON.parse(stdin.toString()) as string;
        await writeFile(join(place.dir, "out", key, "text"), key).catch(() => {});
        await work.meanwhile();
        return 0;
      },
    },
  });
  const f = await openFleetProject(
    {
      zones: { tools: "ro", out: "rw" },
      workers: { w: { command: ["w"], sandbox } },
      files: { "tools/run": "v1", "tools/1/f": "1", "tools/2/f": "2", "out/keep": "" },
    },
    { engine: engine.open },
  );
  place.dir = f.project.dir;
  const at = (path: string): string => join(f.project.dir, path);
  return {
    f,
    work,
    at,
    async ran(items: readonly Partial<ItemRequest>[] = ITEMS): Promise<string> {
      const { results } = await f.map({ cache: true, concurrency: 2 }, items);
      const statuses = items.map(({ key = "" }) => results.get(key)?.status ?? "none");
      return statuses.map((status) => (status === "succeeded" ? "ran" : status)).join(" ");
    },
    [Symbol.asyncDispose]: () => f[Symbol.asyncDispose](),
  };
}

describe("an item that succeeded before", () => {
  it("runs again if a file that it can read has other content, and not if only its times differ", async () => {
    await using o = await cachedFleet();
    expect(await o.ran()).toBe("ran ran");
    expect(await o.ran()).toBe("cached cached");
    await writeFile(o.at("tools/run"), "v2");
    await utimes(o.at("tools/run"), 1, 1);
    expect(await o.ran(), "a script was edited").toBe("ran ran");
    expect(await o.ran()).toBe("cached cached");
    await utimes(o.at("tools/run"), 2, 2);
    expect(await o.ran(), "only touched").toBe("cached cached");
    await chmod(o.at("tools/run"), 0o755);
    expect(await o.ran(), "its mode").toBe("ran ran");
    await symlink("1/f", o.at("tools/link"));
    expect(await o.ran(), "a link").toBe("ran ran");
    await rm(o.at("tools/link"));
    await symlink("2/f", o.at("tools/link"));
    expect(await o.ran(), "another link").toBe("ran ran");
    await rm(o.at("tools/2"), { recursive: true });
    expect(await o.ran(), "a file is gone").toBe("ran ran");
    await writeFile(o.at("out/other"), "x");
    expect(await o.ran(), "a file beside the folders that items write").toBe("ran ran");
  });

  it("runs again if one of its output files is gone or changed, and other items do not", async () => {
    await using o = await cachedFleet();
    await o.ran();
    await rm(o.at("out/a/text"));
    expect(await o.ran()).toBe("ran cached");
    expect(await readFile(o.at("out/a/text"), "utf8")).toBe("a");
    await writeFile(o.at("out/b/text"), "mine");
    expect(await o.ran()).toBe("cached ran");
    await rm(o.at("out/b"), { recursive: true });
    expect(await o.ran()).toBe("cached ran");
    expect(await o.ran([...ITEMS, { key: "c", input: "c", allowWrite: ["/out/c"] }]), "a further item").toBe(
      "cached cached ran",
    );
  });

  it("runs again with another input", async () => {
    await using o = await cachedFleet();
    const items = (input: string) => [{ key: "a", input, allowWrite: ["/out/a"] }];
    expect(await o.ran(items("a"))).toBe("ran");
    expect(await o.ran(items("a"))).toBe("cached");
    expect(await o.ran(items("b"))).toBe("ran");
  });

  it("of a large directory runs again if only the times of a file differ", async () => {
    await using o = await cachedFleet();
    await truncate(o.at("tools/run"), 65 * 1024 ** 2);
    await o.ran();
    expect(await o.ran()).toBe("cached cached");
    await utimes(o.at("tools/run"), 1, 1);
    expect(await o.ran()).toBe("ran ran");
  });

  it("does not count if what it reads changed while the fleet ran, even if the change was undone", async () => {
    await using o = await cachedFleet();
    o.work.meanwhile = async () => {
      await writeFile(o.at("tools/run"), "v2");
      await writeFile(o.at("tools/run"), "v1");
    };
    await o.ran();
    o.work.meanwhile = async () => {};
    expect(await o.ran()).toBe("ran ran");
    expect(await o.ran()).toBe("cached cached");
  });

  it("does not count if its attachment changed while it ran", async () => {
    await using o = await cachedFleet();
    await writeFile(join(o.f.project.dir, "in"), "v1");
    const items = [{ ...ITEMS[0], attachments: [{ name: "in", path: join(o.f.project.dir, "in") }] }];
    o.work.meanwhile = () => writeFile(join(o.f.project.dir, "in"), "v2");
    await o.ran(items);
    await writeFile(join(o.f.project.dir, "in"), "v1");
    o.work.meanwhile = async () => {};
    expect(await o.ran(items)).toBe("ran");
    expect(await o.ran(items)).toBe("cached");
  });

  it("with an attachment that nobody could read to its end runs again if only the times of that differ", async () => {
    await using o = await cachedFleet();
    const path = join(o.f.project.dir, "in");
    await writeFile(path, "");
    await truncate(path, 2 * 1024 ** 4);
    const items = [{ ...ITEMS[0], attachments: [{ name: "in", path }] }];
    expect(await o.ran(items)).toBe("ran");
    expect(await o.ran(items)).toBe("cached");
    await utimes(path, 1, 1);
    expect(await o.ran(items)).toBe("ran");
  });

  it("depends only on the directories that it may read itself", async () => {
    await using o = await cachedFleet();
    const items = ["1", "2"].map((key) => {
      return { key, input: key, allowRead: [`/tools/${key}`, `/out/${key}`], allowWrite: [`/out/${key}`] };
    });
    expect(await o.ran(items)).toBe("ran ran");
    await writeFile(o.at("tools/2/f"), "3");
    await writeFile(o.at("tools/run"), "v2");
    expect(await o.ran(items)).toBe("cached ran");
    o.work.meanwhile = async () => {
      await writeFile(o.at("tools/1/f"), "other");
      await writeFile(o.at("tools/1/f"), "1");
    };
    await rm(o.at("out/1"), { recursive: true });
    expect(await o.ran(items)).toBe("ran cached");
    o.work.meanwhile = async () => {};
    expect(await o.ran(items), "changed while it ran").toBe("ran cached");
  });

  it("always runs if it has no folder of its own, or can get directories that are not known before", async () => {
    await using shared = await cachedFleet();
    const all = [{ key: "a", input: "a" }];
    await shared.ran(all);
    expect(await shared.ran(all)).toBe("ran");
    await mkdir(shared.at("more"));
    await using dynamic = await cachedFleet({ zones: [OUT], dynamic: { max: 1 } });
    await dynamic.ran();
    expect(await dynamic.ran()).toBe("ran ran");
  });
});

describe("the digest of a fleet", () => {
  it("has the images and policies of all workers that may be called", async () => {
    await using f = await openFleetProject(
      {
        workers: {
          w: { command: ["w"], calls: ["helper"] },
          helper: { command: ["h"], policy: "batch", image: "corral/python" },
        },
      },
      { engine: memoryEngine({ programs: {} }).open },
    );
    const { environment, project } = f.project.corral;
    const worker = project.workers.get("w");
    const root = await rootSandbox(environment, null);
    if (worker === undefined) throw new Error("the fixture's project is not as it should be");
    const digestWith = async (more: Partial<typeof environment>) =>
      (await fleetFacts(worker, root, { ...environment, ...more }, NEVER)).digest;
    const first = await digestWith({});
    expect(first).not.toBeNull();
    expect(await digestWith({})).toBe(first);
    expect((await fleetFacts(worker, { ...root, network: true }, environment, NEVER)).digest).toBeNull();
    const denied = { ...project, approval: { ...project.approval, mode: "auto_deny" as const } };
    const approved = { ...project, approval: { ...project.approval, mode: "approve_all" as const } };
    expect(await digestWith({ project: denied })).not.toBe(await digestWith({ project: approved }));
    const { driver } = environment;
    const imageFacts: typeof driver.imageFacts = async (name) => ({
      name,
      id: name === "corral/python" ? "other" : "same",
      env: [],
      volumes: [],
    });
    const other: typeof driver.imageFacts = async (name) => ({ name, id: "same", env: [], volumes: [] });
    expect(await digestWith({ driver: { ...driver, imageFacts } })).not.toBe(
      await digestWith({ driver: { ...driver, imageFacts: other } }),
    );
    const policyNamed: typeof environment.policyNamed = async (name) => {
      const policy = await environment.policyNamed(name);
      return { ...policy, hardening: { ...policy.hardening, rootUser: true } };
    };
    expect(await digestWith({ policyNamed })).not.toBe(first);
  });
});
