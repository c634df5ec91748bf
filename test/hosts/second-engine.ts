import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { openSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { chown, cp, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as wait } from "node:timers/promises";
import {
  BASE_LABEL,
  catalogImages,
  FINGERPRINT_LABEL,
  fingerprint,
} from "../../src/isolation/engine/images/catalog.ts";
import { IMAGE_PREFIX } from "../../src/isolation/port/images.ts";
import type { Host } from "./hosts.ts";

/** A host that runs: its Engine answers, and has the images of this machine's. */
export interface RunningHost extends AsyncDisposable {
  /** Runs a program in the host's mount namespace, as its user of this name; never rejects. */
  run(user: string, command: readonly string[], more?: Readonly<Record<string, string>>): Promise<Ended>;
  /** As if its power failed for a moment; settles when its Engine answers again. Absent: it has no kernel of its own. */
  readonly restart?: () => Promise<void>;
}

export interface Ended {
  readonly status: number | null;
  readonly output: string;
}

const START_TIMEOUT_MS = 60_000;
const DEBIAN_TAG = "corral/debian:bookworm";
const ROOT = join(import.meta.dirname, "../..");
/** Node is not in Debian's root directories: the checkout's own. */
export const PATH =
  "/corral/node_modules/.bin:/packed/node_modules/.bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

export async function startHost(
  host: Host,
  { root, cache, packed, images }: { root: string; cache: string; packed: string; images: readonly string[] },
): Promise<RunningHost> {
  const data = join(cache, `${host.name}.data`);
  await mkdir(join(data, "etc/docker"), { recursive: true });
  await mkdir(join(data, "home/dev"), { recursive: true });
  await chown(join(data, "home/dev"), 1000, 1000);
  await writeFile(join(data, "etc/docker/daemon.json"), JSON.stringify(host.settings));
  if (host.runtime !== undefined) await writePolicies(join(data, "policies"), host.runtime);
  const script = join(import.meta.dirname, "second-engine.sh");
  const namespaces = ["--mount", "--net", "--propagation", "private"];
  const keeper = spawn("unshare", [...namespaces, "sh", script, root, data, ROOT, packed], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const disposing = new AsyncDisposableStack();
  disposing.defer(() => endNamespace(keeper));
  try {
    const [said] = await Promise.race([once(keeper.stdout, "data"), once(keeper, "exit")]);
    if (String(said) !== "ready\n") throw new Error(`the root directory of ${host.name} could not be mounted`);
    const inside = (net: boolean, command: readonly string[]): readonly [string, readonly string[]] => {
      const target = ["--target", String(keeper.pid), "--mount", ...(net ? ["--net"] : [])];
      return ["nsenter", [...target, "--", ...command]];
    };
    const run: RunningHost["run"] = async (user, command, more = {}) => {
      const home = user === "root" ? "/root" : `/home/${user}`;
      const env = Object.entries({ PATH, HOME: home, NO_COLOR: "1", ...more }).map(
        ([name, value]) => `${name}=${value}`,
      );
      const as = user === "root" ? [] : ["setpriv", `--reuid=${user}`, `--regid=${user}`, "--init-groups"];
      const [program, args] = inside(false, [...as, "env", "-i", "-C", home, ...env, ...command]);
      return await ended(spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] }));
    };
    await startDaemon(inside, join(data, "dockerd.log"), run);
    await loadImages(inside, join(data, "images"), images);
    return { run, [Symbol.asyncDispose]: () => disposing.disposeAsync() };
  } catch (error) {
    await disposing.disposeAsync();
    throw error;
  }
}

