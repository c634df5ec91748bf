import { posix } from "node:path";
import { faultOf, resolveHostPlace } from "../../declarations/place/host-place.ts";
import { contentOf } from "../../files/host/content.ts";
import { Descriptor } from "../../files/host/descriptor.ts";
import { manifestFault } from "./manifest-lines.ts";

const CHUNK_BYTES = 256 * 1024;
/** As in `open(2)`. */
const O_RDONLY = 0;

/**
 * The content of a manifest, in chunks. Links to it belong to the user and are followed. A change during reading is an error,
 * because the set of items would be undefined.
 */
export async function* manifestBytes(path: string, cwd: string): AsyncGenerator<Buffer> {
  const place = await resolveHostPlace(posix.resolve(cwd), path);
  if (!place.ok) throw manifestFault(path, 1, 1, place.fault);
  if (place.directory) throw manifestFault(path, 1, 1, "is a directory, not a file");
  using file = opened(place.host, path);
  const content = contentOf(file);
  for (let at = 0; at < content.size; ) {
    const chunk = await content.read(at, CHUNK_BYTES);
    if (chunk.length === 0) break;
    at += chunk.length;
    yield chunk;
  }
  if (content.changed()) throw manifestFault(path, 1, 1, "changed while Corral read it; start the fleet again");
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
