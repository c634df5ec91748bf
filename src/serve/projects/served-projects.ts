import { basename } from "node:path";
import { projectMark } from "../../state/state-paths.ts";
import { ServiceFault } from "../http/fault.ts";
import type { ServedProject } from "./served-project.ts";

/** The projects of a service, by name. What is in no served project does not exist for its clients. */
export class ServedProjects {
  readonly #byName: ReadonlyMap<string, ServedProject>;

  constructor(projects: readonly ServedProject[]) {
    this.#byName = new Map(projects.map((project) => [project.name, project]));
  }

  get all(): readonly ServedProject[] {
    return [...this.#byName.values()];
  }

  /** Absent: the only one. @throws ServiceFault */
  named(name: string | undefined): ServedProject {
    const [only, second] = this.all;
    if (name === undefined && only !== undefined && second === undefined) return only;
    const names = [...this.#byName.keys()].join(", ");
    if (name === undefined) throw new ServiceFault(400, "WRONG_REQUEST", `name a project: ${names}`);
    const found = this.#byName.get(name);
    if (found === undefined)
      throw new ServiceFault(404, "UNKNOWN_PROJECT", `the service has no such project; there are: ${names}`);
    return found;
  }

  /** Of these, or of all. @throws ServiceFault */
  chosen(name: string | undefined): readonly ServedProject[] {
    return name === undefined ? this.all : [this.named(name)];
  }

  /** The name of the project in this folder; null: the service does not have it. */
  nameOf(dir: string): string | null {
    return this.all.find((project) => project.dir === dir)?.name ?? null;
  }
}

/** A name for each folder: its own, with a mark where two have the same. */
export function projectNames(dirs: readonly string[]): Map<string, string> {
  const plain = (dir: string): string =>
    basename(dir)
      .replaceAll(/[^\w.-]/g, "-")
      .replace(/^[-.]+/, "")
      .slice(0, 60) || "project";
  const counts = new Map<string, number>();
  for (const dir of dirs) counts.set(plain(dir), (counts.get(plain(dir)) ?? 0) + 1);
  return new Map(
    dirs.map((dir) => {
      const name = plain(dir);
      return [(counts.get(name) ?? 0) > 1 ? `${name}-${projectMark(dir).slice(0, 6)}` : name, dir];
    }),
  );
}
