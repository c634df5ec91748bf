import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { isRoot } from "../files/host/descriptor.ts";
import { removeTree } from "../files/host/system-program.ts";
import { type Hidden, MAX_EDIT_BYTES } from "../files/model/files.ts";
import { governingMount, hostBelow } from "../sandbox/access.ts";
import { comesBack, deliveryOf, throughView } from "../sandbox/expand.ts";
import { asksForHostExecuted } from "../sandbox/host-executed.ts";
import type { Mount } from "../sandbox/mount.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { Violation } from "../sandbox/violation.ts";
import { below, covers, ROOT, type VirtualPath } from "../sandbox/virtual-path.ts";
import type { SecretSearch } from "../secrets/read-secret.ts";
import {
  Agreed,
  type ChangesOf,
  type Collected,
  collectChanges,
  copiedTo,
  withoutAgreed,
  withoutSecrets,
} from "./collect.ts";
import {
  differencesSince,
  freezeView,
  frozenAs,
  NO_OVERLAYS,
  openFrozen,
  openRootView,
  ROOT_VIEW,
  type RootFolder,
  restoreView,
  rootFoldersOf,
  rootOfImage,
} from "./layers/layered-view.ts";
import type { GoingView } from "./layers/snapshot-store.ts";
import { type Changeset, nameText, pathBelow, rawNameOf } from "./model/changeset.ts";
import type { Draft } from "./scan/scan.ts";
import { digestAt } from "./snapshot.ts";
import { CannotStage } from "./view/base-tree.ts";
import { type HostUser, lendings } from "./view/lending.ts";
import {
  existsBelow,
  type FrozenView,
  hiddenBelow,
  hiddenSizeAt,
  makeFolders,
  namesInView,
  openNewFolder,
  openView,
  partsBelowView,
  partsInView,
  rebase,
  type View,
} from "./view/view.ts";

export interface StageRequest {
  readonly sandbox: Sandbox;
  /** The staging area: a directory to make below one of Corral's own. */
  readonly dir: string;
  /** The bytes that the run may write in all. */
  readonly maxBytes: number;
  /** False: every view is a copy, even if overlays are available. */
  readonly overlays: boolean;
  /** Writable directories that do not exist are made in their views, below the mounts of this sandbox. Absent: they are refused. */
  readonly makesBelow?: Pick<Sandbox, "mounts">;
  /** Whether a host path may be no mount at all. Absent: none is lent. */
  readonly isRefused?: (host: string) => boolean;
  /** What the views of these mounts show at first. Each must be a writable mount with a view. Absent: their directories. */
  readonly from?: readonly FrozenView[];
  /** The directory that a writable root shows at first: of an image, by its id, as that of a user. A text: why there is none. Absent: there is none. */
  readonly rootTree?: (image: string, user: HostUser) => Promise<{ readonly dir: string } | string>;
  /** Told of the writable views, and of the paths that are written directly, whenever these are others. */
  readonly onViews?: (views: readonly GoingView[], direct: readonly VirtualPath[]) => Promise<void>;
  readonly signal?: AbortSignal;
}

export interface StageCollectOptions {
  readonly signal?: AbortSignal;
  /** Makes searches for secrets: changes that contain one are refused. */
  readonly search?: (() => SecretSearch) | null;
}

export type StagingResult =
  | { readonly ok: true; readonly stage: Stage }
  | { readonly ok: false; readonly violations: readonly Violation[] };

/** The staging area of one run: a view for each of its mounts that a bind mount cannot express. */
export class Stage implements AsyncDisposable {
  readonly #request: StageRequest;
  #sandbox: Sandbox;
  #views: readonly View[] = [];
  /** What cells show as their root file system. */
  #root: View | null = null;
  /** What it shows at first. */
  #rootFrom: FrozenView | undefined;
  readonly #replaced: View[] = [];
  #made = 0;
  #agreed = new Agreed();
  #commits = 0;
  #closed = false;

