import {
  accessOf,
  checkConsent,
  checkRead,
  checkWrite,
  consentTo,
  governingMount,
  parsePathIn,
  readablePaths,
} from "../sandbox/access.ts";
import type { ChangeOperation, Consent } from "../sandbox/approval.ts";
import { PathNotInSandboxError, type SandboxError } from "../sandbox/errors.ts";
import { asksForHostExecuted, type EntryKind, whyHostExecutedIn } from "../sandbox/host-executed.ts";
import type { Access } from "../sandbox/mount.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { VirtualPath } from "../sandbox/virtual-path.ts";
import { printableLine } from "../text/visible.ts";
import { type Checks, type Hidden, mountedPlace, NOTHING_HIDDEN, type Place } from "./model/files.ts";
import type { FileOperation } from "./model/refusals.ts";
import { leadsToMount } from "./namespace.ts";

/** An approval that an operation needs. */
export interface ConsentNeed {
  readonly operation: ChangeOperation;
  readonly path: VirtualPath;
  /** `blocked` is refused without asking. */
  readonly consent: Consent;
  /** Why a program of the host would act on it by itself: it is asked about whatever the mount says. Absent: none would. */
  readonly hostExecuted?: string;
}

export type AccessResolution =
  | { readonly ok: true; readonly path: VirtualPath; readonly access: Access }
  | { readonly ok: false; readonly error: SandboxError };

/** Turns a worker's text into a place, or throws a refusal. */
export class CheckedAccess {
  readonly #sandbox: Sandbox;
  readonly #hidden: Hidden;
  /** The backend calls these for each file that it really finds. */
  readonly checks: Checks;

  constructor(sandbox: Sandbox, hidden: Hidden = NOTHING_HIDDEN) {
    this.#sandbox = sandbox;
    this.#hidden = hidden;
    this.checks = {
      read: (path, size) => refuse(checkRead(sandbox, path, { size })),
      write: (path, size) => refuse(checkWrite(sandbox, path, { size })),
    };
  }

  parse(raw: string): VirtualPath {
    const parsed = parsePathIn(this.#sandbox, raw);
    if (parsed.ok) return parsed.path;
    throw new PathNotInSandboxError(printableLine(raw), readablePaths(this.#sandbox), parsed.reason);
  }

  resolve(raw: string): AccessResolution {
    const parsed = parsePathIn(this.#sandbox, raw);
    const readable = readablePaths(this.#sandbox);
    if (!parsed.ok) return { ok: false, error: new PathNotInSandboxError(printableLine(raw), readable, parsed.reason) };
    const error = checkRead(this.#sandbox, parsed.path, { directory: true });
    if (error !== null) return { ok: false, error };
    return { ok: true, path: parsed.path, access: accessOf(this.#sandbox, parsed.path) };
  }

  toRead(raw: string): Place {
    const path = this.parse(raw);
    refuse(checkRead(this.#sandbox, path));
    return this.#placeOf(path);
  }

  /** A place that can be inspected: inside of a mount, or on the way to one. */
  toSee(raw: string): VirtualPath {
    const path = this.parse(raw);
    if (!leadsToMount(this.#sandbox, path)) refuse(checkRead(this.#sandbox, path, { directory: true }));
    return path;
  }

  /** It may be a directory, so suffixes are checked later, for each file that is found. */
  toCopy(raw: string): Place {
    const path = this.parse(raw);
    refuse(checkRead(this.#sandbox, path, { directory: true }));
    return this.#placeOf(path);
  }

  toWrite(raw: string, size: number): Place {
    return this.#toChange("write", raw, { size });
  }

  /** For a new directory or file: suffixes are checked later, for each file that is found. */
  toFolder(raw: string): Place {
    return this.#toChange("write", raw, { directory: true });
  }

  toDelete(raw: string): Place {
    return this.#toChange("delete", raw, { directory: true });
  }

  needs(operation: FileOperation, raw: string, to: string | undefined): ConsentNeed[] {
    switch (operation) {
      case "write":
      case "append":
      case "edit":
      case "mkdir":
        return [this.#need("write", raw)];
      case "delete":
        return [this.#need("delete", raw)];
      case "move":
        return [this.#need("delete", raw), ...(to === undefined ? [] : [this.#need("write", to)])];
      case "copy":
        return to === undefined ? [] : [this.#need("write", to)];
      case "read":
      case "exists":
      case "stat":
      case "list":
        return [];
    }
  }

  #need(operation: ChangeOperation, raw: string): ConsentNeed {
    const path = this.parse(raw);
    refuse(checkWrite(this.#sandbox, path, { directory: true }));
    return this.needAt(operation, path, "file");
  }

  needAt(operation: ChangeOperation, path: VirtualPath, kind: EntryKind): ConsentNeed {
    const consent = consentTo(this.#sandbox, path, operation);
    const mount = asksForHostExecuted(this.#sandbox) ? governingMount(this.#sandbox, path) : undefined;
    const hostExecuted = mount === undefined ? null : whyHostExecutedIn(mount, path, kind);
    if (hostExecuted === null) return { operation, path, consent };
    // What is written to a view is asked about when it is applied.
    const asksNow = consent === "pre_approved" && mount?.view === undefined;
    return { operation, path, consent: asksNow ? "ask" : consent, hostExecuted };
  }

  #toChange(operation: "write" | "delete", raw: string, facts: Parameters<typeof checkWrite>[2]): Place {
    const path = this.parse(raw);
    refuse(checkWrite(this.#sandbox, path, facts));
    refuse(checkConsent(this.#sandbox, path, operation));
    // It would replace a file that may not be read, which is never applied.
    const size = operation === "write" ? this.#hidden.sizeAt(path) : null;
    if (size !== null) refuse(checkRead(this.#sandbox, path, { size }));
    return this.#placeOf(path);
  }

  #placeOf(path: VirtualPath): Place {
    const place = mountedPlace(this.#sandbox.mounts, path);
    if (place === null) throw new RangeError(`no mount contains ${path}`);
    return place;
  }
}

function refuse(error: SandboxError | null): void {
  if (error !== null) throw error;
}
