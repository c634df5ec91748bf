import { arch } from "node:os";
import type { PackageKind } from "../../sandbox/network/rule.ts";
import type { Environment } from "../images/environment-inputs.ts";

/** A packaged worker for the packages of one tool: `uses` of `ci.yaml`. */
export interface CiTool {
  readonly does: string;
  readonly image: string;
  /** Files of the repository that say what is fetched, below the folder of the job; the last is the lock file. Empty: nothing is fetched. */
  readonly lockFiles: readonly string[];
  readonly packages: PackageKind | null;
  /** What a job has beside its image. */
  readonly environment: Environment;
  /** What the value of an axis means; null: it means nothing to the tool. */
  readonly axis: { readonly name: string; readonly environmentOf: (value: string) => Environment } | null;
}

/** The image has it. Of another one, the package of npm is prepared: `22` is the newest of this name, and 22.21.1 just that. */
const NODE_OF_IMAGE = "24";

export const CI_TOOLS = {
  npm: {
    does: "fetches what package-lock.json names, and has it installed by npm without a network",
    image: "corral/node",
    lockFiles: ["package.json", "package-lock.json"],
    packages: "npm",
    environment: {},
    axis: {
      name: "node",
      environmentOf: (value) =>
        value === NODE_OF_IMAGE ? {} : { npm: [`node-linux-${arch() === "arm64" ? "arm64" : "x64"}@${value}`] },
    },
  },
  pip: {
    does: "fetches the wheels that requirements.txt names with their hashes, and has pip install them without a network",
    image: "corral/python",
    lockFiles: ["requirements.txt"],
    packages: "pypi",
    environment: {},
    axis: null,
  },
  make: {
    does: "has a C compiler and make of Debian; fetches nothing",
    image: "corral/base",
    lockFiles: [],
    packages: null,
    environment: { apt: ["gcc", "libc6-dev", "make"] },
    axis: null,
  },
} as const satisfies Readonly<Record<string, CiTool>>;

/** A packaged server: `uses` of a service of a job. Its data is in memory, and gone with the job. */
export interface CiServer {
  readonly does: string;
  readonly environment: Environment;
  readonly run: string;
  readonly ports: readonly number[];
  readonly ready: readonly string[];
}

export const CI_SERVERS = {
  postgres: {
    does: "PostgreSQL 15 of Debian, with the user `postgres` and no password",
    environment: { apt: ["postgresql-15"] },
    run: [
      "PATH=/usr/lib/postgresql/15/bin:$PATH",
      "initdb --pgdata /tmp/data --username postgres --auth trust --no-sync > /dev/null",
      "exec postgres -D /tmp/data -k /tmp -c listen_addresses=127.0.0.1 -c fsync=off",
    ].join("\n"),
    ports: [5432],
    ready: ["pg_isready", "-h", "localhost", "-U", "postgres"],
  },
  redis: {
    does: "Redis of Debian",
    environment: { apt: ["redis-server"] },
    run: "exec redis-server --bind 127.0.0.1 --save '' --appendonly no --dir /tmp",
    ports: [6379],
    ready: ["redis-cli", "ping"],
  },
} as const satisfies Readonly<Record<string, CiServer>>;

export type CiServerName = keyof typeof CI_SERVERS;

export function ciServers(): [CiServerName, ...CiServerName[]] {
  return Object.keys(CI_SERVERS) as [CiServerName, ...CiServerName[]];
}

export type CiToolName = keyof typeof CI_TOOLS;

export function ciTools(): [CiToolName, ...CiToolName[]] {
  return Object.keys(CI_TOOLS) as [CiToolName, ...CiToolName[]];
}
