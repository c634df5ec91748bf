import { FileTooLargeError } from "../sandbox/errors.ts";
import type { Files, Guard } from "./model/files.ts";

/**
 * The same files, in which nothing becomes larger than so many bytes by one operation, as the kernel holds programs to it;
 * of a folder that is copied, all of it together. A move takes no more room than there was before.
 */
export function boundedWrites(files: Files, maxBytes: number): Files {
  return {
    ...files,
    write: (place, content, options) => files.write(place, content, bounded(options, maxBytes)),
    append: (place, content, options) => files.append(place, content, bounded(options, maxBytes)),
    edit: (place, edits, options) => files.edit(place, edits, bounded(options, maxBytes)),
    copy: (from, to, options) => files.copy(from, to, bounded(options, maxBytes)),
  };
}

/** The size of a file that is appended to is told before and after. */
function bounded<Options extends Guard>(options: Options | undefined, maxBytes: number): Options & Guard {
  const sizes = new Map<string, number>();
  let all = 0;
  return {
    ...(options as Options),
    checks: {
      ...options?.checks,
      write(path, size) {
        options?.checks?.write?.(path, size);
        all += size - (sizes.get(path) ?? 0);
        sizes.set(path, size);
        if (all > maxBytes) throw new FileTooLargeError(path, all, maxBytes);
      },
    },
  };
}
