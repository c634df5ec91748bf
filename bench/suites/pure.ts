import { planFor } from "../../src/isolation/plan/plan-for.ts";
import { permissionOf, rootSandbox } from "../../src/run/model/permission.ts";
import { accessOf } from "../../src/sandbox/access.ts";
import { derive } from "../../src/sandbox/derive.ts";
import type { Needs, Sandbox } from "../../src/sandbox/sandbox.ts";
import { joinVirtual, ROOT } from "../../src/sandbox/virtual-path.ts";
import type { Bench } from "../bench.ts";
import { type Contender, interleaved } from "../measure.ts";
import { groupOf } from "../outcome/report.ts";
import type { Suite } from "./suite.ts";

const ROUNDS = 100;
/** These acts are quicker than the clock's resolution, so this many are timed together. */
const TIMES = 200;
const MOUNTS = 10;

/** The permission model by itself, which does no I/O. No other contender does the same work. */
export const PURE: Suite = {
  async measure(bench) {
    const parent = await sandboxWithMounts(bench);
    const paths = parent.mounts.map(({ path }) => joinVirtual(path, "some/deep/folder/file.txt"));
    const [first = ROOT] = paths;
    const needs: Needs = { allowRead: paths.slice(0, 3), allowWrite: paths.slice(0, 1) } as Needs;
    const derivation = derive(parent, needs, "child");
    if (!derivation.ok) throw new Error(JSON.stringify(derivation.violations));
    const request = await planRequest(bench);
    if (!planFor(request).ok) throw new Error("the bench's plan was refused");
    const contenders = [
      timed(`Corral: access check, ${MOUNTS} mounts`, () => accessOf(parent, first) === "write"),
      timed(`Corral: derive, ${MOUNTS} mounts`, () => derive(parent, needs, "child").ok),
      timed("Corral: plan of a container", () => planFor(request).ok),
    ];
    const series = await interleaved(contenders, ROUNDS);
    return { groups: [groupOf("pure", "Decisions, without any I/O", "µs", series, "different")] };
  },
};

function timed(name: string, act: () => boolean): Contender {
  return {
    names: [name],
    async once() {
      const begun = performance.now();
      for (let time = 0; time < TIMES; time += 1) if (!act()) throw new Error(`${name} failed`);
      return [((performance.now() - begun) * 1000) / TIMES];
    },
  };
}

async function sandboxWithMounts({ ours: [{ corral }] }: Bench): Promise<Sandbox> {
  const root = await rootSandbox(corral.environment, null);
  const mounts = Array.from({ length: MOUNTS }, (_, index) => {
    const name = `zone${index}`;
    return { name, path: joinVirtual(ROOT, name), host: `/host/${name}`, mode: "rw" as const };
  });
  return { ...root, mounts };
}

async function planRequest({ ours: [{ corral, worker }], plan }: Bench): Promise<Parameters<typeof planFor>[0]> {
  const { environment: env } = corral;
  const definition = worker("echo");
  const root = await rootSandbox(env, null);
  const derivation = await permissionOf(definition, root, null, env);
  const image = await env.driver.imageFacts(definition.image);
  if (!derivation.ok || image === null) throw new Error("the bench's worker may not run");
  const socket = plan.mounts.find(({ kind }) => kind === "socket")?.host ?? "/socket";
  const gate = await env.gate();
  const source = { device: "1", inode: "1", uid: 0, gid: 0 };
  return {
    run: { id: plan.run, root: plan.root, parent: null },
    worker: { name: definition.name, command: definition.command ?? [], env: definition.env },
    sandbox: derivation.sandbox,
    image,
    sources: new Map([
      [gate, { ...source, kind: "file" }],
      [socket, { ...source, kind: "socket" }],
    ]),
    attachments: [],
    views: new Set(),
    plumbing: { gate, socket },
    orchestratorUid: process.getuid?.() ?? 0,
  };
}
