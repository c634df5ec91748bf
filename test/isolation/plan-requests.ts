import { type OwnFile, type PlannedSource, sandboxAnchors } from "../../src/isolation/plan/mounts.ts";
import { networkFiles } from "../../src/isolation/plan/plan.ts";
import type { ImageFacts, PlanRequest } from "../../src/isolation/plan/plan-for.ts";
import type { Network } from "../../src/sandbox/network/rule.ts";
import type { Sandbox } from "../../src/sandbox/sandbox.ts";

const GATE = "/state/gate/busybox";
const SOCKET = "/state/live/owner/run/s";

export interface RequestAsked {
  readonly sandbox: Sandbox;
  readonly attachments?: PlanRequest["attachments"];
  /** Who owns a host path; everything else belongs to 65532. */
  readonly owners?: Readonly<Record<string, number>>;
  /** The group of every source; absent: the number of its owner. */
  readonly gid?: number;
  readonly files?: readonly string[];
  readonly image?: Partial<ImageFacts>;
  readonly env?: Readonly<Record<string, string>>;
  readonly orchestratorUid?: number;
}

/** What a run would ask `planFor`, with made-up facts of its sources: the inodes count up in the order of the paths. */
export function requestFor(asked: RequestAsked): PlanRequest {
  const { sandbox, attachments = [], owners = {}, files = [], image = {}, env = {}, orchestratorUid = 0, gid } = asked;
  const hosts = [...sandbox.mounts, ...attachments, ...sandboxAnchors(sandbox)].map(({ host }) => host);
  const sources = new Map<string, PlannedSource>();
  for (const [index, host] of [...new Set(hosts)].sort().entries()) {
    const isFile = files.includes(host) || attachments.some((attachment) => attachment.host === host);
    const uid = owners[host] ?? 65532;
    sources.set(host, {
      device: "8",
      inode: String(100 + index),
      uid,
      gid: gid ?? uid,
      kind: isFile ? "file" : "directory",
    });
  }
  sources.set(GATE, { device: "8", inode: "10", uid: 0, gid: 0, kind: "file" });
  sources.set(SOCKET, { device: "8", inode: "11", uid: 0, gid: 0, kind: "socket" });
  return {
    run: { id: "0123456789ab", root: "ba9876543210", parent: "ba9876543210" },
    worker: { name: "worker", command: ["do", "it"], env },
    sandbox,
    image: { name: "corral/base", id: "sha256:base", env: [], volumes: [], ...image },
    sources,
    attachments,
    views: "would-be",
    plumbing: { gate: GATE, socket: SOCKET, files: ownFiles(sandbox.network) },
    orchestratorUid,
  };
}

function ownFiles(network: Network): OwnFile[] {
  return Object.keys(networkFiles(network)).map((path, index) => {
    const source = { device: "8", inode: String(20 + index), uid: 0, gid: 0, kind: "file" } as const;
    return { path, host: `/state/live/owner/run.files/${index}`, source };
  });
}
