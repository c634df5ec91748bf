import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { access, mkdir, realpath, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as pause } from "node:timers/promises";
import { ApiError } from "../../client/client.ts";
import { EngineTrouble } from "../../isolation/port/driver.ts";
import { printable, printableLine } from "../../text/visible.ts";
import { configFile, UsageError } from "../terminal/arguments.ts";
import { say, stoppable, type Terminal } from "../terminal/terminal.ts";
import { serviceAt } from "./at-service.ts";
import { Contexts, contextNameFault, type HostContext } from "./contexts.ts";

interface UpOptions {
  readonly project: string;
  readonly name?: string;
  readonly image: string;
  readonly port: string;
  readonly socket: string;
}

/** On a container of `corral up`: the name of its context. */
const LABEL = "corral.up";
/** Of what Docker's own program says, the end is kept. */
const MAX_SAID = 2000;
const READY_MS = 60_000;
const LOOK_MS = 250;
/** Runs end, and fleets pause, when the service is stopped. */
const STOP_S = 60;

/**
 * `corral up`: the service in a container of the Docker of this machine, over the project's folder at the same path, and its context. What it may do
 * is what compose.yaml says of `corral`.
 */
export async function upVerb(options: UpOptions, terminal: Terminal): Promise<number> {
  const { cwd, env } = terminal;
  if (process.platform === "win32")
    throw new UsageError(
      "a folder of Windows has no such path in the Linux machine of its Docker: keep the project in WSL, and use corral there",
    );
  const project = await projectFolderOf(resolve(cwd, options.project));
  const name =
    options.name ??
    `up-${basename(project)
      .replaceAll(/[^\w.-]/g, "-")
      .slice(0, 50)}`;
  const fault = contextNameFault(name);
  if (fault !== null) throw new UsageError(`--name ${printableLine(name, 80)}: ${fault}`);
  if (!/^[1-9]\d{0,4}$/.test(options.port) || Number(options.port) > 65_535)
    throw new UsageError("--port takes a number from 1 to 65535");
  const contexts = await Contexts.open(terminal);
  if (contexts.get(name) !== undefined)
    throw new UsageError(`there is a context ${name}: \`corral down ${name}\` removes it, or take another --name`);
  using stop = stoppable(terminal, (line) => say(terminal, line));
  const docker = dockerWith(env, stop.signal);
  await docker("image", "inspect", options.image).catch((error: Error) => {
    if (!/no such image/i.test(error.message)) throw error;
    throw new UsageError(
      `this Docker has no image ${options.image}: \`npm run service-image\` in a copy of Corral's repository makes it, and \`docker save\` and \`docker load\` bring it from another machine`,
    );
  });
  const token = `corral_${randomBytes(32).toString("hex")}`;
  const container = `corral-${name}`;
  await docker("create", ...containerOf({ ...options, name, container, project }));
  try {
    await giveToken(docker, container, token, env);
    await docker("start", container);
    const made: HostContext = { url: `http://127.0.0.1:${options.port}`, token, container, image: options.image };
    await ready(made, docker, stop.signal);
    await contexts.put(name, made);
  } catch (error) {
    await dockerWith(env)("rm", "--force", container);
    throw error;
  }
  say(
    terminal,
    `corral: ${name} serves ${printableLine(project, 500)} in the container ${container}, and is used from now on`,
  );
  say(
    terminal,
    `corral: \`docker exec ${container} corral images build\` makes images that this Docker does not have yet`,
  );
  return 0;
}

async function projectFolderOf(dir: string): Promise<string> {
  try {
    await access(join(dir, "corral.yaml"));
    return await realpath(dir);
  } catch (cause) {
    throw new UsageError(
      `${printableLine(dir, 500)} has no corral.yaml that can be read: \`corral init\` makes a project, and --project names its folder`,
      { cause },
    );
  }
}

/** As compose.yaml has it: docs/service.md says what each is for. */
function containerOf(of: Omit<UpOptions, "name"> & { readonly name: string; readonly container: string }): string[] {
  const { name, container, project, image, port, socket } = of;
  const state = `${STATES}/${name}`;
  // Files of clients are mounted into cells, so Docker's machine has them too, and outside of the state.
  const files = filesAt(state);
  return [
    ...["--name", container, "--hostname", container, "--label", `${LABEL}=${name}`],
    ...["--init", "--restart", "unless-stopped", "--stop-timeout", String(STOP_S)],
    ...["--pid", "host", "--cap-add=SYS_ADMIN", "--cap-add=SYS_PTRACE"],
    ...["--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"],
    ...[
      "--env",
      `CORRAL_STATE_DIR=${state}`,
      "--env",
      `TMPDIR=${files}`,
      "--workdir",
      project,
      "--publish",
      `127.0.0.1:${port}:${port}`,
    ],
    // Below `/var/run`, which is a link, Docker 28 could copy nothing into the container.
    ...["--mount", bindOf(socket, "/run/docker.sock"), "--mount", bindOf(project, project)],
    ...["--volume", `${state}:${state}`, "--volume", `${files}:${files}`],
    image,
    ...["serve", "--listen", `0.0.0.0:${port}`, "--remote", "--token-file", TOKEN_FILE],
  ];
}

/** Of Docker's machine. */
const STATES = "/var/lib/corral-up";

