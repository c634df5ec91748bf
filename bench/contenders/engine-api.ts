import type Docker from "dockerode";
import { containerConfig, type SeccompProfiles } from "../../src/isolation/engine/container-config.ts";
import type { Plan } from "../../src/isolation/plan/plan.ts";
import type { OneRun } from "./one-run.ts";

/**
 * How a container is kept off the network: `none`, the Engine's network of that name, as `docker run --network none` and
 * whoever knows the Engine's documentation does; or `disabled`, as Corral's cells are, which costs half.
 */
export type EngineNetwork = "none" | "disabled";

/** The plan's container without Corral: its binds by path, its command run at once, its output read by nobody. */
export async function engineRun(
  docker: Docker,
  plan: Plan,
  { command, binds }: OneRun,
  seccomp: SeccompProfiles,
  network: EngineNetwork = "none",
): Promise<void> {
  const identity = { device: "0", inode: "0" };
  const mounts = binds.map((bind) => ({ ...bind, origin: "sandbox" as const, identity }));
  const config = containerConfig({ ...plan, mounts }, "", {}, { volumes: new Map(), names: null }, seccomp);
  const { name: _name, ...rest } = config;
  const still = { OpenStdin: false, StdinOnce: false, AttachStdin: false, AttachStdout: false, AttachStderr: false };
  const apart = { NetworkDisabled: network === "disabled" };
  const container = await docker.createContainer({ ...rest, ...still, ...apart, Entrypoint: [...command] });
  await container.start();
  // Asked after the start, for the exit that there was or will be: a wait for the next one may come too late.
  const { StatusCode } = (await container.wait()) as { StatusCode: number };
  await container.remove();
  if (StatusCode !== 0) throw new Error(`a container of the Engine API's ended with ${StatusCode}`);
}
