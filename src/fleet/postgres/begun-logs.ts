import { join } from "node:path";
import { removeLines } from "../../state/appended-lines.ts";
import { BegunLog } from "./begun-log.ts";

/** What fleets have begun to change on this machine, one file for each. Without a directory a restored database is not noticed. */
export class BegunLogs {
  readonly #dir: string | undefined;
  /** By the id of the fleet; those that this process runs. */
  readonly #logs = new Map<string, BegunLog>();

  constructor(dir: string | undefined) {
    this.#dir = dir;
  }

  of(fleet: string): BegunLog | null {
    const log = this.#logs.get(fleet) ?? this.asNow(fleet);
    if (log !== null) this.#logs.set(fleet, log);
    return log;
  }

  /** With what other processes have written since. */
  again(fleet: string): BegunLog | null {
    this.#logs.delete(fleet);
    return this.of(fleet);
  }

  /** For a fleet that another process may run later. */
  asNow(fleet: string): BegunLog | null {
    return this.#dir === undefined ? null : new BegunLog(join(this.#dir, fleet), fleet);
  }

  async remove(fleet: string): Promise<void> {
    this.#logs.delete(fleet);
    if (this.#dir !== undefined) await removeLines(join(this.#dir, fleet));
  }
}
