import type Docker from "dockerode";
import { containerConfig, type SeccompProfiles } from "../../src/isolation/engine/container-config.ts";
import { ENGINES_OWN } from "../../src/isolation/engine/own-kernel.ts";
import type { Plan } from "../../src/isolation/plan/plan.ts";
import type { OneRun } from "./one-run.ts";

/**
 * How a container is kept off the network. `none`: the Engine's network of that name, as with `docker run --network none`
 * and as the Engine's documentation suggests. `disabled`: as in Corral's cells; it costs half.
 */
export type EngineNetwork = "none" | "disabled";

/** Runs the plan's container without Corral: binds by path, the command at once, and no process reads the output. */
export async function engineRun(
  docker: Docker,
  plan: Plan,
  { command, binds }: OneRun,
  seccomp: SeccompProfiles,
  network: EngineNetwork = "none",
): Promise<void> {
  const identity = { device: "0", inode: "0" };
  const mounts = binds.map((bind) => ({ ...bind, origin: "sandbox" as const, identity }));
  const config = containerConfig(
    { ...plan, mounts },
    "",
    {},
    { volumes: new Map(), names: null, runtime: ENGINES_OWN },
    seccomp,
  );
  const { name: _name, ...rest } = config;
  const still = { OpenStdin: false, StdinOnce: false, AttachStdin: false, AttachStdout: false, AttachStderr: false };
  const apart = { NetworkDisabled: network === "disabled" };
  const container = await docker.createContainer({ ...rest, ...still, ...apart, Entrypoint: [...command] });
  await container.start();
  // Waits after the start, for an exit that may already have happened: a wait for the next exit could miss it.
  const { StatusCode } = (await container.wait()) as { StatusCode: number };
  await container.remove();
  if (StatusCode !== 0) throw new Error(`a container of the Engine API ended with exit code ${StatusCode}`);
}