  /** Read-only views are made too, since they leave out what may not be read. */
  static async open(request: StageRequest): Promise<StagingResult> {
    const stage = new Stage(request);
    try {
      const violations = [...stage.#unfit(request.from ?? []), ...(await stage.adopt(request.sandbox))];
      if (violations.length === 0) {
        await stage.#told();
        return { ok: true, stage };
      }
      await stage[Symbol.asyncDispose]();
      return { ok: false, violations };
    } catch (error) {
      await stage[Symbol.asyncDispose]();
      throw error;
    }
  }

  private constructor(request: StageRequest) {
    this.#request = request;
    this.#sandbox = request.sandbox;
    this.#rootFrom = request.from?.find(({ path }) => path === ROOT_VIEW);
  }

  /** The sandbox for the run's tools, cells and called runs: views take the places of mounts. */
  get sandbox(): Sandbox {
    return this.#sandbox;
  }

  /**
   * Replaces the sandbox by a wider one. Mounts that are new, or are now writable, get a view if they need one. If any is
   * refused, nothing is changed.
   */
  async adopt(sandbox: Sandbox): Promise<readonly Violation[]> {
    const kept: View[] = [];
    const made: View[] = [];
    const violations: Violation[] = [];
    const missing = this.#missing(sandbox);
    const { isRefused } = this.#request;
    const lent = isRefused === undefined ? new Map<VirtualPath, HostUser>() : lendings(sandbox, isRefused);
    try {
      for (const mount of sandbox.mounts) {
        const known = this.#views.find((view) => view.host === mount.host && view.mount.path === mount.path);
        if (known !== undefined && known.mount.mode === mount.mode) kept.push(known);
        else if (
          deliveryOf(mount) === "view" ||
          lent.has(mount.path) ||
          missing.some(({ path }) => isBelow(mount.path, path))
        ) {
          // A read-only view that becomes writable is made again from its original.
          const shown = known === undefined ? mount : { ...mount, host: known.mount.host };
          const view = await this.#opened(shown, sandbox, missing, lent.get(mount.path));
          if (typeof view === "string")
            violations.push({ code: "MOUNT_SOURCE_REFUSED", path: mount.path, reason: view });
          else made.push(view);
        }
      }
    } catch (error) {
      for (const view of made) await view.close();
      throw error;
    }
    if (violations.length > 0) {
      for (const view of made) await view.close();
      return violations;
    }
    // A called run may still use a view that was replaced.
    this.#replaced.push(...this.#views.filter((view) => !kept.includes(view)));
    this.#views = [...kept, ...made];
    this.#sandbox = { ...sandbox, mounts: sandbox.mounts.map((mount) => seenThrough(mount, made)) };
    return [];
  }

  /** The mounts that need a view of a directory that is still to be made. */
  #missing({ mounts }: Sandbox): readonly Mount[] {
    const { makesBelow } = this.#request;
    if (makesBelow === undefined) return [];
    return mounts.filter((mount) => {
      const around = governingMount(makesBelow, mount.path);
      const isBelowIt = around !== undefined && hostBelow(around, mount.path) === mount.host;
      return mount.mode === "rw" && isBelowIt && deliveryOf(mount) === "view" && !existsBelow(around, mount.path);
    });
  }

