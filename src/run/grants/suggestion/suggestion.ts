import { basename, relative } from "node:path";
import { createTwoFilesPatch, diffArrays, FILE_HEADERS_ONLY } from "diff";
import { type Document, isMap, isScalar, isSeq, parseDocument } from "yaml";
import { mountNameFault } from "../../../declarations/terms/names.ts";
import { governingMount } from "../../../sandbox/access.ts";
import type { Mount } from "../../../sandbox/mount.ts";
import { isAmong, type NetworkRule } from "../../../sandbox/network/rule.ts";
import { covers, type VirtualPath } from "../../../sandbox/virtual-path.ts";
import type { GrantMode, GrantRecord } from "../../model/grantee.ts";

export interface ProjectFile {
  /** Absolute. */
  readonly dir: string;
  /** As a person knows it. */
  readonly file: string;
  /** Null if there is none. */
  readonly text: string | null;
}

/** The names under which a project would have further host directories, and how its file is changed for that. */
class ProjectAdditions {
  readonly #dir: string;
  readonly #document: Document | null;
  /** Of the places that were added. */
  readonly #added = new Map<string, { readonly name: string; readonly mode: GrantMode }>();

  constructor(dir: string, document: Document | null) {
    this.#dir = dir;
    this.#document = document;
  }

  /** True if a worker may have host directories of its own that the project does not give. */
  get leavesPathsToWorkers(): boolean {
    const document = this.#document;
    if (document === null || !document.hasIn(["sandbox"])) return true;
    return document.getIn(["sandbox", "own_paths"]) === "allowed";
  }

