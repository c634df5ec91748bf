import { DIRECTORIES, type Mode, type Part, placeName, type Scenario } from "./sandboxes.ts";

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
  const shown = scenario.parts.map((part, index) => shownOf(scenario, part, index));
  return {
    project: projectOf(scenario),
    worker: workerOf(scenario, shown),
    directories: shown.flatMap(({ directories }) => directories),
  };
}

/** What one sandbox shows, as virtual paths. */
interface Shown {
  readonly directories: readonly string[];
  readonly writable: readonly string[];
}

function shownOf({ form, rootAt }: Scenario, { places, inner }: Part, index: number): Shown {
  const base = form === "root" && rootAt === "." ? "/area" : "";
  const innerPath = `/${placeName("inner", index)}`;
  const tops = [
    ...places.map(({ name, mode }) => ({
      path: `${base}/${placeName(name, index)}`,
      mode: form === "root" ? ("rw" as Mode) : mode,
    })),
    ...(form === "root" || inner === "none" ? [] : [{ path: innerPath, mode: inner }]),
  ];
  const below = (top: { path: string }, dirs: readonly string[]) =>
    dirs.map((dir) => (dir === "" ? top.path : `${top.path}/${dir}`));
  const directories = tops.flatMap((top) => below(top, top.path === innerPath ? ["", "out"] : DIRECTORIES));
  const writable = directories.filter((path) =>
    tops.some((top) => top.mode === "rw" && (path === top.path || path.startsWith(`${top.path}/`))),
  );
  return { directories, writable };
}

function projectOf({ form, rootAt, parts }: Scenario): Record<string, unknown> {
  if (form === "root") return { root: { root: `./${rootAt}` } };
  const named = parts.flatMap(({ places, inner, note }, index): [string, Record<string, unknown>][] => {
    const folder = (name = ""): string => `./area/${placeName(name, index)}`;
    return [
      ...places.map(({ name, mode, approval }): [string, Record<string, unknown>] => [
        placeName(name, index),
        { path: folder(name), mode, approval },
      ]),
      ...(inner === "none" ? [] : [more("inner", index, `${folder(places[0]?.name)}/sub`, inner)]),
      ...(form === "zones" || note === "none" ? [] : [more("note", index, "./note.md", note)]),
    ];
  });
  if (form === "zones") return { mode: "direct", zones: Object.fromEntries(named) };
  return { paths: Object.fromEntries(named.map(([name, { path, ...rest }]) => [name, { root: path, ...rest }])) };
}

function more(name: string, index: number, path: string, mode: Mode): [string, Record<string, unknown>] {
  return [placeName(name, index), { path, mode, approval: "pre_approved" }];
}

function workerOf({ form, readonly, approval, parts }: Scenario, shown: readonly Shown[]) {
  // Where the project has said how far it agrees, a worker may only ask for less.
  const common = { ...(form === "root" ? { approval } : {}), ...(readonly ? { readonly } : {}) };
  const needs = parts.map((part, index) => needsOf(part, shown[index] as Shown));
  if (needs.length === 1 && needs[0] === "all") return { inherit: true, ...common };
  const lists = needs.map((need, index) => (need === "all" ? allOf(shown[index] as Shown) : need));
  const [reads, writes] = [lists.flatMap(({ read }) => read), lists.flatMap(({ write }) => write)];
  return {
    ...(reads.length === 0 ? {} : { allow_read: reads }),
    ...(writes.length === 0 ? {} : { allow_write: writes }),
    ...common,
  };
}

interface Needs {
  readonly read: readonly string[];
  readonly write: readonly string[];
}

const allOf = ({ directories, writable }: Shown): Needs => ({ read: directories, write: writable });

function needsOf({ needs, ...part }: Part, { directories, writable }: Shown): Needs | "all" {
  const reads = [...new Set(part.reads.map((index) => at(directories, index)))];
  const asked = needs === "both" ? writable.filter((path) => reads.some((read) => isWithin(path, read))) : writable;
  const writes = asked.length === 0 ? [] : [...new Set(part.writes.map((index) => at(asked, index)))];
  if (needs === "all" || (needs === "write" && writes.length === 0)) return "all";
  if (needs === "read" || writes.length === 0) return { read: reads, write: [] };
  return { read: needs === "both" ? reads : [], write: writes };
}

function at(list: readonly string[], index: number): string {
  return list[index % list.length] as string;
}

function isWithin(path: string, outer: string): boolean {
  return path === outer || path.startsWith(`${outer}/`);
}
