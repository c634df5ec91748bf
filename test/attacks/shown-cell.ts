import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { connect } from "../../src/isolation/engine/connect.ts";
import { findControlGroup } from "../../src/isolation/kernel/control-group.ts";
import { findFirstProcess } from "../../src/isolation/kernel/first-process.ts";
import { RUN_LABEL } from "../../src/isolation/port/labels.ts";
import { cellId, cellPaths, cgroupPlaces, runcPaths } from "../../src/isolation/runc/model/layout.ts";
import { loadSealKey } from "../../src/state/owner.ts";

/** What this machine shows of a cell that exists, whichever driver made it. */
export interface ShownCell {
  /** Its first process; null if it has ended. */
  readonly pid: () => number | null;
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
  const group = findControlGroup(cgroupPlaces(id));
  return {
    pid: () => findFirstProcess(group)?.pid ?? null,
    folders: [folder.dir, notes],
    exported: async () => "",
    async texts() {
      // The one that waits for its end is outside of its groups, and has the bundle in mounts of its own.
      const keeper = await parentOf(findFirstProcess(group)?.pid);
      const files = [folder.labels, join(notes, "state.json"), ...(await Promise.all(keeper.map(configOf)))];
      return [
        ...(await Promise.all(files.map((file) => readFile(file, "latin1")))),
        ...(await shownProcesses([...(group?.processes() ?? []), ...keeper])),
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
  const { GraphDriver } = await container.inspect();
  const { DockerRootDir } = (await docker.info()) as { DockerRootDir: string };
  const upper = (GraphDriver.Data as { UpperDir?: string }).UpperDir;
  const group = findControlGroup([`docker/${listed.Id}`, `system.slice/docker-${listed.Id}.scope`]);
  return {
    pid: () => findFirstProcess(group)?.pid ?? null,
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
        ...(await shownProcesses(group?.processes() ?? [])),
      ];
    },
  };
}

async function parentOf(pid: number | undefined): Promise<number[]> {
  const status = pid === undefined ? "" : await readFile(`/proc/${pid}/status`, "latin1");
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
