import { collectSockets, heldBytes } from "../../disk/unnamed-files.ts";
import type { ControlGroup } from "../../kernel/control-group.ts";
import type { FirstProcess } from "../../kernel/first-process.ts";
import { UsageSampler } from "../../kernel/usage-sampler.ts";
import type { CellNetwork } from "../../network/cell-network.ts";
import type { Enforcement } from "../../plan/enforcement.ts";
import type { Cell, CellExit } from "../../port/cell.ts";
import { killCell } from "../remains/control-groups.ts";
import type { RuncProcess } from "./runc-process.ts";

interface Parts {
  readonly id: string;
  readonly process: RuncProcess;
  readonly first: FirstProcess;
  readonly group: ControlGroup;
  readonly enforcement: Enforcement;
  /** What the gate reads before the worker's input. */
  readonly ahead: Buffer;
  /** The number of its network namespace, as the gate reported it. */
  readonly namespace: string;
  readonly network: CellNetwork;
  readonly remove: () => Promise<void>;
}

/** A verified cell whose worker waits behind the gate. */
export function runcCell(parts: Parts): Cell {
  const { id, process, first, group, enforcement, ahead, namespace, network, remove } = parts;
  const sampler = new UsageSampler(() => ({ by: "files", read: () => group.usage() }));
  let killed = false;
  const exit = ended(parts, sampler, () => killed);
  return {
    id,
    enforcement,
    exit,
    release(input) {
      sampler.begin();
      process.release(ahead.length === 0 ? input : Buffer.concat([ahead, input]));
    },
    listen: (places, accept) => network.listen(namespace, places, accept),
    async unnamedBytes() {
      await collectSockets();
      // An id may have been reused: files of the new process are not this cell's.
      return await heldBytes(group.processes(), async (pid) => group.processes().includes(pid));
    },
    async kill(signal) {
      killed = true;
      if (signal === "SIGTERM") return first.signal(signal);
      first.signal(signal);
      await killCell(id);
    },
    async [Symbol.asyncDispose]() {
      sampler.stop();
      await remove();
    },
  };
}

/** Whatever is not known for certain is lost: runc's answer alone is none. */
async function ended(
  { id, process, first, group }: Parts,
  sampler: UsageSampler,
  killed: () => boolean,
): Promise<CellExit> {
  try {
    const end = await process.end;
    // Before the group is removed.
    const oomKills = group.oomKills();
    sampler.add(group.usage());
    if (end.kind === "failed" || first.isAlive()) {
      await killCell(id);
      return { kind: "lost", reason: end.kind === "failed" ? end.reason : "runc ended before its cell" };
    }
    if (!process.streams.hasBegun && !killed())
      return { kind: "lost", reason: "the cell ended before its worker began" };
    if (oomKills === null) return { kind: "lost", reason: "the cell's control group was removed while it ran" };
    return { kind: "exited", code: end.code, outOfMemory: oomKills > 0, usage: sampler.last() };
  } catch (error) {
    return { kind: "lost", reason: (error as Error).message };
  } finally {
    sampler.stop();
    process.close();
  }
}