function filesAt(state: string): string {
  return `${state}.files`;
}

/** One line of CSV, in which a path may have commas and quotes. Unlike a volume, it makes no folder where nothing is. */
function bindOf(source: string, target: string): string {
  const quoted = (field: string): string => `"${field.replaceAll('"', '""')}"`;
  return ["type=bind", quoted(`source=${source}`), quoted(`target=${target}`)].join(",");
}

const TOKEN_FILE = "/corral-token";

/** By a file that only this user can read: others can see the arguments and the environment of a container. */
async function giveToken(docker: Docker, container: string, token: string, env: Terminal["env"]): Promise<void> {
  const folder = dirname(configFile(env));
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const file = join(folder, `${container}.${randomBytes(6).toString("hex")}`);
  try {
    await writeFile(file, `${token}\n`, { flag: "wx", mode: 0o600 });
    await docker("cp", file, `${container}:${TOKEN_FILE}`);
  } finally {
    await rm(file, { force: true });
  }
}

/** @throws Error with the last words of the service if it has ended, or does not answer in time */
async function ready(context: HostContext, docker: Docker, signal: AbortSignal): Promise<void> {
  const { client } = serviceAt(context);
  const until = performance.now() + READY_MS;
  for (;;) {
    try {
      await client.call("host.caller", {}, { signal });
      return;
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof ApiError) || error.status !== 0) throw error;
    }
    // One that ends with an error is started again, and runs for a moment each time.
    const state = await docker("inspect", "--format", "{{.State.Running}} {{.RestartCount}}", context.container ?? "");
    const isUp = state.trim() === "true 0";
    if (!isUp || performance.now() > until) {
      const said = printable((await docker("logs", "--tail", "5", context.container ?? "")).trim());
      throw new EngineTrouble(
        `the service ${isUp ? `does not answer at ${context.url}; is this Docker on another machine? Then run \`corral up\` there, and \`corral login\` here` : "has ended"}:\n${said}`,
      );
    }
    await pause(LOOK_MS, undefined, { signal });
  }
}

/** `corral down`: removes the container that `corral up` made, what clients sent there, and its context. Images and what the service remembers stay. */
export async function downVerb(asked: string | undefined, terminal: Terminal): Promise<number> {
  const contexts = await Contexts.open(terminal);
  const name = asked ?? contexts.current;
  const { container, image = "" } = contexts.get(name) ?? {};
  if (container === undefined) {
    const made = contexts.all().flatMap(([other, { container: is }]) => (is === undefined ? [] : [other]));
    throw new UsageError(
      `${printableLine(name, 80)} was not made by \`corral up\`${made.length === 0 ? "" : `; these were: ${made.join(", ")}`}`,
    );
  }
  const docker = dockerWith(terminal.env);
  const label = await docker("inspect", "--format", `{{index .Config.Labels "${LABEL}"}}`, container).catch(
    (error: Error) => {
      if (/no such (object|container)/i.test(error.message)) return null;
      throw error;
    },
  );
  if (label !== null && label.trim() !== name)
    throw new UsageError(
      `the container ${container} is not the one that \`corral up\` made, and stays: remove it yourself`,
    );
  if (label !== null) await docker("stop", "--time", String(STOP_S), container);
  const files = filesAt(`${STATES}/${name}`);
  // They belong to root, on Docker's machine, which may be another one.
  const root = [
    "--rm",
    "--pull",
    "never",
    "--network",
    "none",
    "--volume",
    `${STATES}:${STATES}`,
    "--entrypoint",
    "rm",
  ];
  const used = label === null ? image : (await docker("inspect", "--format", "{{.Image}}", container)).trim();
  const isClean = await docker("run", ...root, used, "-rf", files).then(
    () => true,
    (error: Error) => {
      if (label !== null) throw error;
      // Who removed the container may have removed its image too.
      return false;
    },
  );
  if (label !== null) await docker("rm", container);
  await contexts.remove(name);
  const left = isClean ? "" : `, and what clients sent in ${files}: remove that as root`;
  say(terminal, `corral: ${container} is removed; what it remembers stays in ${STATES}/${name} of its machine${left}`);
  return 0;
}

type Docker = (...args: readonly string[]) => Promise<string>;

/** Docker's own program: it knows which Docker the user means (DOCKER_HOST, contexts). */
function dockerWith(env: Terminal["env"], signal?: AbortSignal): Docker {
  return async (...args) => {
    const child = spawn("docker", args, {
      env,
      stdio: ["ignore", "pipe", "pipe"],
      ...(signal === undefined ? {} : { signal }),
    });
    const failed = new Promise<never>((_, reject) => child.on("error", reject));
    const ended = new Promise<number | null>((done) => child.on("close", done));
    failed.catch(() => {});
    try {
      const outcome = Promise.all([text(child.stdout), text(child.stderr), ended]);
      const [out, said, status] = await Promise.race([outcome, failed]);
      if (status === 0) return args[0] === "logs" ? out + said : out;
      throw new EngineTrouble(`docker ${args[0]}: ${printable(said.trim().slice(-MAX_SAID))}`);
    } catch (error) {
      signal?.throwIfAborted();
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      throw new UsageError(
        "the program docker is not on this machine: install Docker, or use a service of another machine (corral login)",
      );
    }
  };
}
