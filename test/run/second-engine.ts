import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, openSync, readFileSync } from "node:fs";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import Docker from "dockerode";
import { connect } from "../../src/isolation/engine/open.ts";

/** An Engine of a test's own, which may be stopped in the middle. It has the image corral/base. Needs root. */
export interface SecondEngine extends AsyncDisposable {
  readonly env: Readonly<Record<string, string>>;
  readonly docker: Docker;
  /** Starts the daemon again; nothing where it runs. */
  start(): Promise<void>;
  /** Ends the daemon, and it alone. */
  stop(signal: "SIGTERM" | "SIGKILL"): Promise<void>;
}

const START_TIMEOUT_MS = 60_000;

export async function openSecondEngine(): Promise<SecondEngine> {
  const dir = await mkdtemp(join(tmpdir(), "ce-"));
  const socket = join(dir, "s");
  const docker = new Docker({ socketPath: socket });
  let daemon: ChildProcess | null = null;

  const stop = async (signal: "SIGTERM" | "SIGKILL"): Promise<void> => {
    if (daemon === null) return;
    const ended = once(daemon, "exit");
    daemon.kill(signal);
    await ended;
    daemon = null;
    await containerdGone(dir);
  };
  const start = async (): Promise<void> => {
    if (daemon !== null) return;
    daemon = launch(dir, socket);
    const gaveUp = Date.now() + START_TIMEOUT_MS;
    while (!(await answers(docker))) {
      if (daemon.exitCode !== null || Date.now() > gaveUp)
        throw new Error(`the second Engine did not start: ${readFileSync(join(dir, "log"), "utf8").slice(-2000)}`);
      await wait(50);
    }
  };
  const engine: SecondEngine = {
    // Cells of runc go on without it.
    env: { DOCKER_HOST: `unix://${socket}`, CORRAL_DRIVER: "engine" },
    docker,
    start,
    stop,
    async [Symbol.asyncDispose]() {
      await stop("SIGTERM");
      await endShims(dir);
      await unmountBelow(dir);
      await rm(dir, { recursive: true, force: true });
    },
  };
  try {
    await start();
    const first = await connect(process.env);
    await drain(await docker.loadImage(await first.docker.getImage("corral/base").get()));
    return engine;
  } catch (error) {
    await engine[Symbol.asyncDispose]();
    throw error;
  }
}

/** In a network namespace of its own, so that it finds nothing of the first Engine's to change; `unshare` becomes the daemon. */
function launch(dir: string, socket: string): ChildProcess {
  const log = openSync(join(dir, "log"), "a");
  const places = ["--data-root", join(dir, "data"), "--exec-root", join(dir, "exec"), "--pidfile", join(dir, "pid")];
  const bare = ["-H", `unix://${socket}`, "--bridge=none", "--iptables=false", "--ip6tables=false"];
  try {
    return spawn("unshare", ["--net", "dockerd", ...places, ...bare], { stdio: ["ignore", log, log] });
  } finally {
    closeSync(log);
  }
}

async function answers(docker: Docker): Promise<boolean> {
  return await docker.ping().then(
    () => true,
    () => false,
  );
}

async function drain(stream: NodeJS.ReadableStream): Promise<void> {
  for await (const _ of stream);
}

/** The daemon's helper ends with it, but a moment later; a new daemon would take the dying one for its own. */
async function containerdGone(dir: string): Promise<void> {
  const pid = await readFile(join(dir, "exec/containerd/containerd.pid"), "utf8").catch(() => null);
  for (let tries = 0; pid !== null && existsSync(`/proc/${pid.trim()}`) && tries < 200; tries += 1) await wait(25);
}

/** Where the daemon was killed, what watches its containers stays, and the containers with it. */
async function endShims(dir: string): Promise<void> {
  for (const pid of (await readdir("/proc")).filter((name) => /^\d+$/.test(name))) {
    const command = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "");
    if (/^\S*containerd/.test(command) && command.includes(`${dir}/`)) process.kill(Number(pid), "SIGKILL");
  }
}

async function unmountBelow(dir: string): Promise<void> {
  const table = await readFile("/proc/self/mountinfo", "utf8");
  const points = table.split("\n").map((line) => line.split(" ")[4] ?? "");
  for (const point of points.filter((path) => path.startsWith(`${dir}/`)).reverse())
    execFileSync("umount", ["-l", point]);
}
