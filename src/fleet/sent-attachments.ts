import { StoredFiles } from "../blobs/files/stored-file.ts";
import type { BlobStore } from "../blobs/model/blob.ts";
import { pinSources } from "../isolation/sources/pin.ts";
import { formatBytes } from "../sandbox/units.ts";
import { attachedHost, type FleetJob } from "./items/item-job.ts";
import { ATTACHED_LIMITS, type ItemAttachment, type ItemRequest } from "./model/item.ts";

/** Items whose files are read and stored at the same time. A database takes each file as a whole. */
const AT_ONCE = 4;

/**
 * The same requests, whose attachments are stored for machines as they are now. An item whose files cannot be sent is refused, and
 * keeps their paths: they can be sent again.
 */
export async function* sentAttachments(
  items: AsyncIterable<ItemRequest>,
  { job, blobs, signal }: { readonly job: FleetJob; readonly blobs: BlobStore; readonly signal: AbortSignal },
): AsyncGenerator<ItemRequest, void, undefined> {
  const files = new StoredFiles(blobs);
  const window: Promise<ItemRequest>[] = [];
  try {
    for await (const item of items) {
      const sent = sentItem(item, { job, blobs, signal }, files);
      // It is awaited in its turn.
      sent.catch(() => {});
      window.push(sent);
      if (window.length >= AT_ONCE) yield await (window.shift() ?? sent);
    }
    while (window.length > 0) yield await (window.shift() as Promise<ItemRequest>);
    await blobs.flush();
  } finally {
    await Promise.allSettled(window);
  }
}

async function sentItem(
  { refusal, ...request }: ItemRequest,
  { job, blobs, signal }: Parameters<typeof sentAttachments>[1],
  files: StoredFiles,
): Promise<ItemRequest> {
  const { attachments } = request;
  // Its template was refused.
  if (refusal !== undefined && attachments.length === 0) return { ...request, refusal };
  if (attachments.length === 0) return request;
  const unsent = (reason: string): ItemRequest => ({
    ...request,
    attachments: attachments.map(({ path, name }) => ({ path, name })),
    refusal: reason,
  });
  if (attachments.length > ATTACHED_LIMITS.files)
    return unsent(
      `it has ${attachments.length} attachments, and at most ${ATTACHED_LIMITS.files} can be sent to machines`,
    );
  const sent: ItemAttachment[] = [];
  let bytes = 0;
  for (const { path, name } of attachments) {
    signal.throwIfAborted();
    const host = attachedHost(path, job.caller, false);
    const pinning = await pinSources([host], job.env.refusedSources);
    const why = (reason: string): ItemRequest => unsent(`the attachment ${path} cannot be sent to machines: ${reason}`);
    if (!pinning.ok) return why(pinning.refusals.map(({ reason }) => reason).join("; "));
    await using pins = pinning.pins;
    const source = pins.sources.get(host);
    if (source?.kind !== "file") return why("an attachment is one regular file");
    if (source.bytes > blobs.maxBytes) return why(tooLarge(source.bytes, blobs.maxBytes));
    bytes += source.bytes;
    if (bytes > ATTACHED_LIMITS.bytes)
      return why(`all files of an item may have ${formatBytes(ATTACHED_LIMITS.bytes)} together`);
    const blob = await files.store(source.descriptorPath, signal);
    if (blob === null) return why("it changes while it is read. Try again when no program writes to it");
    sent.push({ path, name, sent: blob });
  }
  return { ...request, attachments: sent };
}

function tooLarge(bytes: number, maxBytes: number): string {
  return (
    `it has ${formatBytes(bytes)}, and the blob store takes at most ${formatBytes(maxBytes)}. ` +
    "Set CORRAL_BLOBS to a directory that all machines share, or run it without `machines`"
  );
}
