import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, mkdirSync, openSync, readFileSync } from "node:fs";
import { readdir, rmdir } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { type Link, within } from "./links.ts";

const execute = promisify(execFile);
const ANSWER_MS = 5000;
const MAX_STARTS = 3;
const READY_MS = 60_000;
const END_MS = 20_000;

/** A Docker Engine beside that of this machine: its own daemon, containerd, images, containers and control groups. */
export interface SecondEngine extends AsyncDisposable {
  /** For `DOCKER_HOST`. */
  readonly host: string;
  /** `SIGKILL`: its containers stay until it has started again. */
  restart(how: "SIGTERM" | "SIGKILL"): Promise<void>;
  /** Everything that it holds beside images. */
  held(): Promise<string[]>;
}

/** `images`: copied from the Engine of this machine, so that they have the same ids. */
export async function startSecondEngine(
  dir: string,
  { link, mark, images }: { readonly link: Link; readonly mark: string; readonly images: readonly string[] },
): Promise<SecondEngine> {
  mkdirSync(dir);
  const host = `unix://${join(dir, "docker.sock")}`;
  const group = `corral-${mark}`;
  const args = [
    ...["--data-root", join(dir, "data"), "--exec-root", join(dir, "exec"), "--pidfile", join(dir, "pid"), "-H", host],
    ...["--bridge=none", "--iptables=false", "--ip6tables=false", `--cgroup-parent=/${group}`],
    "--exec-opt=native.cgroupdriver=cgroupfs",
  ];
  const [enter = "", ...inside] = within(link);
  let daemon: ChildProcess;
  const docker = async (...words: readonly string[]) => await execute("docker", ["-H", host, ...words]);
  const answers = async (): Promise<boolean> => {
    try {
      await execute("docker", ["-H", host, "version"], { timeout: ANSWER_MS });
      return true;
    } catch {
      return false;
    }
  };
  const start = async (tries = MAX_STARTS): Promise<void> => {
    const log = openSync(join(dir, "log"), "a");
    daemon = spawn(enter, [...inside, "dockerd", ...args], { stdio: ["ignore", log, log] });
    closeSync(log);
    const startedAt = performance.now();
    while (!(await answers())) {
      // The containerd of the daemon before may end only now, and the new one waits for it in vain.
      if (daemon.exitCode !== null && tries > 1) return await start(tries - 1);
      if (daemon.exitCode !== null || performance.now() - startedAt > READY_MS)
        throw new Error(`the second Engine does not start: ${readFileSync(join(dir, "log"), "utf8").slice(-2000)}`);
      await sleep(200);
    }
  };
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    if (daemon.exitCode !== null || daemon.signalCode !== null) return;
    const exit = once(daemon, "exit");
    daemon.kill(signal);
    const timer = setTimeout(() => daemon.kill("SIGKILL"), END_MS);
    await exit;
    clearTimeout(timer);
  };
  const dispose = async (): Promise<void> => {
    await end("SIGTERM");
    await endBelow(dir);
    await unmountBelow(dir);
    for (const place of await groupsNamed(group)) await rmdir(place).catch(() => {});
  };
  try {
    await start();
    const quoted = images.map((image) => `'${image}'`).join(" ");
    await execute("sh", ["-c", `docker save ${quoted} | docker -H ${host} load`]);
  } catch (error) {
    await dispose();
    throw error;
  }
  return {
    host,
    async restart(how) {
      await end(how);
      await start();
    },
    async held() {
      const { stdout: containers } = await docker("ps", "-a", "--format", "container {{.Names}} {{.Status}}");
      const { stdout: names } = await docker("volume", "ls", "--quiet");
      const volumes = names.split("\n").filter((name) => name !== "");
      const format = "volume {{.Name}} of {{.CreatedAt}}, options {{json .Options}}, labels {{json .Labels}}";
      const described = volumes.map((name) =>
        docker("volume", "inspect", "--format", format, name).then(
          ({ stdout }) => stdout.trim(),
          // Removed meanwhile.
          () => "",
        ),
      );
      return [...containers.split("\n"), ...(await Promise.all(described))].filter((line) => line !== "");
    },
    [Symbol.asyncDispose]: dispose,
  };
}

/** Ends what an Engine that was killed left running. */
async function endBelow(dir: string): Promise<void> {
  for (const pid of await readdir("/proc")) {
    if (!/^\d+$/.test(pid)) continue;
    const command = textOf(`/proc/${pid}/cmdline`);
    if (/^[^\0]*containerd/.test(command) && command.includes(dir)) process.kill(Number(pid), "SIGKILL");
  }
}

/** The deepest mounts first. */
export async function unmountBelow(dir: string): Promise<void> {
  for (const place of mountsBelow(dir).toReversed()) await execute("umount", ["-l", place]).catch(() => {});
}

export function mountsBelow(dir: string): string[] {
  const places = textOf("/proc/self/mountinfo")
    .split("\n")
    .map((line) => line.split(" ")[4] ?? "");
  return places.filter((place) => place.startsWith(`${dir}/`));
}

/** Control groups with this name, at the top of each hierarchy. The innermost first. */
export async function groupsNamed(name: string): Promise<string[]> {
  const tops = ["/sys/fs/cgroup", ...(await readdir("/sys/fs/cgroup")).map((at) => join("/sys/fs/cgroup", at))];
  const found = await Promise.all(tops.map((top) => groupsAt(join(top, name))));
  return found.flat();
}

async function groupsAt(dir: string): Promise<string[]> {
  const entries = await readdir(dir, { withFileTypes: true }).catch(() => null);
  if (entries === null) return [];
  const inner = entries.filter((entry) => entry.isDirectory()).map(({ name }) => groupsAt(join(dir, name)));
  return [...(await Promise.all(inner)).flat(), dir];
}

function textOf(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
