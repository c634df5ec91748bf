import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import type { Edit, EntryType, Expected } from "./files.ts";

/** A change that a worker asks for, with the paths as it wrote them. */
export type Intended =
  | {
      readonly operation: "write";
      readonly path: string;
      readonly content: string | Uint8Array;
      readonly overwrite?: boolean | undefined;
    }
  | { readonly operation: "append"; readonly path: string; readonly content: string | Uint8Array }
  | { readonly operation: "edit"; readonly path: string; readonly edits: readonly Edit[] }
  | { readonly operation: "delete"; readonly path: string; readonly recursive?: boolean | undefined }
  | {
      readonly operation: "move" | "copy";
      readonly path: string;
      readonly to: string;
      readonly overwrite?: boolean | undefined;
    };

/** One version of a file. */
export interface Version {
  readonly bytes: number;
  /** Permission bits. Null: those of any new file. */
  readonly mode: number | null;
  /** Null: it is too large to be held, or one of many. */
  readonly content: Uint8Array | null;
}

export type Effect =
  /** `before`: null if there is no file. */
  | { readonly kind: "write"; readonly path: VirtualPath; readonly before: Version | null; readonly after: Version }
  | { readonly kind: "folder"; readonly path: VirtualPath }
  | { readonly kind: "delete"; readonly path: VirtualPath; readonly type: EntryType };

/** What an operation would do. It is not refused as things are now. */
export interface Foreseen {
  readonly effects: readonly Effect[];
  /** For an edit: in how many places each text is replaced. */
  readonly places: readonly number[];
  /** Passed to the operation, so that it acts on what was seen here. */
  readonly expected: Expected;
}
