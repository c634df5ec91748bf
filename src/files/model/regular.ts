import type { EntryType } from "./files.ts";
import { IS_DIRECTORY } from "./refusals.ts";

/** Why an entry cannot be read or written as a file; null if it can. */
export function whyNotRegular(type: EntryType): string | null {
  switch (type) {
    case "file":
      return null;
    case "directory":
      return IS_DIRECTORY;
    case "link":
      return "it is a symbolic link, and nothing is changed through links. Delete it first, or name the file that it leads to.";
    case "other":
      return "it is not a regular file (a FIFO, a socket or a device). Only regular files are opened.";
  }
}
