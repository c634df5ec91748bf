import { arch } from "node:os";
import type { Limits } from "../../sandbox/limits.ts";
import type { PackageKind } from "../../sandbox/network/rule.ts";
import type { Environment } from "../images/environment-inputs.ts";

/** A packaged worker for the packages of one tool: `uses` of `ci.yaml`. */
export interface CiTool {
  readonly does: string;
  readonly image: string;
  /** Files of the repository that say what is fetched, below the folder of the job; the last is the lock file. Empty: nothing is fetched. */
  readonly lockFiles: readonly string[];
  readonly packages: PackageKind | null;
  /** A commit may have none of these. */
  readonly optional?: readonly string[];
  /** True: what fetches has the environment of the tool too. */
  readonly isFetchedByTool: boolean;
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
    isFetchedByTool: false,
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
    isFetchedByTool: false,
    environment: {},
    axis: null,
  },
  uv: {
    does: "fetches the wheels that uv.lock names with their hashes, and has uv install them without a network",
    image: "corral/python",
    // What uv.lock names is for any machine: uv chooses by the project's own file.
    lockFiles: ["pyproject.toml", "uv.lock"],
    packages: "pypi",
    isFetchedByTool: true,
    environment: { pip: ["uv"] },
    axis: null,
  },
  cargo: {
    does: "fetches the crates that Cargo.lock names with their checksums, and has cargo build of them without a network",
    image: "corral/base",
    lockFiles: ["Cargo.lock"],
    packages: "crates",
    isFetchedByTool: false,
    environment: { apt: ["cargo"] },
    axis: null,
  },
  go: {
    does: "fetches the modules that go.mod names, which go compares with go.sum, and has go build without a network",
    image: "corral/base",
    lockFiles: ["go.mod", "go.sum"],
    // A module that needs no other one has no go.sum.
    optional: ["go.sum"],
    packages: "go",
    isFetchedByTool: true,
    environment: { apt: ["golang-go"] },
    axis: null,
  },
  make: {
    does: "has a C compiler and make of Debian; fetches nothing",
    image: "corral/base",
    lockFiles: [],
    packages: null,
    isFetchedByTool: false,
    environment: { apt: ["gcc", "libc6-dev", "make"] },
    axis: null,
  },
} as const satisfies Readonly<Record<string, CiTool>>;

/** A worker of the base that fetches: what its file says, in place of a packaged one. */
export interface CiFetcher {
  readonly image: string;
  readonly environment: Environment;
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly limits: Limits;
  /** `sandbox.network` as it is written; null: none. */
  readonly network: CiNetwork | null;
  /** Of the folder of the job. */
  readonly lockFiles: readonly string[];
}

export interface CiNetwork {
  readonly allow?: readonly unknown[];
  readonly packages?: readonly unknown[];
  readonly limits?: unknown;
  /** Each is one of the job's lock files. */
  readonly lockfiles?: readonly string[];
}

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