/** Corral's own, each with this runtime and with the processes that it needs. */
async function writePolicies(dir: string, runtime: string): Promise<void> {
  await cp(join(ROOT, "policies"), dir, { recursive: true });
  for (const name of (await readdir(dir)).filter((file) => file.endsWith(".yaml"))) {
    const policy = await readFile(join(dir, name), "utf8");
    const pids = policy.replace(/(?<=pids: \{ default: )\d+/, (count) => String(Math.max(256, Number(count))));
    await writeFile(join(dir, name), pids.replace(/^hardening:$/m, `hardening:\n  runtime: ${runtime}`));
  }
}

type Inside = (net: boolean, command: readonly string[]) => readonly [string, readonly string[]];

/** In a network namespace of its own, so that it finds nothing of this machine's Engine to change. */
async function startDaemon(inside: Inside, log: string, run: RunningHost["run"]): Promise<void> {
  const file = openSync(log, "w");
  const bare = ["--bridge=none", "--iptables=false", "--ip6tables=false"];
  const [program, args] = inside(true, ["env", "-i", `PATH=${PATH}`, "dockerd", ...bare]);
  const daemon = spawn(program, args, { stdio: ["ignore", file, file] });
  const gaveUp = Date.now() + START_TIMEOUT_MS;
  while ((await run("root", ["docker", "version"])).status !== 0) {
    if (daemon.exitCode !== null || Date.now() > gaveUp)
      throw new Error(`the Engine did not start: ${readFileSync(log, "utf8").slice(-2000)}`);
    await wait(200);
  }
}

/** Those of this machine's Engine, unless the host has them from an earlier run. */
async function loadImages(inside: Inside, stamp: string, images: readonly string[]): Promise<void> {
  const ids = (await ran("docker", ["image", "inspect", "--format", "{{.Id}}", ...images])).trim();
  if ((await readFile(stamp, "utf8").catch(() => "")) === ids) return;
  const [program, args] = inside(false, ["docker", "load"]);
  const load = spawn(program, args, { stdio: ["pipe", "ignore", "inherit"] });
  const save = spawn("docker", ["save", ...images], { stdio: ["ignore", "pipe", "inherit"] });
  save.stdout.pipe(load.stdin);
  const [[status]] = await Promise.all([once(load, "exit"), once(save, "exit")]);
  if (status !== 0) throw new Error("the images of this machine could not be loaded");
  await nameTheirBase(inside);
  await writeFile(stamp, ids);
}

/** With the store of containerd, images have other ids: each is labelled with the id here of what it is built on, as a build labels it. */
async function nameTheirBase(inside: Inside): Promise<void> {
  const idOf = async (tag: string): Promise<string> =>
    (await ran(...inside(false, ["docker", "image", "inspect", "--format", "{{.Id}}", tag]))).trim();
  const [base, ...others] = await catalogImages(join(ROOT, "images"), IMAGE_PREFIX);
  let id = await idOf(DEBIAN_TAG);
  for (const source of [...(base === undefined ? [] : [base]), ...others]) {
    const labels = `${FINGERPRINT_LABEL}=${fingerprint(source, id)} ${BASE_LABEL}=${id}`;
    const [program, args] = inside(false, ["docker", "build", "--tag", source.tag, "-"]);
    const build = spawn(program, args, { stdio: ["pipe", "pipe", "pipe"] });
    build.stdin.end(`FROM ${source.tag}\nLABEL ${labels}\n`);
    const { status, output } = await ended(build);
    if (status !== 0) throw new Error(`${source.tag} could not be labelled: ${output}`);
    if (source === base) id = await idOf(source.tag);
  }
}

/** Ends the Engine, and then each process that is still in the mount namespace: all were started for it. */
async function endNamespace(keeper: ChildProcess): Promise<void> {
  if (keeper.exitCode !== null) return;
  const space = readlinkSync(`/proc/${keeper.pid}/ns/mnt`);
  for (const [signal, patienceMs] of [
    ["SIGTERM", 20_000],
    ["SIGKILL", 5000],
  ] as const) {
    for (const pid of processesIn(space)) if (pid !== keeper.pid) tryKill(pid, signal);
    const gaveUp = Date.now() + patienceMs;
    while (processesIn(space).length > 1 && Date.now() < gaveUp) await wait(100);
  }
  const exit = once(keeper, "exit");
  keeper.kill("SIGKILL");
  await exit;
}

function processesIn(space: string): number[] {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return pids.map(Number).filter((pid) => {
    try {
      return readlinkSync(`/proc/${pid}/ns/mnt`) === space;
    } catch {
      // It has ended.
      return false;
    }
  });
}

function tryKill(pid: number, signal: "SIGTERM" | "SIGKILL"): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It has ended.
  }
}

/** What a program printed. @throws with the end of it if the program fails */
export async function ran(program: string, args: readonly string[], cwd?: string): Promise<string> {
  const { status, output } = await ended(spawn(program, args, { stdio: ["ignore", "pipe", "pipe"], cwd }));
  if (status !== 0) throw new Error(`${program} failed: ${output.trim().split("\n").slice(-5).join("\n")}`);
  return output;
}

export async function ended(child: ChildProcess): Promise<Ended> {
  const exit = once(child, "exit");
  const [stdout, stderr] = await Promise.all(
    [child.stdout, child.stderr].map((stream) => (stream ? text(stream) : "")),
  );
  const [status] = await exit;
  return { status, output: `${stdout}${stderr}` };
}
