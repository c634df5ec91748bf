import { readdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import { foundProject } from "../../declarations/place/found-project.ts";
import { PACKAGE_ROOT } from "../../declarations/place/package-root.ts";
import { readDeclarationFile } from "../../declarations/yaml/document.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { projectPaths, statePaths } from "../../state/state-paths.ts";
import { projectFolder } from "../terminal/arguments.ts";

export type NameKind =
  | "workers"
  | "policies"
  | "fleet_files"
  | "fleets"
  | "transcripts"
  | "runs"
  | "changesets"
  | "grants"
  | "approvals"
  | "tools";

export interface NamesPlace {
  /** As `--project` says; null: the nearest. */
  readonly project: string | null;
  readonly cwd: string;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** The most names of one kind. */
const MAX_NAMES = 1000;

/** The names that exist, for completion: from names of files as far as possible. Reads no declaration, and writes nothing. */
export async function namesOf(kind: NameKind, place: NamesPlace): Promise<readonly string[]> {
  return (await NAMES[kind](place)).slice(0, MAX_NAMES);
}

const NAMES: Readonly<Record<NameKind, (place: NamesPlace) => Promise<readonly string[]>>> = {
  workers: async (place) => await stems(await ownFolder("workers", place), ".worker"),
  fleet_files: async (place) => await stems(await ownFolder("fleets", place), ".yaml"),
  policies: async (place) => [
    ...(await stems(join(PACKAGE_ROOT, "policies"), ".yaml")),
    ...(await stems(await ownFolder("policies", place), ".yaml")),
  ],
  transcripts: async (place) => await stems((await kept(place))?.transcripts ?? null, ".jsonl"),
  runs: async (place) => {
    const { runFolders } = await import("../../history/run-folders.ts");
    const paths = await kept(place);
    return paths === null ? [] : (await runFolders(paths.runs)).map(({ run }) => run);
  },
  changesets: async ({ env }) =>
    (await stems(statePaths(stateDirFrom(env)).changes, "")).filter((name) => /^[0-9a-f]{12}$/.test(name)),
  grants: async ({ env }) => {
    const { listGrants } = await import("../../operations/grants.ts");
    return (await listGrants(stateDirFrom(env))).map(({ id }) => id);
  },
  approvals: async ({ env }) => {
    const { inbox } = statePaths(stateDirFrom(env));
    const ids = await Promise.all(
      (await stems(inbox, "")).map(async (mark) => {
        const over = new Set(await stems(join(inbox, mark), ".end"));
        return (await stems(join(inbox, mark), ".question")).filter((id) => !over.has(id));
      }),
    );
    return ids.flat();
  },
  fleets: async (place) => await fleetIds(place),
  tools: async () => (await import("../../declarations/worker/tool-names.ts")).TOOL_NAMES,
};

/** The names of files with this ending; `null`: there is no such folder. A file called `--json` would be an option. */
async function stems(dir: string | null, ending: string): Promise<string[]> {
  const names = dir === null ? [] : await readdir(dir).catch(() => []);
  return names
    .filter((name) => name.endsWith(ending) && /^[A-Za-z0-9_]/.test(name))
    .map((name) => name.slice(0, name.length - ending.length))
    .toSorted();
}

async function projectDir({ project, cwd }: NamesPlace): Promise<string | null> {
  if (project !== null) return resolve(cwd, project);
  const found = await foundProject(cwd);
  return found.found ? found.dir : null;
}

/** The folder that `corral.yaml` names in a line of its own, or the usual one. Only a person's own words come from it: names of files. */
async function ownFolder(key: "workers" | "fleets" | "policies", place: NamesPlace): Promise<string | null> {
  const dir = await projectDir(place);
  if (dir === null) return null;
  const text = await readDeclarationFile(join(dir, "corral.yaml"), "corral.yaml").catch(() => "");
  const written = new RegExp(`^${key}:[ \\t]+["']?([^"'#\\r\\n]+?)["']?[ \\t]*(?:#.*)?$`, "m").exec(text)?.[1];
  if (written === undefined) return key === "policies" ? null : join(dir, key);
  return resolve(dir, written);
}

async function kept(place: NamesPlace) {
  const dir = await projectDir(place);
  if (dir === null) return null;
  return projectPaths(stateDirFrom(place.env), await projectFolder(dir, place));
}

/** Those of this machine's journal. A key must not wait for a database elsewhere, and a project that never had a fleet gets no journal here. */
async function fleetIds(place: NamesPlace): Promise<readonly string[]> {
  const paths = await kept(place);
  if (paths === null || (await stems(join(paths.fleets, ".."), ".db")).length === 0) return [];
  const { openFleetStoreAt } = await import("../../fleet/open-store.ts");
  await using store = await openFleetStoreAt(paths.fleets);
  return (await store.list(MAX_NAMES)).map(({ id }) => id);
}
