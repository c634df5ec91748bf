import { execFile } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { finished } from "node:stream/promises";
import { promisify } from "node:util";
import { connect } from "../../src/isolation/engine/open.ts";
import { findControlGroup } from "../../src/isolation/kernel/control-group.ts";
import { findFirstProcess } from "../../src/isolation/kernel/first-process.ts";
import type { CellInfo, Driver } from "../../src/isolation/port/driver.ts";
import { RUN_LABEL } from "../../src/isolation/port/labels.ts";
import { cellId, cellPaths, cgroupPlace, runcPaths } from "../../src/isolation/runc/model/layout.ts";
import { removeCell } from "../../src/isolation/runc/remains/remove-cell.ts";
import type { Corral } from "../../src/run/open/corral.ts";
import { loadSealKey } from "../../src/state/owner.ts";
import { WORKER_UID } from "./project-fixture.ts";

/** A process as this machine sees it. */
export interface SeenProcess {
  readonly uid: number;
  /** Its words, with a space between each two. */
  readonly line: string;
}

/** A cell as this machine sees it, whichever driver made it. `id`: as its driver lists it. */
export function outsideCell(id: string) {
  const places = [`docker/${id}`, `system.slice/docker-${id}.scope`, cgroupPlace(id)];
  const group = () => findControlGroup(places);
  return {
    /** Its first process; null if it has ended. */
    pid: (): number | null => findFirstProcess(group())?.pid ?? null,
    pids: (): readonly number[] => group()?.processes() ?? [],
    /** None if the cell is gone. */
    processes: (): SeenProcess[] => (group()?.processes() ?? []).flatMap((pid) => seenProcess(pid) ?? []),
    /** Ends its first process, and so all of them. */
    kill(): void {
      const first = findFirstProcess(group());
      if (first === null) throw new Error(`the cell ${id} has no first process`);
      first.signal("SIGKILL");
    },
  };
}

/** Null if it has ended. */
function seenProcess(pid: number): SeenProcess | null {
  try {
    const uid = /^Uid:\t(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "latin1"))?.[1];
    const words = readFileSync(`/proc/${pid}/cmdline`, "utf8").replace(/\0$/, "").split("\0");
    return { uid: Number(uid), line: words.join(" ") };
  } catch {
    return null;
  }
}

/** Takes the only cell away, as another program on this machine can. */
export async function takeCellAway({ environment, stateDir }: Corral): Promise<void> {
  const cell = await onlyCell(environment.driver);
  if (cell.driver === "engine") return await (await containerOf(cell)).remove({ force: true });
  const paths = runcPaths(stateDir);
  await removeCell(paths, cell.id, join(paths.cells, cell.run));
}

/** Runs a program in the only cell as the worker's user, by what made the cell and not by Corral. Waits for its end. */
export async function execInCell({ environment, stateDir }: Corral, argv: readonly string[]): Promise<void> {
  const cell = await onlyCell(environment.driver);
  const user = `${WORKER_UID}:${WORKER_UID}`;
  if (cell.driver === "runc") {
    const { state } = runcPaths(stateDir);
    const inside = ["runc", "--root", state, "exec", "--user", user, cell.id, ...argv];
    // The cell's configuration is where only the process that waits for its end sees it.
    const [keeper] = await parentOf(outsideCell(cell.id).pid());
    await promisify(execFile)("nsenter", ["--mount", `--target=${keeper}`, ...inside]);
    return;
  }
  const exec = await (await containerOf(cell)).exec({ Cmd: [...argv], User: user, AttachStdout: true });
  await finished((await exec.start({})).resume());
}

async function onlyCell(driver: Driver): Promise<CellInfo> {
  const [cell, ...others] = await driver.list();
  if (cell === undefined || others.length > 0) throw new Error(`there are ${others.length} cells besides ${cell?.id}`);
  return cell;
}

async function containerOf({ id }: CellInfo) {
  return (await connect(process.env)).docker.getContainer(id);
}

