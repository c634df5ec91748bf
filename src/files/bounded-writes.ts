import { FileTooLargeError } from "../sandbox/errors.ts";
import type { Files, Guard } from "./model/files.ts";

/**
 * The same files, with a limit on the bytes that one operation may write, as the kernel limits programs. A copied folder
 * counts as a whole. A move needs no limit, since it takes no more space.
 */
export function boundedWrites(files: Files, maxBytes: number): Files {
  return {
    ...files,
    maxWriteBytes: maxBytes,
    write: (place, content, options) => files.write(place, content, bounded(options, maxBytes)),
    append: (place, content, options) => files.append(place, content, bounded(options, maxBytes)),
    edit: (place, edits, options) => files.edit(place, edits, bounded(options, maxBytes)),
    copy: (from, to, options) => files.copy(from, to, bounded(options, maxBytes)),
  };
}

/** An append may report the size of its file twice, so the last size of each path counts. */
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
