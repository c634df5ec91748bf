import { execFile } from "node:child_process";
import { promisify } from "node:util";

const execute = promisify(execFile);

/** A network namespace with one link to this machine, which can be cut. */
export interface Link extends AsyncDisposable {
  readonly namespace: string;
  /** Of this machine, as seen from the namespace. */
  readonly address: string;
  /** Nothing passes any more in either direction, and neither side gets an error. */
  cut(): Promise<void>;
  mend(): Promise<void>;
}

/** The names of interfaces have 15 characters at most. `mark`: of this harness, `index`: from 0 to 63. */
export async function makeLink(mark: string, index: number): Promise<Link> {
  const namespace = `corral-${mark}-${index}`;
  const [outer, inner] = [`cr${mark}${index}o`, `cr${mark}${index}i`];
  const net = 4 * index;
  const address = `10.213.88.${net + 1}`;
  const ip = async (...args: readonly string[]): Promise<void> => void (await execute("ip", [...args]));
  const drop = async (): Promise<void> => {
    await ip("link", "del", outer).catch(() => {});
    await ip("netns", "del", namespace).catch(() => {});
  };
  try {
    await ip("netns", "add", namespace);
    await ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", namespace);
    await ip("addr", "add", `${address}/30`, "dev", outer);
    await ip("link", "set", outer, "up");
    await ip("-n", namespace, "addr", "add", `10.213.88.${net + 2}/30`, "dev", inner);
    await ip("-n", namespace, "link", "set", "lo", "up");
    await ip("-n", namespace, "link", "set", inner, "up");
  } catch (error) {
    await drop();
    throw error;
  }
  return {
    namespace,
    address,
    // The other end loses its carrier, but keeps its address and its route: packets vanish, as behind a switch that fails.
    cut: () => ip("link", "set", outer, "down"),
    mend: () => ip("link", "set", outer, "up"),
    [Symbol.asyncDispose]: drop,
  };
}

/** The words before a command that runs it in the namespace. `ip netns exec` would hide the control groups. */
export function within({ namespace }: Link): readonly string[] {
  return ["nsenter", `--net=/run/netns/${namespace}`];
}

/** What is left of links. */
export async function linksLeft(mark: string): Promise<string[]> {
  const { stdout: namespaces } = await execute("ip", ["netns", "list"]);
  const { stdout: interfaces } = await execute("ip", ["-o", "link"]);
  return [
    ...namespaces.split("\n").filter((line) => line.includes(`corral-${mark}-`)),
    ...interfaces.split("\n").filter((line) => line.includes(` cr${mark}`)),
  ].map((line) => `the network has ${line.trim()}`);
}
