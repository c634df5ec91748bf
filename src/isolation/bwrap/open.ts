import { execFile } from "node:child_process";
import { lstatSync, readlinkSync, statSync } from "node:fs";
import { mkdir, open, readFile, rm } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import PQueue from "p-queue";
import { loadSeccompProfile } from "../../declarations/policy/policy.ts";
import { SYSTEM_ENV, trustedProgram } from "../../files/host/system-program.ts";
import { sha256 } from "../../platform/sha256.ts";
import { writeIfMissing } from "../../platform/write-file.ts";
import { driverOfBoth } from "../../sandbox/driver-choice.ts";
import { currentOwner, loadSealKey } from "../../state/owner.ts";
import { makeStateDir, statePaths } from "../../state/state-dir.ts";
import { startCommandCell } from "../commands/command-cell.ts";
import { PipeNames } from "../commands/command-pipes.ts";
import { closedGate, knownClosedGate } from "../gate/gate-streams.ts";
import { HOST_IMAGE, type Plan, type PlannedUser } from "../plan/plan.ts";
import type { ImageFacts } from "../plan/plan-for.ts";
import { type Driver, EngineTrouble } from "../port/driver.ts";
import { type EnginePort, EngineUnavailableError, type OpenEngineRequest } from "../port/engine.ts";
import { type EngineImages, type FoundImage, IMAGE_PREFIX, ImageBuildError } from "../port/images.ts";
import { filterProgram } from "../seccomp/filter.ts";
import { ociSeccomp, plannedSeccomp } from "../seccomp/planned-profile.ts";
import {
  type BwrapPrograms,
  type HostLook,
  hostEntries,
  IMAGE_PATH,
  notForBwrap,
  OWN_NAMESPACES,
} from "./cell-words.ts";
import { delegatedGroups } from "./groups.ts";
import { BwrapLaunchers } from "./launcher.ts";
import { BwrapLedger } from "./ledger.ts";
import { type BwrapOptions, startBwrapCell } from "./start.ts";

const run = promisify(execFile);

/**
 * Cells of bubblewrap, for an ordinary user of a machine without an engine. Their image is this machine's own programs.
 *
 * @throws EngineUnavailableError if this machine has not what that needs, with all that is missing; StateDirError
 */
export async function openBwrap({ stateDir, looksOnly = false }: OpenEngineRequest): Promise<EnginePort> {
  const user: PlannedUser = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
  const programs = await groundHere(user);
  const { busybox } = programs;
  if (!looksOnly) await makeStateDir(stateDir);
  const [sealKey, profile, image] = await Promise.all([
    looksOnly ? Buffer.alloc(32) : loadSealKey(stateDir),
    loadSeccompProfile(),
    hostImage(),
  ]);
  const paths = statePaths(stateDir);
  const ledger = new BwrapLedger(paths.bwrap, { owner: currentOwner(), sealKey }, user);
  const groups = delegatedGroups(looksOnly);
  const driver = bwrapDriver({ ledger, user, programs, profile, entries: hostEntries(look), groups, image });
  const gate = join(paths.gate, await digestOf(busybox), "busybox");
  const port: EnginePort = {
    driver,
    itemCells: driver,
    images: imagesOf(image),
    gate: async () => {
      await mkdir(join(gate, ".."), { recursive: true, mode: 0o755 });
      await writeIfMissing(gate, await readFile(busybox), { mode: 0o555 });
      return await closedGate(gate);
    },
    knownGate: async () => await knownClosedGate(gate).catch(() => null),
    hostPlaces: { data: [], sockets: [] },
    driving: async (_, policy = "auto") =>
      driverOfBoth("bwrap", policy) === null
        ? { driver: null, why: `\`driver\` of the policy is ${policy}, and CORRAL_DRIVER or --driver is bwrap` }
        : { driver: "bwrap", why: `CORRAL_DRIVER or --driver is bwrap. ${weaknesses(groups).join(". ")}` },
    ofProject: () => port,
    unpacked: {
      use: async () => null,
      measure: async () => ({ count: 0, bytes: 0 }),
      letGo: async () => ({ letGo: [], inUse: [], bytes: 0 }),
    },
    description: `bubblewrap at ${programs.bwrap}`,
  };
  return port;
}

/** What cells of other drivers have and these have not. */
function weaknesses(groups: BwrapOptions["groups"]): readonly string[] {
  const limits =
    "why" in groups
      ? [
          `Each process has a limit of its own memory, and processors are not limited: a policy with \`limit_scope: cell\` runs nothing here (${groups.why})`,
        ]
      : [];
  return ["Its cells are this user's processes, with this machine's /usr as their image", ...limits];
}

/** The programs of this machine. `user`: whose processes the cells are. @throws EngineUnavailableError with all that is missing */
export async function groundHere(user: PlannedUser): Promise<BwrapPrograms> {
  const missing: string[] = [];
  if (user.uid === 0)
    missing.push("Corral runs as root, whose cells the Engine or runc makes. Run it as an ordinary user");
  const needed = (name: string, from: string): string => {
    const found = trustedProgram(name);
    if (found === null) missing.push(`the program ${name} was not found. On Debian: apt-get install ${from}`);
    return found ?? "";
  };
  const programs = {
    bwrap: needed("bwrap", "bubblewrap"),
    busybox: needed("busybox", "busybox-static"),
  };
  const { busybox } = programs;
  if (busybox !== "" && !(await isStatic(busybox)))
    missing.push(`${busybox} is not static. On Debian: apt-get install busybox-static`);
  if (missing.length === 0) {
    const words = [...OWN_NAMESPACES, "--net", programs.bwrap, "--version"];
    await run(busybox, words, { env: SYSTEM_ENV }).catch((error: { stderr?: string; message: string }) => {
      const said = (error.stderr || error.message).trim();
      missing.push(`this machine lets no ordinary user have namespaces (${said}). See docs/hosts.md`);
    });
  }
  if (missing.length === 0) return programs;
  const message = `bubblewrap cannot make cells here: ${missing.join("; ")}.`;
  throw new EngineUnavailableError(message, { reason: "unfit", source: "CORRAL_DRIVER or --driver", cause: null });
}

