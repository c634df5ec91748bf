import { z } from "zod";
import { examine, firstFaults } from "../../json/examine.ts";
import type { CallRequest } from "../calls/call.ts";

const MAX_ATTACHMENTS = 256;

const path = z.string().min(1).max(4096);
const callBody = z.strictObject({
  worker: z.string().min(1).max(256),
  input: z.unknown().optional(),
  attachments: z
    .array(z.union([path, z.strictObject({ path, name: z.string().min(1).max(255).nullish() })]))
    .max(MAX_ATTACHMENTS)
    .nullish(),
  narrow: z
    .strictObject({
      allow_read: z.union([path, z.array(path).max(MAX_ATTACHMENTS)]).optional(),
      allow_write: z.union([path, z.array(path).max(MAX_ATTACHMENTS)]).optional(),
      readonly: z.boolean().optional(),
    })
    .nullish(),
});

/** A call as the socket takes it, or what is wrong with it. */
export function parseCallBody(raw: unknown): CallRequest | string {
  const parsed = examine(callBody, raw);
  if (!parsed.success) return `The request is not a call: ${firstFaults(parsed.error)}`;
  const { worker, input, attachments, narrow } = parsed.data;
  return {
    worker,
    input,
    attachments: (attachments ?? []).map(attachmentOf),
    narrow: narrow ? narrowOf(narrow) : null,
  };
}

function attachmentOf(
  raw: string | { path: string; name?: string | null | undefined },
): CallRequest["attachments"][number] {
  if (typeof raw === "string") return { path: raw };
  return { path: raw.path, ...(raw.name ? { name: raw.name } : {}) };
}

function narrowOf(raw: NonNullable<z.infer<typeof callBody>["narrow"]>): NonNullable<CallRequest["narrow"]> {
  return {
    ...(raw.allow_read === undefined ? {} : { allowRead: [raw.allow_read].flat() }),
    ...(raw.allow_write === undefined ? {} : { allowWrite: [raw.allow_write].flat() }),
    ...(raw.readonly === undefined ? {} : { readonly: raw.readonly }),
  };
}
