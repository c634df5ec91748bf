import { setImmediate as nextTurn } from "node:timers/promises";
import type { ConsentNeed } from "../files/checked-access.ts";
import type { GuardedFiles } from "../files/guarded.ts";
import type { Effect, Expected } from "../files/model/files.ts";
import type { HostExecuted } from "../sandbox/approval.ts";
import { SandboxError } from "../sandbox/errors.ts";
import type { VirtualPath } from "../sandbox/virtual-path.ts";
import { printableLine } from "../text/visible.ts";
import { MAX_FILE_BYTES, MAX_PULLED_BYTES, MAX_PULLED_FILES } from "./git-program.ts";
import type { Repository } from "./repository.ts";
import type { FileBytes } from "./stage.ts";
import {
  blobId,
  foldersOf,
  GitRefusal,
  type GitTreeEntry,
  placeOfEntry,
  type WantedPath,
  wantedIn,
  whyNoFile,
} from "./tree-archive.ts";

export interface PullRequest {
  /** Absent: everything. */
  readonly paths?: readonly string[] | undefined;
  /** True: also replaces files that have local changes. */
  readonly overwrite: boolean;
}

/** The worker that pulls: its files, and how to ask for approval. */
export interface Puller {
  readonly files: GuardedFiles;
  readonly bytes: FileBytes;
  /** The repository's version of each file that this tree of runs has seen. */
  readonly seen: Map<string, string | null>;
  /** Adds to the question what one file would become. */
  show(change: Extract<Effect, { kind: "write" }>): void;
  /** Asks for approval of all writes together that were shown since the last question. Rejects if it is denied. */
  agree(paths: readonly VirtualPath[], hostExecuted: readonly HostExecuted[], signal: AbortSignal): Promise<void>;
  /** Called for each approved file after it was written with the content that was added to the question. */
  agreedTo(path: VirtualPath): Promise<void>;
}

export interface Pulled {
  /** Null if the branch does not exist yet. */
  readonly commit: string | null;
  readonly created: readonly VirtualPath[];
  readonly replaced: readonly VirtualPath[];
  readonly unchanged: number;
  /** Files with local changes, which were not replaced. */
  readonly conflicts: readonly VirtualPath[];
  /** Entries of the repository that were not written, with the reason. */
  readonly skipped: readonly { readonly path: string; readonly why: string }[];
}

interface Comparison {
  readonly entry: GitTreeEntry;
  readonly path: VirtualPath;
  /** The id of the local file. Null if there is none. */
  readonly local: string | null;
}

/** A file to write. `agreedOn`: the version that the question showed; null if there was none. */
interface Planned extends Comparison {
  readonly agreedOn: Expected | null;
}

interface Draft {
  readonly created: VirtualPath[];
  readonly replaced: VirtualPath[];
  readonly conflicts: VirtualPath[];
  readonly skipped: { path: string; why: string }[];
  unchanged: number;
}

/** Brings a repository's files into the sandbox, through the same guard as every other write. Deletes nothing. */
export async function pull(
  repository: Repository,
  request: PullRequest,
  puller: Puller,
  signal: AbortSignal,
): Promise<Pulled> {
  const { repo } = repository;
  const wanted = request.paths?.map((raw) => wantedIn(repo, raw)) ?? [{ entry: "", path: repo.at }];
  const commit = await repository.fetch(signal);
  const { entries, unreadable } = await repository.entriesAt(commit, signal);
  const chosen = chosenFrom(entries, wanted, repo.name);
  const draft: Draft = { created: [], replaced: [], unchanged: 0, conflicts: [], skipped: [] };
  for (const name of unreadable) draft.skipped.push({ path: printableLine(name), why: "has a name that is not UTF-8" });

  const different = await differing(chosen, repository, puller, draft, signal);
  const replaceable = await withoutConflicts(different, commit, repository, request, puller, draft, signal);
  const refusals: SandboxError[] = [];
  const planned = await agreed(replaceable, repository, puller, { draft, refusals }, signal);
  await writeAll(planned, repository, puller, { draft, refusals }, signal);
  const [first] = refusals;
  const { created, replaced, unchanged, conflicts } = draft;
  if (first !== undefined && created.length + replaced.length + unchanged + conflicts.length === 0) throw first;
  return { commit, ...draft };
}