/** All that this machine shows of a cell that exists. */
export interface ShownCell extends Pick<ReturnType<typeof outsideCell>, "pid"> {
  /** All that its driver says of it, and the arguments and environments of its processes and of those that keep it. */
  texts(): Promise<string[]>;
  /** Its whole root file system as one text, if its driver hands that out. */
  exported(): Promise<string>;
  /** Where its driver keeps files of it, and where what it writes over its image is. */
  readonly folders: readonly string[];
}

/** The cell of a run; null if there is none. */
export async function shownCell(stateDir: string, run: string): Promise<ShownCell | null> {
  const paths = runcPaths(stateDir);
  const folder = cellPaths(join(paths.cells, run));
  if (!existsSync(folder.dir)) return await shownContainer(run);
  const id = cellId(await loadSealKey(stateDir), run);
  const notes = join(paths.state, id);
  const { pid, pids } = outsideCell(id);
  return {
    pid,
    folders: [folder.dir, notes],
    exported: async () => "",
    async texts() {
      // The one that waits for its end is outside of its groups, and has the bundle in mounts of its own.
      const keeper = await parentOf(pid());
      // A pipe by which the runtime starts the cell would be waited for.
      const regular = readdirSync(notes, { withFileTypes: true }).filter((entry) => entry.isFile());
      const noted = regular.map(({ name }) => join(notes, name));
      const files = [folder.labels, ...noted, ...(await Promise.all(keeper.map(configOf)))];
      return [
        ...(await Promise.all(files.map((file) => readFile(file, "latin1")))),
        ...(await shownProcesses([...pids(), ...keeper])),
      ];
    },
  };
}

async function shownContainer(run: string): Promise<ShownCell | null> {
  const { docker } = await connect(process.env);
  const filters = { label: [`${RUN_LABEL}=${run}`] };
  const [listed] = await docker.listContainers({ all: true, filters });
  if (listed === undefined) return null;
  const container = docker.getContainer(listed.Id);
  const { DockerRootDir } = (await docker.info()) as { DockerRootDir: string };
  const { pid, pids } = outsideCell(listed.Id);
  const upper = await upperLayerOf(pid());
  return {
    pid,
    folders: [join(DockerRootDir, "containers", listed.Id), ...(upper === undefined ? [] : [upper])],
    async exported() {
      let text = "";
      for await (const piece of await container.export()) text += (piece as Buffer).toString("latin1");
      return text;
    },
    async texts() {
      return [
        JSON.stringify([await container.inspect(), await container.changes()]),
        await container.logs({ stdout: true, stderr: true }).then(String, String),
        ...(await shownProcesses(pids())),
      ];
    },
  };
}

/** Where what a process writes over its image is. The Engine says so of some of its stores only, and the kernel of each. */
async function upperLayerOf(pid: number | null): Promise<string | undefined> {
  const mounts = pid === null ? "" : await readFile(`/proc/${pid}/mountinfo`, "utf8");
  return /^\S+ \S+ \S+ \S+ \/ .* - overlay .*\bupperdir=([^,\s]+)/m.exec(mounts)?.[1];
}

async function parentOf(pid: number | null): Promise<number[]> {
  const status = pid === null ? "" : await readFile(`/proc/${pid}/status`, "latin1");
  return [...status.matchAll(/^PPid:\t(\d+)/gm)].map(([, parent]) => Number(parent));
}

async function configOf(runc: number): Promise<string> {
  const words = (await readFile(`/proc/${runc}/cmdline`, "utf8")).split("\0");
  return `/proc/${runc}/root${words[words.indexOf("--bundle") + 1]}/config.json`;
}

async function shownProcesses(pids: readonly number[]): Promise<string[]> {
  const files = pids.flatMap((pid) => ["cmdline", "environ", "mountinfo"].map((name) => `/proc/${pid}/${name}`));
  return await Promise.all(files.map((file) => readFile(file, "latin1").catch(() => "")));
}