  /** The name of a host directory that the project would have at this place; null if its form has no place for one. */
  nameFor({ host, directory, mode }: { host: string; directory: string; mode: GrantMode }): string | null {
    const document = this.#document;
    const form = document === null ? null : formOf(document);
    if (document === null || form === null) return null;
    // With a sandbox of its own it would be the ceiling of all workers' paths.
    if (!document.hasIn(["sandbox"])) put(document, ["sandbox", "own_paths"], "allowed");
    const known = this.#added.get(directory);
    const name = known?.name ?? freeName(host, namesIn(document, form));
    const strongest = known?.mode === "write" ? "write" : mode;
    this.#added.set(directory, { name, mode: strongest });
    const root = hostText(this.#dir, host);
    const place = { ...(form === "zones" ? { path: root } : { root }), ...placeText(name, directory) };
    const entry =
      strongest === "write" ? { ...place, mode: "rw", approval: WITHOUT_QUESTION } : { ...place, grantable: "rw" };
    put(document, ["sandbox", form, name], entry);
    return name;
  }

  /** Gives for writing what the project leaves to be granted. */
  giveWritable(name: string): void {
    const document = this.#document;
    const form = document === null ? null : formOf(document);
    if (document === null || form === null || !document.hasIn(["sandbox", form, name, "grantable"])) return;
    document.deleteIn(["sandbox", form, name, "grantable"]);
    makeWritable(document, ["sandbox", form, name]);
  }
}

/** As writing was granted: without a question for each file. */
const WITHOUT_QUESTION = { write: "pre_approved" };

/** The same path must lead there as in the run that was granted it. */
function placeText(name: string, directory: string): { readonly at?: string } {
  return directory === `/${name}` ? {} : { at: directory };
}

/** Zones in one common folder, and a root that is everything, have no place for a folder elsewhere. */
function formOf(document: Document): "zones" | "paths" | null {
  if (!isMap(document.getIn(["sandbox"]))) return document.hasIn(["sandbox"]) ? null : "paths";
  if (document.hasIn(["sandbox", "paths"])) return "paths";
  return document.getIn(["sandbox", "mode"]) === "direct" && document.hasIn(["sandbox", "zones"]) ? "zones" : null;
}

function namesIn(document: Document, form: "zones" | "paths"): string[] {
  const map = document.getIn(["sandbox", form]);
  return isMap(map) ? Object.keys(map.toJS(document) as object) : [];
}

/** The folder's own name, as far as it can be one. */
function freeName(host: string, taken: readonly string[]): string {
  const plain = basename(host)
    .replace(/[^A-Za-z0-9._-]/g, "-")
    .replace(/^\.+/, "")
    .slice(0, 60);
  const fit = mountNameFault(plain) === null ? plain : `files-${plain}`;
  const first = mountNameFault(fit) === null ? fit : "files";
  for (let count = 1; ; count += 1) {
    const name = count === 1 ? first : `${first}-${count}`;
    if (!taken.includes(name)) return name;
  }
}

/** A host directory as a project's files name it: relative to the project. */
function hostText(projectDir: string, host: string): string {
  const text = relative(projectDir, host);
  if (text === "") return ".";
  return text.startsWith("..") ? text : `./${text}`;
}

const NETWORK = ["sandbox", "network"];

/** What a project has that declares no sandbox: with `network` alone it would have no files. */
const UNDECLARED = { zones: { cache: { mode: "rw" }, workspace: { mode: "rw" } }, own_paths: "allowed" };

/** The rules of the hosts that one worker was granted; without `worker`, those of all. */
function rulesGranted(grants: readonly GrantRecord[], worker?: string): NetworkRule[] {
  const rules = grants.flatMap((grant) =>
    "to" in grant && (worker === undefined || grant.granted.includes(worker)) ? grant.rules : [],
  );
  return [...new Map(rules.map((rule) => [JSON.stringify(rule), rule])).values()];
}

/** Changes a worker's declaration so that it reaches what it was granted, within the same bounds. */
function declareRules(document: Document, rules: readonly NetworkRule[]): void {
  add(
    document,
    rules.map(({ to, methods, paths, tls }) => {
      const bounds = Object.entries({ methods, paths, tls }).filter(([, bound]) => bound !== undefined);
      // What it does not say it has from its caller.
      return bounds.length === 0 ? to : { to, ...Object.fromEntries(bounds) };
    }),
  );
}

/** The project is the ceiling: what none of its entries includes is added. */
function allowHosts(document: Document, rules: readonly NetworkRule[]): void {
  const hosts = [...new Set(rules.map(({ to }) => to))];
  const missing = hosts.filter((to) => !isAmong(to, targetsIn(document)));
  if (missing.length === 0 || document.getIn(NETWORK) === true) return;
  if (!document.hasIn(["sandbox"])) document.setIn(["sandbox"], document.createNode(UNDECLARED));
  add(document, missing);
}

function targetsIn(document: Document): string[] {
  return entriesIn(document).flatMap((entry) => {
    if (typeof entry === "string") return entry;
    const { to } = Object(entry) as { to?: unknown };
    return typeof to === "string" ? to : [];
  });
}

function entriesIn(document: Document): unknown[] {
  const list = document.getIn([...NETWORK, "allow"]);
  return isSeq(list) ? (list.toJS(document) as unknown[]) : [];
}

function add(document: Document, entries: readonly unknown[]): void {
  const known = entriesIn(document).map((entry) => JSON.stringify(entry));
  const missing = entries.filter((entry) => !known.includes(JSON.stringify(entry)));
  if (missing.length === 0 || document.getIn(NETWORK) === true) return;
  const list = document.getIn([...NETWORK, "allow"]);
  if (isSeq(list)) for (const entry of missing) list.add(document.createNode(entry, { flow: true }));
  else if (isMap(document.getIn(NETWORK))) put(document, [...NETWORK, "allow"], missing);
  else put(document, NETWORK, { allow: missing });
}

export interface SuggestionRequest {
  readonly project: ProjectFile;
  /** What the project gives. */
  readonly mounts: readonly Mount[];
  /** The files of the workers, by name. */
  readonly workers: ReadonlyMap<string, { readonly file: string; readonly text: string }>;
  readonly grants: readonly GrantRecord[];
}

export interface Suggestion {
  /** The files as they would be: the project's first, if it has to give more. */
  readonly files: readonly EditedFile[];
  /** What no change of these files would give, and why. */
  readonly notes: readonly string[];
}

/** The configuration that would have made all questions unnecessary. Pure. */
export function suggestedConfiguration({ project, mounts, workers, grants }: SuggestionRequest): Suggestion {
  const notes: string[] = [];
  const files: EditedFile[] = [];
  const edited = (projectDocument: Document | null): EditedFile[] => {
    const additions = new ProjectAdditions(project.dir, projectDocument);
    return [...workers].flatMap(([name, { file, text }]) => {
      const wanted = wantedBy(name, grants);
      for (const { mount, mode } of wanted) if (mount !== null && mode === "write") additions.giveWritable(mount);
      const rules = rulesGranted(grants, name);
      const parts = wanted.length + rules.length === 0 ? null : frontMatterOf(text);
      if (parts === null) return [];
      const context = { dir: project.dir, mounts, additions };
      let left: readonly WantedDirectory[] = [];
      const made = editedYaml(file, parts, (document) => {
        left = declareIn(document, wanted, context);
        declareRules(document, rules);
      });
      notes.push(...left.map((want) => noteOn(name, want)));
      return made === null ? [] : [made];
    });
  };

  const hosts = rulesGranted(grants);
  if (project.text === null) {
    if (hosts.length > 0) files.push(newYaml(project.file, (document) => allowHosts(document, hosts)));
    files.push(...edited(null));
  } else {
    let ofWorkers: EditedFile[] = [];
    const whole = { before: "", yaml: project.text, after: "" };
    const made = editedYaml(project.file, whole, (document) => {
      ofWorkers = edited(document);
      allowHosts(document, hosts);
    });
    files.push(...(made === null ? [] : [made]), ...ofWorkers);
  }
  return { files, notes: [...new Set(notes)] };
}

function noteOn(worker: string, { host }: WantedDirectory): string {
  return `The form of the project's sandbox has no place for ${host}: use \`mode: direct\` or \`paths\` there, for worker ${worker}.`;
}

function frontMatterOf(text: string): { before: string; yaml: string; after: string } | null {
  const found = /^(\uFEFF?---[ \t]*\r?\n)([\s\S]*?)(^---[ \t]*\r?$[\s\S]*)/m.exec(text);
  if (found === null || found.index !== 0) return null;
  const [, before = "", yaml = "", after = ""] = found;
  return parseDocument(yaml).errors.length > 0 ? null : { before, yaml, after };
}

/** A directory that a worker turned out to need. */
export interface WantedDirectory {
  readonly directory: VirtualPath;
  readonly host: string;
  /** The project's mount in which it lies, by name; null: it is a directory of the host. */
  readonly mount: string | null;
  readonly mode: GrantMode;
}

/** What one worker was granted, without what another of its grants holds already. */
function wantedBy(worker: string, grants: readonly GrantRecord[]): WantedDirectory[] {
  const all = grants.flatMap((grant) => ("directory" in grant && grant.granted.includes(worker) ? grant : []));
  const wanted = new Map<string, WantedDirectory>();
  for (const { directory, host, mount, mode } of all) {
    const known = wanted.get(directory);
    if (known?.mode === "write") continue;
    wanted.set(directory, { directory: directory as VirtualPath, host, mount, mode });
  }
  return [...wanted.values()].filter(
    (one) => ![...wanted.values()].some((other) => other !== one && holds(other, one)),
  );
}

function holds(outer: WantedDirectory, inner: WantedDirectory): boolean {
  return covers(outer.directory, inner.directory) && (outer.mode === "write" || inner.mode === "read");
}

export interface WorkerContext {
  readonly dir: string;
  /** What the project gives, by name. */
  readonly mounts: readonly Mount[];
  readonly additions: ProjectAdditions;
}

/**
 * Changes a worker's declaration so that it has what it was granted, in the form in which it already declares files.
 * Returns what that form has no place for.
 */
function declareIn(document: Document, wanted: readonly WantedDirectory[], context: WorkerContext): WantedDirectory[] {
  const has = (key: string): boolean => document.hasIn(["sandbox", key]);
  if (has("paths")) return asPaths(document, wanted, context);
  if (has("zones")) return asZones(document, wanted, context);
  if (has("inherit") || has("allow_read") || has("allow_write")) return asLists(document, wanted, context);
  // Under the project's names nothing moves. What the project cannot give can only be a path of the worker's own.
  const isGiven = wanted.every(({ mount }) => mount !== null) || !context.additions.leavesPathsToWorkers;
  return isGiven ? asLists(document, wanted, context) : asPaths(document, wanted, context);
}

/** The project is the ceiling of a worker's own paths, so it must have what it does not give yet. */
function asPaths(
  document: Document,
  wanted: readonly WantedDirectory[],
  { dir, additions }: WorkerContext,
): WantedDirectory[] {
  const paths = document.getIn(["sandbox", "paths"]);
  const known = isMap(paths) ? (paths.toJS(document) as Record<string, { readonly at?: unknown }>) : {};
  const names = Object.keys(known);
  const left: WantedDirectory[] = [];
  for (const want of wanted) {
    const { host, mount, mode, directory } = want;
    if (mount === null && !additions.leavesPathsToWorkers && additions.nameFor(want) === null) {
      left.push(want);
      continue;
    }
    const same = names.find((name) => (known[name]?.at ?? `/${name}`) === directory);
    if (same !== undefined) {
      if (mode === "write") makeWritable(document, ["sandbox", "paths", same]);
      continue;
    }
    const name = freeName(host, names);
    names.push(name);
    const entry = { root: hostText(dir, host), ...placeText(name, directory) };
    const writable = { ...entry, mode: "rw", approval: WITHOUT_QUESTION };
    put(document, ["sandbox", "paths", name], mode === "write" ? writable : entry);
  }
  return left;
}

function makeWritable(document: Document, at: readonly string[]): void {
  put(document, [...at, "mode"], "rw");
  if (!document.hasIn([...at, "approval"])) put(document, [...at, "approval"], WITHOUT_QUESTION);
}

/** A zone is given as a whole, even if only a folder of it was granted. */
function asZones(
  document: Document,
  wanted: readonly WantedDirectory[],
  { mounts, additions }: WorkerContext,
): WantedDirectory[] {
  const left: WantedDirectory[] = [];
  for (const want of wanted) {
    const name = want.mount ?? additions.nameFor(want);
    if (name === null) left.push(want);
    else
      addZone(
        document,
        name,
        want.mode,
        mounts.find((mount) => mount.name === name),
      );
  }
  return left;
}

function addZone(document: Document, name: string, mode: WantedDirectory["mode"], mount: Mount | undefined): void {
  const zones = document.getIn(["sandbox", "zones"]);
  if (!isSeq(zones)) return;
  const written = zones.toJS(document) as readonly { readonly name?: unknown; readonly mode?: unknown }[];
  const at = written.findIndex((zone) => zone.name === name);
  // Where the project asks for more agreement, a worker cannot do with less.
  const said = mount?.approval?.write;
  const approval = said === undefined || said === "pre_approved" ? { approval: WITHOUT_QUESTION } : {};
  const writable = { mode: "rw", ...approval };
  if (at < 0) zones.add(document.createNode({ name, ...(mode === "write" ? writable : {}) }, { flow: true }));
  else if (mode === "write" && written[at]?.mode !== "rw")
    zones.set(at, document.createNode({ ...written[at], ...writable }, { flow: true }));
}

function asLists(
  document: Document,
  wanted: readonly WantedDirectory[],
  { additions, mounts }: WorkerContext,
): WantedDirectory[] {
  const at = { read: ["sandbox", "allow_read"], write: ["sandbox", "allow_write"] } as const;
  const had = { read: textsAt(document, at.read), write: textsAt(document, at.write) };
  const left: WantedDirectory[] = [];
  const reads: string[] = [];
  const writes: string[] = [];
  for (const want of wanted) {
    if (want.mount === null && additions.nameFor(want) === null) left.push(want);
    else (want.mode === "write" ? writes : reads).push(want.directory);
  }
  // With `inherit` alone everything that the project gives is there.
  if (document.hasIn(["sandbox", "inherit"]) && had.read === null && had.write === null) return left;
  const allWrites = together(had.write ?? [], writes);
  const allReads = together(had.read ?? had.write ?? [], reads, writes);
  if (writes.length > 0) put(document, at.write, allWrites);
  const asks = writes.some((path) => asksToWrite(path as VirtualPath, mounts));
  // A consent of the worker's own is for everything that it writes: not for what it could write before.
  if (writes.length > 0 && had.write === null && !asks && !document.hasIn(["sandbox", "approval"]))
    put(document, ["sandbox", "approval"], WITHOUT_QUESTION);
  // One list of what is written says what is read as well, for as long as that is the same.
  if ((had.read !== null || reads.length > 0) && reads.length + writes.length > 0) put(document, at.read, allReads);
  return left;
}

/** Where the project asks for agreement, a worker cannot do with less. */
function asksToWrite(path: VirtualPath, mounts: readonly Mount[]): boolean {
  const said = governingMount({ mounts }, path)?.approval?.write;
  return said !== undefined && said !== "pre_approved";
}

function together(...lists: readonly (readonly string[])[]): string[] {
  return [...new Set(lists.flat())];
}

/** A user's file, changed as little as possible: its comments and its order stay. */
interface EditedFile {
  readonly file: string;
  readonly text: string;
  /** As `patch -p1` takes it. */
  readonly patch: string;
}

/** The YAML of a text, changed; `before` and `after` surround it. Null if nothing changes. */
function editedYaml(
  file: string,
  { before, yaml, after }: { readonly before: string; readonly yaml: string; readonly after: string },
  edit: (document: Document) => void,
): EditedFile | null {
  const document = parseDocument(yaml);
  const same = printed(document, yaml);
  edit(document);
  const changed = printed(document, yaml);
  if (changed === same) return null;
  const text = before + inTheirWords(yaml, same, changed) + after;
  const old = before + yaml + after;
  const patch = createTwoFilesPatch(`a/${file}`, `b/${file}`, old, text, undefined, undefined, {
    context: 3,
    headerOptions: FILE_HEADERS_ONLY,
  });
  return { file, text, patch };
}

/** A file that does not exist yet. */
function newYaml(file: string, edit: (document: Document) => void): EditedFile {
  const document = parseDocument("version: 1\n");
  edit(document);
  const text = document.toString({ lineWidth: 0 });
  const headers = { context: 3, headerOptions: FILE_HEADERS_ONLY };
  return { file, text, patch: createTwoFilesPatch("/dev/null", `b/${file}`, "", text, undefined, undefined, headers) };
}

/** Formatted like the user's own text, so that no unchanged line differs. */
function printed(document: Document, like: string): string {
  const text = document.toString({ lineWidth: 0, indentSeq: !/^( *)[^\s#-][^\n]*:\r?\n\1- /m.test(like) });
  return like.includes("\r\n") ? text.replaceAll("\n", "\r\n") : text;
}

/** A line in which only blanks would differ stays as the user wrote it. */
function inTheirWords(yaml: string, same: string, changed: string): string {
  const theirs = yaml.split("\n");
  // A text whose very lines would be others is printed anew.
  if (theirs.length !== same.split("\n").length) return changed;
  let line = 0;
  return diffArrays(same.split("\n"), changed.split("\n"))
    .flatMap(({ added, removed, value }) => {
      if (added) return value;
      line += value.length;
      return removed ? [] : theirs.slice(line - value.length, line);
    })
    .join("\n");
}

/** Puts a value below keys, making maps that are missing; a small map is written on one line. */
export function put(document: Document, keys: readonly string[], value: unknown): void {
  const [last = "", ...outer] = keys.toReversed();
  outer.reverse();
  for (const [index] of outer.entries()) {
    const path = outer.slice(0, index + 1);
    if (!isMap(document.getIn(path))) document.setIn(path, document.createNode({}));
  }
  const isSmall = typeof value === "object" && value !== null;
  document.setIn([...outer, last], isSmall ? document.createNode(value, { flow: true }) : value);
}

/** A list of texts, which may be written as one text. */
function textsAt(document: Document, keys: readonly string[]): string[] | null {
  const found = document.getIn(keys, true);
  if (isScalar(found) && typeof found.value === "string") return [found.value];
  return isSeq(found) ? (found.toJS(document) as string[]) : null;
}