function chosenFrom(
  entries: ReadonlyMap<string, GitTreeEntry>,
  wanted: readonly WantedPath[],
  name: string,
): readonly GitTreeEntry[] {
  const asked = new Set(wanted.map(({ entry }) => entry));
  const found = new Set<string>();
  const chosen = [...entries.values()].filter(({ path }) => {
    const above = [...foldersOf(path), path].filter((one) => asked.has(one));
    for (const one of above) found.add(one);
    return above.length > 0;
  });
  const missing = wanted.filter(({ entry }) => entry !== "" && !found.has(entry));
  if (missing.length === 0) return chosen;
  throw new GitRefusal(
    "NOT_FOUND",
    `The repository ${name} has nothing at: ${missing.map(({ path }) => path).join(", ")}.`,
  );
}

/** How many local files are read before other work gets its turn: reading waits for nothing. */
const FILES_IN_TURN = 50;

/** The entries that can be files here and differ from the local ones. */
async function differing(
  chosen: readonly GitTreeEntry[],
  { repo }: Repository,
  { bytes, seen }: Puller,
  draft: Draft,
  signal: AbortSignal,
): Promise<Comparison[]> {
  const different: Comparison[] = [];
  let total = 0;
  for (const [index, entry] of chosen.entries()) {
    if (index % FILES_IN_TURN === 0) await nextTurn();
    const place = placeOfEntry(repo.at, entry.path);
    const fault = whyNoFile(entry) ?? (place.ok ? null : place.fault);
    if (fault !== null || !place.ok) {
      draft.skipped.push({ path: printableLine(entry.path), why: fault ?? "" });
      continue;
    }
    const { path } = place;
    if (entry.size > MAX_FILE_BYTES) {
      draft.skipped.push({ path, why: `has more than ${MAX_FILE_BYTES} bytes` });
      continue;
    }
    const local = await idOf(path, bytes, signal);
    if (local instanceof SandboxError) draft.skipped.push({ path, why: local.message });
    else if (local === entry.id) {
      seen.set(entry.path, entry.id);
      draft.unchanged += 1;
    } else {
      different.push({ entry, path, local });
      total += entry.size;
    }
    if (different.length > MAX_PULLED_FILES || total > MAX_PULLED_BYTES)
      throw new GitRefusal(
        "GIT_TOO_LARGE",
        `There is too much to pull at once: at most ${MAX_PULLED_FILES} files and ${MAX_PULLED_BYTES} bytes. Name fewer files in \`paths\`.`,
      );
  }
  return different;
}

/** The id of a local file; null if there is none; a refusal if the worker may not read it. */
async function idOf(path: VirtualPath, bytes: FileBytes, signal: AbortSignal): Promise<string | null | SandboxError> {
  try {
    const content = await bytes.read(path, MAX_FILE_BYTES, signal);
    return content === null ? null : blobId(content);
  } catch (error) {
    if (error instanceof SandboxError) return error;
    throw error;
  }
}

/** A file is only replaced if the repository has the local content as an earlier version of it. */
async function withoutConflicts(
  different: readonly Comparison[],
  commit: string | null,
  repository: Repository,
  { overwrite }: PullRequest,
  { seen }: Puller,
  draft: Draft,
  signal: AbortSignal,
): Promise<Comparison[]> {
  const unsure = different.filter(({ entry, local }) => local !== null && !overwrite && seen.get(entry.path) !== local);
  if (unsure.length === 0 || commit === null) return [...different];
  const paths = unsure.map(({ entry }) => entry.path);
  const history = await repository.historyOf(paths, commit, signal);
  const conflicts = new Set(unsure.filter(({ entry, local }) => !history.get(entry.path)?.has(local ?? "")));
  for (const { entry, path } of conflicts) {
    draft.conflicts.push(path);
    // The conflict is reported, so the worker may stage its own version from now on.
    seen.set(entry.path, entry.id);
  }
  return different.filter((one) => !conflicts.has(one));
}

/** Null: it needs no approval. A path that cannot be written at all needs none: the write itself is refused. */
function needOf(files: GuardedFiles, path: VirtualPath): ConsentNeed | null {
  try {
    return files.needs("write", path).find(({ consent }) => consent === "ask") ?? null;
  } catch (error) {
    if (error instanceof SandboxError) return null;
    throw error;
  }
}

