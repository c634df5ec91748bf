import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { finished } from "node:stream/promises";
import { promisify } from "node:util";
import { connect } from "../../src/isolation/engine/connect.ts";
import { findControlGroup } from "../../src/isolation/kernel/control-group.ts";
import { findFirstProcess } from "../../src/isolation/kernel/first-process.ts";
import type { CellInfo, Driver } from "../../src/isolation/port/driver.ts";
import { cgroupManager } from "../../src/isolation/runc/ground/conditions.ts";
import { cgroupPlaces, runcPaths } from "../../src/isolation/runc/model/layout.ts";
import { removeCell } from "../../src/isolation/runc/remains/remove-cell.ts";
import type { Corral } from "../../src/run/open/corral.ts";
import { WORKER_UID } from "./project-fixture.ts";

/** A process as this machine sees it. */
export interface SeenProcess {
  readonly uid: number;
  /** Its words, with a space between each two. */
  readonly line: string;
}

/** A cell as this machine sees it, whichever driver made it. `id`: as its driver lists it. */
export function outsideCell(id: string) {
  const places = [`docker/${id}`, `system.slice/docker-${id}.scope`, ...cgroupPlaces(id)];
  return {
    /** None if the cell is gone. */
    processes(): SeenProcess[] {
      const pids = findControlGroup(places)?.processes() ?? [];
      return pids.flatMap((pid) => seenProcess(pid) ?? []);
    },
    /** Ends its first process, and so all of them. */
    kill(): void {
      const first = findFirstProcess(findControlGroup(places));
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
  const how = { programs: { runc: "runc", init: "" }, paths, cgroups: cgroupManager() };
  await removeCell(how, cell.id, join(paths.cells, cell.run));
}

/** Runs a program in the only cell as the worker's user, by what made the cell and not by Corral. Waits for its end. */
export async function execInCell({ environment, stateDir }: Corral, argv: readonly string[]): Promise<void> {
  const cell = await onlyCell(environment.driver);
  const user = `${WORKER_UID}:${WORKER_UID}`;
  if (cell.driver === "runc") {
    const { state } = runcPaths(stateDir);
    await promisify(execFile)("runc", ["--root", state, "exec", "--user", user, cell.id, ...argv]);
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
