import { EditError } from "../../sandbox/errors.ts";
import { editedContent } from "../edit/edited-content.ts";
import type { Edit, Edited, Expecting, Guard } from "../model/files.ts";
import type { Place } from "../model/place.ts";
import { CHANGED, unfit } from "../model/refusals.ts";
import { contentOf, writeAll } from "./content.ts";
import { openSlot } from "./folder.ts";
import { versionOf } from "./look.ts";
import { openRegular } from "./read.ts";
import { keeping, lookUp, replaceFile } from "./replace-file.ts";
import type { Root } from "./roots.ts";
import { walk } from "./walk.ts";
import { writeInPlace } from "./write.ts";

export async function editFile(
  root: Root,
  place: Place,
  edits: readonly Edit[],
  options: Guard & Expecting,
): Promise<Edited> {
  using found = walk({ operation: "edit", root, parts: place.parts, links: "refuse", asked: place.path });
  using file = openRegular("edit", place, found);
  const before = file.stat();
  options.checks?.read?.(found.path, before.size);
  const { to = versionOf(before) } = options.expected ?? {};
  if (to !== versionOf(before)) throw unfit("edit", place.path, CHANGED);
  const edited = await editedContent(contentOf(file), place.path, edits);
  const { bytes } = edited;
  options.checks?.write?.(found.path, bytes.length);
  if (!root.directory) await writeInPlace(root, place, bytes);
  else {
    using slot = openSlot("edit", root, place);
    const fill = async (fresh: Parameters<typeof writeAll>[0]): Promise<void> => {
      await writeAll(fresh, bytes, 0);
      // Otherwise a change by another writer since the read would be lost silently.
      const now = lookUp(slot.folder, slot.name)?.stats;
      if (now?.ino !== before.ino || now.mtimeMs !== before.mtimeMs || now.size !== before.size) {
        throw new EditError(place.path, "another process changed it at the same time. Read it again.");
      }
    };
    await replaceFile(slot.folder, slot.name, { ...keeping(before), overwrite: true, fill });
  }
  return { bytes: bytes.length, replacements: edited.replacements };
}