interface Outcomes {
  readonly draft: Draft;
  readonly refusals: SandboxError[];
}

/**
 * Asks once about what programs of the host would execute, which is left out if it is denied, and once about all other files that need
 * approval and can be written; what would be refused is refused before.
 */
async function agreed(
  all: readonly Comparison[],
  repository: Repository,
  puller: Puller,
  outcomes: Outcomes,
  signal: AbortSignal,
): Promise<readonly Planned[]> {
  const needs = all.map((one) => ({ one, need: needOf(puller.files, one.path) }));
  const planned = needs.flatMap(({ one, need }): Planned[] => (need === null ? [{ ...one, agreedOn: null }] : []));
  const toAsk = needs.flatMap(({ one, need }) => (need === null ? [] : [{ one, why: need.hostExecuted ?? null }]));
  const apart = toAsk.flatMap(({ one, why }): HostExecuted[] => (why === null ? [] : [{ path: one.path, why }]));
  const [own, rest] = [toAsk.filter(({ why }) => why !== null), toAsk.filter(({ why }) => why === null)];
  for (const [some, hostExecuted] of [[own, apart] as const, [rest, []] as const]) {
    const asked = await foreseenOf(
      some.map(({ one }) => one),
      repository,
      puller,
      outcomes,
      signal,
    );
    const paths = asked.map(({ path }) => path);
    if (paths.length === 0) continue;
    try {
      await puller.agree(paths, hostExecuted, signal);
      planned.push(...asked);
    } catch (error) {
      const { code, message } = error as { code?: unknown; message: string };
      if (hostExecuted.length === 0 || typeof code !== "string" || !code.startsWith("APPROVAL_")) throw error;
      for (const path of paths) outcomes.draft.skipped.push({ path, why: message });
    }
  }
  return planned;
}

async function foreseenOf(
  all: readonly Comparison[],
  repository: Repository,
  { files, show }: Puller,
  { draft, refusals }: Outcomes,
  signal: AbortSignal,
): Promise<Planned[]> {
  const toAsk = new Map(all.map((one) => [one.entry, one]));
  const asked: Planned[] = [];
  for await (const [entry, content] of repository.contents([...toAsk.keys()], signal)) {
    const one = toAsk.get(entry);
    if (one === undefined) continue;
    const { path, local } = one;
    try {
      const intended = { operation: "write", path, content, overwrite: local !== null } as const;
      const { effects, expected } = await files.foresee(intended, { signal });
      for (const effect of effects) if (effect.kind === "write") show(effect);
      asked.push({ ...one, agreedOn: expected });
    } catch (error) {
      if (!(error instanceof SandboxError)) throw error;
      refusals.push(error);
      draft.skipped.push({ path, why: error.message });
    }
    // Comparing two versions takes a while, and there may be many.
    await nextTurn();
  }
  return asked;
}

async function writeAll(
  all: readonly Planned[],
  repository: Repository,
  { files, bytes, seen, agreedTo }: Puller,
  { draft, refusals }: Outcomes,
  signal: AbortSignal,
): Promise<void> {
  const byEntry = new Map(all.map((one) => [one.entry, one]));
  for await (const [entry, content] of repository.contents([...byEntry.keys()], signal)) {
    const one = byEntry.get(entry);
    if (one === undefined) continue;
    const { path, local, agreedOn } = one;
    // Another pull at the same time may have written this very version: then there is nothing left to do.
    const isThere = async (): Promise<boolean> => (await idOf(path, bytes, signal)) === entry.id;
    // The approval may have taken minutes, so the file is checked again.
    if ((await idOf(path, bytes, signal)) !== local) {
      if (await isThere()) draft.unchanged += 1;
      else draft.conflicts.push(path);
      continue;
    }
    try {
      const options = { overwrite: local !== null, expected: agreedOn ?? undefined, signal };
      const { created } = await files.write(path, content, options);
      if (agreedOn !== null) await agreedTo(path);
      (created ? draft.created : draft.replaced).push(path);
      seen.set(entry.path, entry.id);
    } catch (error) {
      if (!(error instanceof SandboxError)) throw error;
      if (await isThere()) {
        draft.unchanged += 1;
        continue;
      }
      refusals.push(error);
      draft.skipped.push({ path, why: error.message });
    }
  }
}