  async #opened(
    mount: Mount,
    sandbox: Sandbox,
    missing: readonly Mount[],
    lentTo: HostUser | undefined,
  ): Promise<View | string> {
    const { overlays, signal } = this.#request;
    const own = await this.#ownDir();
    try {
      const request = { mount, mounts: sandbox.mounts, dir: own, overlays, lentTo, signal };
      const around = missing.includes(mount)
        ? governingMount(this.#request.makesBelow ?? sandbox, mount.path)
        : undefined;
      const frozen = this.#request.from?.find(({ path }) => path === mount.path);
      const view =
        frozen !== undefined
          ? await openFrozen(frozen, request)
          : around === undefined
            ? await openView(request)
            : await openNewFolder(request, around);
      if (typeof view === "string") return view;
      if (view === null) return "it cannot be opened";
      // Where another view is mounted in this one, the cell needs a directory.
      for (const { path } of missing.filter((inner) => isBelow(mount.path, inner.path))) {
        if (makeFolders(view.shown, partsBelowView(view, path))) continue;
        await view.close();
        return `there is something else in the place of the directory ${path}`;
      }
      return view;
    } catch (error) {
      if (!(error instanceof CannotStage)) throw error;
      const why = mount.mode === "rw" ? "writes to it must be staged" : "its user cannot read all of it";
      return `${why}, and ${error.message}`;
    }
  }

  async #ownDir(): Promise<string> {
    const { dir } = this.#request;
    if (this.#made === 0) await mkdir(dir, { mode: 0o700 });
    const own = join(dir, String(this.#made));
    this.#made += 1;
    await mkdir(own, { mode: 0o700 });
    return own;
  }

  /**
   * The directories of the writable root for a cell of this image, whose user is known: opened for the first of the run's cells, and then the same for each.
   * `points`: directories on which something is mounted in them. A text: why there is none.
   */
  async rootFolders(image: string, user: HostUser, points: readonly string[]): Promise<readonly RootFolder[] | string> {
    const { rootTree, overlays, signal, sandbox } = this.#request;
    if (!overlays || !isRoot()) return NO_OVERLAYS;
    const own = this.#root === null ? await this.#ownDir() : "";
    const tree = rootTree === undefined ? "cells of this kind have none" : await rootTree(image, user);
    if (typeof tree === "string") return tree;
    const before = this.#root;
    if (before !== null && before.targetPath !== tree.dir) return "the image was replaced since the session began";
    const view = before ?? (await openRootView(tree.dir, this.#rootFrom, own));
    if (typeof view === "string") return view;
    this.#root = view;
    signal?.throwIfAborted();
    if (before === null) await this.#told();
    return rootFoldersOf(view, sandbox, points);
  }

  /** For the log of changes that are applied to a caller's view. */
  get logDir(): string {
    return join(this.#request.dir, "journal");
  }

  /** True if changes are applied to the project itself, and not to a caller's view. */
  get reachesProject(): boolean {
    return this.#views.some(({ mount }) => comesBack(mount) && mount.view === undefined);
  }

  /** The virtual paths of the mounts that are views. */
  get paths(): ReadonlySet<VirtualPath> {
    return new Set(this.#views.map((view) => view.mount.path));
  }

  /** The directories whose size is what the run wrote. */
  get written(): readonly string[] {
    return this.#writable.flatMap((view) => view.written);
  }

  get #writable(): readonly View[] {
    const views = this.#views.filter((view) => view.mount.mode === "rw" && view.made.length === 0);
    return this.#root === null ? views : [...views, this.#root];
  }

  async #told(): Promise<void> {
    const { onViews } = this.#request;
    if (onViews === undefined) return;
    const views = this.#writable.map((view) => ({ ...frozenAs(view), content: view.written[0] ?? null }));
    const unopened = this.#root === null && this.#rootFrom !== undefined ? [{ ...this.#rootFrom, content: null }] : [];
    await onViews([...views, ...unopened], this.writable.direct);
  }

  #replace(view: View, next: View): void {
    if (view === this.#root) this.#root = next;
    this.#views = this.#views.map((one) => (one === view ? next : one));
  }

  /** Writable mounts, by whether they are views: only these are in a snapshot. */
  get writable(): { readonly staged: readonly VirtualPath[]; readonly direct: readonly VirtualPath[] } {
    const views = this.#writable.map(({ mount }) => mount.path);
    const staged = this.sandbox.writableRoot ? [...new Set([...views, ROOT_VIEW])] : views;
    const all = this.sandbox.mounts.filter(({ mode }) => mode === "rw").map(({ path }) => path);
    return { staged, direct: all.filter((path) => !staged.includes(path)) };
  }

  /**
   * Freezes what the writable views show; the run goes on above it. Nothing may write to them meanwhile, and what holds their files open has to
   * open them again. `layerFor`: a directory for a layer, to be made. Rejects with `CannotStage`; the views are whole then too.
   */
  async freeze(layerFor: () => Promise<string>): Promise<FrozenView[]> {
    const { overlays } = this.#request;
    const all: FrozenView[] = [];
    for (const view of this.#writable) {
      const { view: next, ...frozen } = await freezeView(view, await layerFor(), overlays);
      this.#replace(view, next);
      if (frozen.frozen === null) throw new CannotStage(`${view.mount.path}: ${frozen.why}`);
      all.push(frozen.frozen);
    }
    await this.#told();
    return this.#root === null && this.#rootFrom !== undefined ? [...all, this.#rootFrom] : all;
  }

  /** Shows in the writable views what was frozen, in place of what was written since. Reports which of them it cannot: these show what they showed. */
  async restore(frozen: readonly FrozenView[]): Promise<readonly Violation[]> {
    const unfit = this.#unfit(frozen);
    if (unfit.length > 0) return unfit;
    const { overlays } = this.#request;
    const { mounts } = this.#request.sandbox;
    const violations: Violation[] = [];
    // What had no root yet had that of its image.
    this.#rootFrom = frozen.find(({ path }) => path === ROOT_VIEW);
    for (const view of this.#writable) {
      const found = frozen.find(({ path }) => path === view.mount.path);
      const from = found ?? (view === this.#root ? rootOfImage(view) : undefined);
      if (from === undefined) continue;
      const request = { mounts, overlays, lentTo: view.lentTo ?? undefined };
      const { view: next, why } = await restoreView(view, from, request);
      this.#replace(view, next);
      if (why !== null) violations.push({ code: "MOUNT_SOURCE_REFUSED", path: view.mount.path, reason: why });
    }
    await this.#told();
    if (violations.length > 0) return violations;
    // It was given for other content.
    this.#agreed = new Agreed();
    return [];
  }

  /** What the writable views show that was not frozen, and the other way round. */
  async differences(frozen: readonly FrozenView[], signal?: AbortSignal): Promise<(Draft & { path: VirtualPath })[]> {
    const found: (Draft & { path: VirtualPath })[] = [];
    for (const view of this.#writable) {
      const then = frozen.find(({ path }) => path === view.mount.path);
      const since = then ?? (view === this.#root ? rootOfImage(view) : undefined);
      const drafts = since === undefined ? [] : await differencesSince(view, since, view.dir, signal);
      for (const draft of drafts) {
        const names = draft.names.map((name) => nameText(name) ?? "?");
        const path = view === this.#root ? pathBelow(ROOT, draft.names) : view.pathOf(names.map(rawNameOf));
        found.push({ ...draft, path: path ?? view.mount.path });
      }
    }
    return found;
  }

  /** What was frozen is shown whole or not at all. */
  #unfit(frozen: readonly FrozenView[]): Violation[] {
    return frozen.flatMap(({ path }): Violation[] => {
      if (path === ROOT_VIEW && this.#request.sandbox.writableRoot) return [];
      const mount = this.#request.sandbox.mounts.find((one) => one.path === path);
      if (mount?.mode === "rw" && deliveryOf(mount) === "view") return [];
      return [
        {
          code: "MOUNT_SOURCE_REFUSED",
          path,
          reason: "the snapshot has files of it, and no staged writing is allowed there",
        },
      ];
    });
  }

  /** What the views leave out because it may not be read. */
  readonly hidden: Hidden = {
    sizeAt: (path) => {
      const view = this.#viewAt(path);
      return view === undefined ? null : hiddenSizeAt(view, namesInView(view, path));
    },
    below: (path, depth) =>
      this.#views.flatMap((view) => {
        const { mount } = view;
        if (covers(mount.path, path)) {
          const isOwn = this.#viewAt(path) === view;
          return isOwn ? [...hiddenBelow(view, namesInView(view, path), depth)] : [];
        }
        const levels = covers(path, mount.path) ? (below(path, mount.path) ?? "").split("/").length : depth;
        return depth > levels ? [...hiddenBelow(view, [], depth - levels)] : [];
      }),
  };

  /** Notes the approval of a deletion of this one entry: not of what was below it, which the approver may not have seen. */
  agreedToDelete(path: VirtualPath): void {
    if (this.#viewAt(path) !== undefined && !this.#closed) this.#agreed.deleted(path);
  }

  /**
   * Notes the approval of a diff, by the SHA-256 of the content before (null: no file) and after. A diff leaves out what did not
   * change, so it counts only if the content before is the real directory's, or was approved. `mode`: the permission bits that
   * the diff shows; null: none.
   */
  async agreedToDiff(
    path: VirtualPath,
    { before, after, mode }: { before: string | null; after: string; mode: number | null },
  ): Promise<void> {
    const view = this.#viewAt(path);
    if (view === undefined || this.#closed) return;
    const known = before === null || before === this.#agreed.contentAt(path)?.digest;
    const parts = partsInView(view, path);
    if (known || before === (await digestAt(view.targetPath, parts, MAX_EDIT_BYTES)))
      this.#agreed.mayHold(path, { digest: after, mode });
  }

  /** The changes of a run that has ended: nothing may write to its views any more. Closes the views. */
  async collect(of: ChangesOf, { signal, search }: StageCollectOptions = {}): Promise<Collected | null> {
    const found = await this.#collect(of, signal, null);
    await this.#closeViews();
    if (found === null) return null;
    const collected = search ? await withoutSecrets(found, search, signal) : found;
    return await withoutAgreed(collected, this.#agreed, signal);
  }

  /**
   * The changes so far of a run that continues. Each is copied, so that what is approved is what is applied; disposing of the
   * result deletes the copies. Not to be called concurrently.
   */
  async collectSoFar(
    of: ChangesOf,
    { signal, search }: StageCollectOptions = {},
  ): Promise<(Collected & AsyncDisposable) | null> {
    this.#commits += 1;
    const dir = join(this.#request.dir, `commit-${this.#commits}`);
    const remove = (): Promise<void> => removeTree(dir);
    try {
      const copied = await this.#collect(of, signal, dir);
      if (copied === null) return null;
      const clean = search ? await withoutSecrets(copied, search, signal) : copied;
      const open = await withoutAgreed(clean, this.#agreed, signal);
      return { ...open, [Symbol.asyncDispose]: remove };
    } catch (error) {
      await remove();
      throw error;
    }
  }

  /** Called after changes of a run that continues were applied: its next changes are compared with them. */
  applied(changeset: Changeset, indexes: ReadonlySet<number>): void {
    for (const change of changeset.changes) {
      const path = changeset.mounts[change.mount]?.path;
      const view = this.#views.find(
        ({ at, made }) =>
          at === path && made.every((name, index) => change.parts[index] === name || change.parts.length <= index),
      );
      if (view !== undefined && indexes.has(change.index)) rebase(view, change);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#closeViews();
    if (this.#made > 0) await removeTree(this.#request.dir);
  }

  /** `copyTo`: a directory to make, with copies of what was changed; null: what was written itself, if it is in one place. */
  async #collect(of: ChangesOf, signal: AbortSignal | undefined, copyTo: string | null): Promise<Collected | null> {
    const ofPolicy = asksForHostExecuted(this.#request.sandbox) ? of : { ...of, hostExecuted: "allow" as const };
    const gathered: AsyncDisposable[] = [];
    try {
      const views: View[] = [];
      for (const view of this.#views) {
        const whole = await view.gathered?.();
        if (whole !== undefined) gathered.push(whole);
        views.push(whole === undefined ? view : { ...view, ...whole });
      }
      const collected = await collectChanges(views, this.#agreed, this.#request.maxBytes, ofPolicy, signal);
      const isInLayers = this.#views.some(({ layers }) => layers.length > 0);
      const dir = copyTo ?? (isInLayers ? join(this.#request.dir, "collected") : null);
      return collected === null || dir === null ? collected : await copiedTo(dir, collected, signal);
    } finally {
      for (const one of gathered) await one[Symbol.asyncDispose]();
    }
  }

  #viewAt(path: VirtualPath): View | undefined {
    const governing = governingMount(this.sandbox, path);
    return this.#views.find((view) => view.mount.path === governing?.path);
  }

  async #closeViews(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    for (const view of [...this.#views, ...this.#replaced]) await view.close();
    await this.#root?.close();
  }
}

function seenThrough(mount: Mount, views: readonly View[]): Mount {
  const view = views.find((each) => each.mount.path === mount.path);
  return view === undefined ? mount : throughView(view.mount, view.host);
}

function isBelow(outer: VirtualPath, inner: VirtualPath): boolean {
  return outer !== inner && covers(outer, inner);
}
