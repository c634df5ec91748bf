import { mkdir, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { nullFor } from "../../platform/errno.ts";
import { projectMark, statePaths } from "../state-paths.ts";

const NAME = /^([0-9a-f]{16})-([0-9a-f]{12})$/;

/** Which fleets a service has started and not ended, so that the next one continues them: an empty file for each. */
export class StartedFleets {
  readonly #dir: string;

  constructor(stateDir: string) {
    this.#dir = join(statePaths(stateDir).service, "fleets");
  }

  async add(projectDir: string, fleet: string): Promise<void> {
    await mkdir(this.#dir, { recursive: true, mode: 0o700 });
    await writeFile(this.#path(projectDir, fleet), "", { mode: 0o600 });
  }

  async remove(projectDir: string, fleet: string): Promise<void> {
    await rm(this.#path(projectDir, fleet), { force: true });
  }

  /** Of this project. */
  async list(projectDir: string): Promise<string[]> {
    const names = (await readdir(this.#dir).catch(nullFor("ENOENT"))) ?? [];
    return names.flatMap((name) => {
      const [, mark, fleet = ""] = NAME.exec(name) ?? [];
      return mark === projectMark(projectDir) ? [fleet] : [];
    });
  }

  #path(projectDir: string, fleet: string): string {
    const name = `${projectMark(projectDir)}-${fleet}`;
    if (!NAME.test(name)) throw new RangeError("that is not the id of a fleet");
    return join(this.#dir, name);
  }
}
