import { pathToFileURL } from "node:url";
import { TESTCONTAINERS } from "../outcome/names.ts";
import type { OpenedPeer, Peer } from "./peer.ts";

/** The part of the package that the bench uses. The type checker may not find the package, so it is declared here. */
interface Testcontainers {
  readonly GenericContainer: new (image: string) => Container;
  readonly Wait: { forOneShotStartup(): unknown };
}

interface Container {
  withEntrypoint(entrypoint: string[]): Container;
  withNetworkMode(mode: string): Container;
  withUser(user: string): Container;
  withDroppedCapabilities(...names: string[]): Container;
  withSecurityOpt(...options: string[]): Container;
  withTmpFs(tmpfs: Record<string, string>): Container;
  withResourcesQuota(quota: { memory: number; cpu: number }): Container;
  withBindMounts(binds: { source: string; target: string; mode: string }[]): Container;
  withWaitStrategy(strategy: unknown): Container;
  start(): Promise<{ stop(options: { remove: boolean; timeout: number }): Promise<unknown> }>;
}

/** `entry`: the package's file. Its helper container needs an image from a registry, so it is switched off. */
export async function openTestcontainers(entry: string, image: string): Promise<OpenedPeer> {
  process.env.TESTCONTAINERS_RYUK_DISABLED = "true";
  try {
    const { GenericContainer, Wait } = (await import(pathToFileURL(entry).href)) as Testcontainers;
    const peer: Omit<Peer, "name"> = {
      difference:
        "testcontainers sets no read-only root, limit of processes, seccomp profile or init, and reads no output",
      async run({ user, limits, tmpfs }, { command, binds }) {
        const container = new GenericContainer(image)
          .withEntrypoint([...command])
          .withNetworkMode("none")
          .withUser(`${user.uid}:${user.gid}`)
          .withDroppedCapabilities("ALL")
          .withSecurityOpt("no-new-privileges")
          .withTmpFs(Object.fromEntries(tmpfs.map(({ path, bytes }) => [path, `rw,nosuid,nodev,size=${bytes}`])))
          .withResourcesQuota({ memory: limits.memoryBytes / 1024 ** 3, cpu: limits.cpus })
          .withBindMounts(binds.map(({ host, path, mode }) => ({ source: host, target: path, mode })))
          .withWaitStrategy(Wait.forOneShotStartup());
        const started = await container.start();
        await started.stop({ remove: true, timeout: 0 });
      },
      [Symbol.asyncDispose]: async () => {},
    };
    return { name: TESTCONTAINERS, ...peer };
  } catch (error) {
    return { name: TESTCONTAINERS, absent: (error as Error).message };
  }
}
