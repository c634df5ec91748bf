import { posix } from "node:path";
import { faultOf, resolveHostPlace } from "../../declarations/place/host-place.ts";
import { contentOf } from "../../files/host/content.ts";
import { Descriptor } from "../../files/host/descriptor.ts";
import { manifestFault } from "./manifest-lines.ts";

const CHUNK_BYTES = 256 * 1024;
/** As in `open(2)`. */
const O_RDONLY = 0;

/**
 * What a manifest holds, a piece at a time. Links that lead to it are its owner's and are followed. One that changes while
 * it is read is a fault: nobody could say which items there were.
 */
export async function* manifestBytes(path: string, cwd: string): AsyncGenerator<Buffer> {
  const place = await resolveHostPlace(posix.resolve(cwd), path);
  if (!place.ok) throw manifestFault(path, 1, 1, place.fault);
  if (place.directory) throw manifestFault(path, 1, 1, "is a folder, not a file");
  using file = opened(place.host, path);
  const content = contentOf(file);
  for (let at = 0; at < content.size; ) {
    const chunk = await content.read(at, CHUNK_BYTES);
    if (chunk.length === 0) break;
    at += chunk.length;
    yield chunk;
  }
  if (content.changed()) throw manifestFault(path, 1, 1, "was changed while it was read");
}

function opened(host: string, shown: string): Descriptor {
  try {
    using named = Descriptor.name(host);
    if (named.stat().isFile()) return named.reopen(O_RDONLY);
  } catch (error) {
    throw manifestFault(shown, 1, 1, faultOf(error));
  }
  throw manifestFault(shown, 1, 1, "is not a regular file");
}
