import { readFile } from "node:fs/promises";
import type Docker from "dockerode";
import { containerConfig, type SeccompProfiles } from "../../src/isolation/engine/container-config.ts";
import { ENGINES_OWN } from "../../src/isolation/engine/own-kernel.ts";
import type { Plan } from "../../src/isolation/plan/plan.ts";

/** A user-defined network of the Engine. Disposing removes it. */
export interface SideNetwork extends AsyncDisposable {
  readonly name: string;
  /** The address of the host there. */
  readonly gateway: string;
}

const LABEL = "corral-bench";
/** Of the proxy in its container. */
export const PROXY_PORT = 3128;

export async function openSideNetwork(docker: Docker): Promise<SideNetwork> {
  // Of benches that were killed.
  await docker.pruneNetworks({ filters: { label: [LABEL] } });
  const name = `${LABEL}-${process.pid}`;
  const network = await docker.createNetwork({ Name: name, Labels: { [LABEL]: "" } });
  const { IPAM } = await network.inspect();
  const gateway: string | undefined = IPAM?.Config?.[0]?.Gateway;
  if (gateway === undefined) throw new Error("the Engine's network has no gateway");
  return { name, gateway, [Symbol.asyncDispose]: async () => void (await network.remove()) };
}

/** A container of the bench's own. Disposing removes it. */
export interface SideContainer extends AsyncDisposable {
  /** Its address in a user-defined network; else empty. */
  readonly address: string;
}

export async function startScript(
  docker: Docker,
  { plan, seccomp }: { readonly plan: Plan; readonly seccomp: SeccompProfiles },
  network: string,
  args: readonly string[],
): Promise<SideContainer> {
  const sources = { volumes: new Map(), names: null, runtime: ENGINES_OWN };
  // The limits and the hardening of a cell: the network is the only difference.
  const { name: _name, ...rest } = containerConfig({ ...plan, mounts: [] }, "", { [LABEL]: "" }, sources, seccomp);
  const container = await docker.createContainer({
    ...rest,
    ...{ OpenStdin: false, StdinOnce: false, AttachStdin: false, AttachStdout: false, AttachStderr: false },
    NetworkDisabled: false,
    Entrypoint: ["node", "-e", ...args],
    HostConfig: { ...rest.HostConfig, NetworkMode: network },
  });
  await container.start();
  const { NetworkSettings } = await container.inspect();
  return {
    address: NetworkSettings.Networks[network]?.IPAddress ?? "",
    [Symbol.asyncDispose]: async () => void (await container.remove({ force: true })),
  };
}

export async function script(name: "client" | "proxy"): Promise<string> {
  return await readFile(new URL(`./${name}.cjs`, import.meta.url), "utf8");
}
