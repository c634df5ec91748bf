import type { Corral } from "../src/index.ts";
import { run } from "../src/index.ts";
import { containerConfig } from "../src/isolation/docker/container-config.ts";
import type { Plan } from "../src/isolation/plan.ts";
import { loadSeccompProfile } from "../src/policy/seccomp.ts";
import { type Contender, compare, printTimings } from "./measure.ts";

const ROUNDS = 20;

/** A run through the library against the raw Engine calls (create, start, wait, remove) for the same container. */
export async function benchColdRun(corral: Corral, plan: Plan): Promise<void> {
  const worker = corral.project.workers.get("nothing");
  if (worker === undefined) throw new Error("the bench project has no worker `nothing`");
  const engine = await rawEngine(corral, plan);
  const library: Contender = {
    name: "corral: run() in the library",
    async once() {
      const { status, error } = await run({ worker, signal: new AbortController().signal }, corral.environment);
      if (status !== "succeeded") throw new Error(error?.message ?? status);
    },
  };
  printTimings("A cold run of `true`, same image and hardening", await compare([engine, library], ROUNDS));
}

/** The plan's container without the gate: its mounts bound by path, its command run at once. */
async function rawEngine({ connection: { docker } }: Corral, plan: Plan): Promise<Contender> {
  const bare: Plan = { ...plan, mounts: plan.mounts.filter((mount) => mount.origin === "sandbox") };
  const config = containerConfig(bare, "", {}, new Map(), { corral: await loadSeccompProfile() });
  const { name: _name, ...rest } = config;
  const options = { ...rest, Entrypoint: [...plan.command], OpenStdin: false, StdinOnce: false, AttachStdin: false };
  return {
    name: "Engine API: create, start, wait, remove",
    async once() {
      const container = await docker.createContainer(options);
      const ended = container.wait({ condition: "next-exit" });
      await container.start();
      await ended;
      await container.remove();
    },
  };
}
