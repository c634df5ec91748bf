import { execFile } from "node:child_process";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type Docker from "dockerode";
import { loadSeccompProfile } from "../../src/declarations/policy/policy.ts";
import type { Plan } from "../../src/isolation/plan/plan.ts";
import { BUBBLEWRAP, RUNC_RUN, SANDBOX_RUNTIME, TESTCONTAINERS } from "../outcome/names.ts";
import { openBareRunc } from "./bare-runc.ts";
import { openBubblewrap } from "./bubblewrap.ts";
import { openImageRoot } from "./image-root.ts";
import { checkedItems, itemRun } from "./one-run.ts";
import type { AbsentPeer, OpenedPeer, Peer } from "./peer.ts";
import { openSandboxRuntime } from "./sandbox-runtime.ts";
import { openTestcontainers } from "./testcontainers.ts";

const PEERS = fileURLToPath(new URL("../peers/", import.meta.url));
const execute = promisify(execFile);

/** Disposing ends them all. */
export interface Peers extends AsyncDisposable {
  readonly present: readonly Peer[];
  /** Those that cannot be measured, and why. */
  readonly absent: readonly AbsentPeer[];
}

/** Installs exactly what the peers' own lock file names. Returns why it failed, or null. */
export async function installPeers(): Promise<string | null> {
  return await execute("npm", ["ci", "--loglevel=error"], { cwd: PEERS }).then(
    () => null,
    (error: Error) => error.message,
  );
}

/** Opens the peers that are installed and can run an item, and reports why the others cannot. */
export async function openPeers(docker: Docker, plan: Plan, projectDir: string): Promise<Peers> {
  await using opening = new AsyncDisposableStack();
  const { binds } = await itemRun(projectDir, 0, plan);
  const [present, absent]: [Peer[], AbsentPeer[]] = [[], []];
  const root = await openImageRoot(docker, plan, binds);
  if (!("absent" in root)) opening.use(root);
  const opened: (() => Promise<OpenedPeer>)[] = [
    async () => ("absent" in root ? { name: RUNC_RUN, ...root } : await openBareRunc(root, await loadSeccompProfile())),
    async () => ("absent" in root ? { name: BUBBLEWRAP, ...root } : openBubblewrap(root)),
    ...PACKAGES.map((its) => () => openPackage(its, plan)),
  ];
  for (const open of opened) {
    const peer = await tried(await open(), plan, projectDir);
    if ("absent" in peer) absent.push(peer);
    else present.push(opening.use(peer));
  }
  const moved = opening.move();
  return { present, absent, [Symbol.asyncDispose]: () => moved.disposeAsync() };
}

const PACKAGES = [
  { name: SANDBOX_RUNTIME, specifier: "@anthropic-ai/sandbox-runtime", open: openSandboxRuntime },
  { name: TESTCONTAINERS, specifier: "testcontainers", open: openTestcontainers },
] as const;

async function openPackage({ name, specifier, open }: (typeof PACKAGES)[number], { image }: Plan): Promise<OpenedPeer> {
  const entry = entryOf(specifier);
  if (entry === null) return { name, absent: "it is not installed; `npm run bench -- --peers` installs it" };
  return await open(entry, image.name);
}

async function tried(peer: OpenedPeer, plan: Plan, projectDir: string): Promise<OpenedPeer> {
  if ("absent" in peer) return peer;
  const { before, after } = checkedItems(projectDir, 1);
  try {
    await before();
    await peer.run(plan, await itemRun(projectDir, 0, plan));
    await after();
    return peer;
  } catch (error) {
    await peer[Symbol.asyncDispose]();
    return { name: peer.name, absent: whyNot(error as NodeJS.ErrnoException) };
  }
}

function whyNot({ code, path, message }: NodeJS.ErrnoException): string {
  if (code === "ENOENT" && path !== undefined) return `the program \`${path}\` is not installed`;
  const [last = ""] = message
    .split("\n")
    .filter((line) => line !== "")
    .slice(-1);
  return `it does not run here (${last})`;
}

function entryOf(specifier: string): string | null {
  try {
    return createRequire(`${PEERS}package.json`).resolve(specifier);
  } catch {
    return null;
  }
}
