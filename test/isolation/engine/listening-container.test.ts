import { mkdir, readdir } from "node:fs/promises";
import type Docker from "dockerode";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { loadSeccompProfile } from "../../../src/declarations/policy/policy.ts";
import type { Removal } from "../../../src/isolation/engine/cell-remains.ts";
import { enterByContainer } from "../../../src/isolation/engine/listening-container.ts";
import type { Plan } from "../../../src/isolation/plan/plan.ts";
import { readLabels } from "../../../src/isolation/port/labels.ts";
import { cellOf, type Engine, openEngine } from "./engine.ts";

const PLACES = [{ address: "127.88.1.1", port: 443, host: "a.example" }];

let engine: Engine;
let seccomp: { corral: string };
beforeAll(async () => {
  engine = await openEngine();
  seccomp = { corral: await loadSeccompProfile() };
  await mkdir(engine.liveDir, { recursive: true });
});
afterAll(() => engine[Symbol.asyncDispose]());

/** The Engine's own client, of which one part is another one. */
function clientWith(part: Partial<Docker>): Docker {
  return Object.assign(Object.create(engine.docker) as Docker, part);
}

async function waitingCell() {
  const { plan, pins } = await engine.plan({ command: ["true"] });
  const unremoved = new Map<string, Removal>();
  const signal = new AbortController().signal;
  const cell = cellOf(await engine.driver.start({ plan, pins, signal, onOutput: () => {} }));
  const listen = (docker: Docker, as: Partial<Plan> = {}) =>
    enterByContainer(
      {
        docker,
        maker: engine.maker,
        liveDir: engine.liveDir,
        seccomp,
        plan: { ...plan, ...as },
        cell: cell.id,
        unremoved: { add: (name, removal) => void unremoved.set(name, removal) },
      },
      PLACES,
    );
  const left = async () => [...(await engine.traces(plan.run)).slice(1), ...(await readdir(engine.liveDir))];
  return { cell, plan, listen, left, unremoved };
}

describe("the second container that listens for a cell", () => {
  it("has the network of the cell and a socket, as a user that is not in the cell, and is gone when it has listened", async () => {
    const { cell, listen, left } = await waitingCell();
    await using _ = cell;
    const seen: Docker.ContainerInspectInfo[] = [];
    const docker = clientWith({
      getContainer(name) {
        const container = engine.docker.getContainer(name);
        const start = container.start.bind(container);
        container.start = (async () => {
          await start();
          seen.push(await engine.docker.getContainer(name).inspect());
        }) as typeof container.start;
        return container;
      },
    });
    const user = { uid: 65532, gid: 65532 };
    const open = await listen(docker, { user, keeper: { uid: 65533, gid: 65533 } });
    expect(open.ok).toBe(true);
    if (open.ok) await open[Symbol.asyncDispose]();
    expect(seen).toMatchObject([
      {
        Config: { User: "65534:65534" },
        HostConfig: {
          NetworkMode: `container:${cell.id}`,
          PidMode: "",
          IpcMode: "none",
          ReadonlyRootfs: true,
          CapAdd: null,
          CapDrop: ["ALL"],
          SecurityOpt: ["no-new-privileges", expect.stringContaining("seccomp=")],
        },
        Mounts: [{ Destination: "/.corral/socket", RW: false }],
      },
    ]);
    // So it is found and removed if this process dies.
    const { Name = "", Config } = seen[0] ?? {};
    const labelled = readLabels(engine.maker.sealKey, "container", Name.slice(1), Config?.Labels ?? null);
    expect(labelled?.owner).toEqual(engine.maker.owner);
    expect(await left()).toEqual([]);
  });

  it.each<[string, Docker.ContainerCreateOptions["HostConfig"]]>([
    ["network", { NetworkMode: "none" }],
    ["namespaces", { PidMode: "host" }],
    ["root file system", { ReadonlyRootfs: false }],
    ["privileges", { CapAdd: ["NET_ADMIN"] }],
    ["privileges", { SecurityOpt: [] }],
    ["mounts", { Binds: ["/etc:/host:ro"] }],
    ["limits", { PidsLimit: 0 }],
  ])("is given nothing if the Engine made it with another %s", async (what, other) => {
    const { cell, listen, left } = await waitingCell();
    await using _ = cell;
    const createContainer = (config: Docker.ContainerCreateOptions) =>
      engine.docker.createContainer({ ...config, HostConfig: { ...config.HostConfig, ...other } });
    const docker = clientWith({ createContainer } as Partial<Docker>);
    await expect(listen(docker)).rejects.toMatchObject({
      name: "EngineTrouble",
      message: expect.stringContaining(what),
    });
    expect(await left()).toEqual([]);
  });

  it("is refused with what to do if there is no image for it", async () => {
    const { cell, listen, left } = await waitingCell();
    await using _ = cell;
    const docker = clientWith({ getImage: () => engine.docker.getImage("corral/none") });
    expect(await listen(docker)).toEqual({ ok: false, reason: expect.stringContaining("corral images build node") });
    expect(await left()).toEqual([]);
  });

  it("is remembered if the Engine does not remove it", async () => {
    const { cell, listen, left, unremoved } = await waitingCell();
    await using _ = cell;
    let isAway = true;
    const docker = clientWith({
      getContainer(name) {
        const container = engine.docker.getContainer(name);
        const remove = container.remove.bind(container);
        const away = Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });
        container.remove = (async (how: object) => {
          if (isAway) throw away;
          return await remove(how);
        }) as typeof container.remove;
        return container;
      },
    });
    await expect(listen(docker)).rejects.toMatchObject({ name: "EngineTrouble" });
    expect(unremoved.size).toBe(1);
    isAway = false;
    for (const removal of unremoved.values()) await removal(() => true);
    expect(await left()).toEqual([]);
  });

  it("is removed if it ends before it has listened", async () => {
    const { cell, listen, left } = await waitingCell();
    await using _ = cell;
    const createContainer = (config: Docker.ContainerCreateOptions) =>
      engine.docker.createContainer({ ...config, Entrypoint: ["node", "--eval", "process.exit(3)"] });
    const docker = clientWith({ createContainer } as Partial<Docker>);
    await expect(listen(docker)).rejects.toMatchObject({
      name: "EngineTrouble",
      message: expect.stringContaining("it ended with 3"),
    });
    expect(await left()).toEqual([]);
  });
});
