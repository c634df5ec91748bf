import { z } from "zod";
import { type Digest, isDigest } from "../../blobs/model/blob.ts";
import { examine } from "../../json/examine.ts";
import { isAttachmentName } from "../../run/calls/call.ts";
import { ATTACHED_LIMITS, type ItemRequest } from "../model/item.ts";

const MAX_TEXT = 10_000;
/** Of paths that an item may read or write. */
const MAX_PATHS = 100_000;

const text = z.string().max(MAX_TEXT);
const attachment = z.strictObject({
  path: text,
  name: z.string().refine(isAttachmentName),
  sent: z
    .strictObject({
      digest: z.custom<Digest>((value) => typeof value === "string" && isDigest(value)),
      bytes: z.number().int().min(0).max(ATTACHED_LIMITS.bytes),
    })
    .optional(),
});
const claimed = z.object({
  index: z.number().int().min(0),
  key: text,
  place: text,
  input: z.unknown().optional(),
  attachments: z
    .array(attachment)
    .max(ATTACHED_LIMITS.files)
    .refine((all) => new Set(all.map(({ name }) => name)).size === all.length),
  allowRead: z.array(text).max(MAX_PATHS).optional(),
  allowWrite: z.array(text).max(MAX_PATHS).optional(),
  fields: z.record(z.string(), z.unknown()).optional(),
  refusal: z.string().optional(),
});

/** The request of an item as another machine wrote it into the database; null if it is none. */
export function claimedRequest(raw: unknown): ItemRequest | null {
  const parsed = examine(claimed, raw);
  return parsed.success ? (parsed.data as ItemRequest) : null;
}