/** The type of a program header that names a loader (elf(5)). */
const PT_INTERP = 3;

/** True if no loader and no library of the cell has a say in it. */
async function isStatic(path: string): Promise<boolean> {
  await using file = await open(path, "r");
  const header = Buffer.alloc(64);
  await file.read(header, 0, 64, 0);
  // ELF of 64 bits in this byte order: where its program headers are, their size and their count.
  if (header.toString("latin1", 0, 6) !== "\x7fELF\x02\x01") return false;
  const [at, size, count] = [Number(header.readBigUInt64LE(32)), header.readUInt16LE(54), header.readUInt16LE(56)];
  const all = Buffer.alloc(size * count);
  await file.read(all, 0, all.length, at);
  return Array.from({ length: count }, (_, n) => all.readUInt32LE(n * size)).every((type) => type !== PT_INTERP);
}

async function digestOf(path: string): Promise<string> {
  return sha256(await readFile(path));
}

export const look: HostLook = (path, behindLinks = false) => {
  const stats = (behindLinks ? statSync : lstatSync)(path, { throwIfNoEntry: false });
  if (stats === undefined) return null;
  return { link: stats.isSymbolicLink() ? readlinkSync(path) : null, isDirectory: stats.isDirectory() };
};

/** Its id is another one after each change of what is installed. */
export async function hostImage(): Promise<ImageFacts & { readonly id: string }> {
  const parts = await Promise.all(
    ["/etc/os-release", "/var/lib/dpkg/status"].map((path) => readFile(path).catch(() => Buffer.alloc(0))),
  );
  return { name: HOST_IMAGE, id: `host:${sha256(Buffer.concat(parts))}`, env: [IMAGE_PATH], volumes: [] };
}

/** Corral's own images stand for a Debian with programs, and so does this machine. */
function isHostImage(reference: string): boolean {
  return reference === HOST_IMAGE || reference.startsWith(`${IMAGE_PREFIX}/`);
}

function imagesOf({ id }: ImageFacts): EngineImages {
  const none = (image: string): never => {
    throw new ImageBuildError(image, "bubblewrap makes and fetches no images. Use the image `host`, or an Engine");
  };
  return {
    status: async () => [],
    build: async () => none(HOST_IMAGE),
    make: async ({ made }) => none(made.name),
    made: async () => [],
    pull: async (reference) => none(reference),
    find: async (reference): Promise<FoundImage | null> =>
      isHostImage(reference) ? { id, sizeBytes: 0, digests: [] } : null,
    remove: async () => false,
  };
}

export interface BwrapDriverOptions extends Omit<BwrapOptions, "pipes" | "launchers" | "filterOf"> {
  /** The seccomp profile `corral`, as JSON text in the Engine's format. */
  readonly profile: string;
  readonly image: ImageFacts;
}

export function bwrapDriver({ profile, image, ...given }: BwrapDriverOptions): Driver {
  const filters = new Map<string, Buffer>();
  const filterOf = (plan: Plan): Buffer => {
    // All of a plan that its profile depends on. To make one takes longer than to start a process.
    const { hardening, serves, startsCommands } = plan;
    const asked = JSON.stringify([hardening, serves, startsCommands]);
    const filter = filters.get(asked) ?? filterProgram(ociSeccomp(plannedSeccomp(plan, profile), process.arch));
    filters.set(asked, filter);
    return filter;
  };
  const { ledger, programs, user } = given;
  const pipes = new PipeNames(ledger.pipesDir);
  const launchers = new BwrapLaunchers(programs, user);
  const options: BwrapOptions = { ...given, pipes, launchers, filterOf };
  // More starts at once do not end sooner: each needs a processor for most of its time.
  const starts = new PQueue({ concurrency: Math.max(4, 2 * availableParallelism()) });
  return {
    name: "bwrap",
    async capabilities() {
      const { stdout } = await run(programs.bwrap, ["--version"], { env: SYSTEM_ENV });
      const version = stdout.trim().split(" ").at(-1) ?? "unknown";
      return {
        engine: "bubblewrap",
        version,
        missing: [],
        weaknesses: weaknesses(options.groups),
        facts: { image: image.id },
      };
    },
    imageFacts: async (name) => (isHostImage(name) ? image : null),
    start: (request) => starts.add(() => startBwrapCell(options, request, "at-once")),
    startSession: (request) =>
      starts.add(() =>
        startCommandCell(request, {
          start: (asked) => startBwrapCell(options, asked, "lasting"),
          write: ({ write }, text) => write(text),
          execAtTerminal: () => () =>
            Promise.reject(new EngineTrouble("a cell of bubblewrap has no terminal. Run the command without one")),
        }),
      ),
    startServing: async ({ plan }) => ({
      ok: false,
      violations: [{ code: "ENFORCEMENT_MISSING", missing: notForBwrap(plan, options.user, options.groups) }],
    }),
    startSteward: () => Promise.reject(new EngineTrouble("bubblewrap has no cells that serve many items")),
    list: () => ledger.list(),
    usage: async () => null,
    reap: async () => ({ cells: await ledger.reap(), volumes: [], directories: [] }),
    async removeLeft() {
      launchers.close();
      await pipes.close();
      await rm(ledger.pipesDir, { recursive: true, force: true });
    },
  };
}
