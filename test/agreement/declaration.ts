import { DIRECTORIES, type Mode, type Scenario } from "./sandboxes.ts";

export interface Declaration {
  /** `corral.yaml`'s `sandbox`. */
  readonly project: Readonly<Record<string, unknown>>;
  /** The worker's `sandbox`. */
  readonly worker: Readonly<Record<string, unknown>>;
  /** Every directory that the project shows, as its virtual path. */
  readonly directories: readonly string[];
}

/** What a scenario's project and worker say. Never more than the project has: refused sandboxes have nothing to compare. */
export function declarationOf(scenario: Scenario): Declaration {
  const { form, places } = scenario;
  const base = form === "root" && scenario.rootAt === "." ? "/area" : "";
  const tops = [
    ...places.map(({ name, mode }) => ({ path: `${base}/${name}`, mode: form === "root" ? ("rw" as Mode) : mode })),
    ...(form === "root" || scenario.inner === "none" ? [] : [{ path: "/inner", mode: scenario.inner }]),
  ];
  const below = (top: { path: string }, dirs: readonly string[]) =>
    dirs.map((dir) => (dir === "" ? top.path : `${top.path}/${dir}`));
  const directories = tops.flatMap((top) => below(top, top.path === "/inner" ? ["", "out"] : DIRECTORIES));
  const writable = directories.filter((path) =>
    tops.some((top) => top.mode === "rw" && (path === top.path || path.startsWith(`${top.path}/`))),
  );
  return { project: projectOf(scenario), worker: workerOf(scenario, directories, writable), directories };
}

function projectOf({ form, places, rootAt, inner, note }: Scenario): Record<string, unknown> {
  if (form === "root") return { root: { root: `./${rootAt}` } };
  const named: [string, Record<string, unknown>][] = places.map(({ name, mode, approval }) => [
    name,
    { path: `./area/${name}`, mode, approval },
  ]);
  if (inner !== "none") {
    const [first] = places;
    named.push(["inner", { path: `./area/${first?.name}/sub`, mode: inner, approval: "pre_approved" }]);
  }
  if (form === "zones") return { mode: "direct", zones: Object.fromEntries(named) };
  if (note !== "none") named.push(["note", { path: "./note.md", mode: note, approval: "pre_approved" }]);
  return { paths: Object.fromEntries(named.map(([name, { path, ...rest }]) => [name, { root: path, ...rest }])) };
}

function workerOf(scenario: Scenario, directories: readonly string[], writable: readonly string[]) {
  const { needs, readonly } = scenario;
  // Where the project has said how far it agrees, a worker may only ask for less.
  const approval = scenario.form === "root" ? { approval: scenario.approval } : {};
  const common = { ...approval, ...(readonly ? { readonly } : {}) };
  const reads = [...new Set(scenario.reads.map((index) => at(directories, index)))];
  const asked = needs === "both" ? writable.filter((path) => reads.some((read) => isWithin(path, read))) : writable;
  const writes = asked.length === 0 ? [] : [...new Set(scenario.writes.map((index) => at(asked, index)))];
  if (needs === "all" || (needs === "write" && writes.length === 0)) return { inherit: true, ...common };
  if (needs === "read" || writes.length === 0) return { allow_read: reads, ...common };
  return { ...(needs === "both" ? { allow_read: reads } : {}), allow_write: writes, ...common };
}

function at(list: readonly string[], index: number): string {
  return list[index % list.length] as string;
}

function isWithin(path: string, outer: string): boolean {
  return path === outer || path.startsWith(`${outer}/`);
}
