import { join } from "node:path";
import { BlobRefused, type BlobStore } from "../blobs/blob.ts";
import { type FetchedFile, FetchedFiles } from "../blobs/fetched-files.ts";
import { type Attachment, type Job, newRunId } from "../run/model/job.ts";
import { unstartedResult } from "../run/model/result.ts";
import { ASK } from "../sandbox/approval.ts";
import { formatBytes } from "../sandbox/units.ts";
import type { ItemExecutor } from "./item-result.ts";
import { ATTACHED_LIMITS } from "./model/item.ts";

/**
 * Runs items with the attachments that were sent for them, also at home: a file from which one is copied may change while the item runs.
 * `ownerDir`: of this process. Disposing disposes of `cells` too.
 */
export function withFetchedAttachments(
  cells: ItemExecutor,
  { blobs, ownerDir }: { readonly blobs: BlobStore; readonly ownerDir: string },
): ItemExecutor {
  const files = new FetchedFiles(blobs, join(ownerDir, `${newRunId()}.fetched`));
  return {
    async run(job) {
      if (job.attachments.every(({ sent }) => sent === undefined)) return await cells.run(job);
      const opened: FetchedFile[] = [];
      try {
        const attachments: Attachment[] = [];
        checkBounds(job.attachments);
        for (const attachment of job.attachments)
          attachments.push(await broughtHere(attachment, files, opened, job.signal));
        return await cells.run({ ...job, attachments });
      } catch (error) {
        const who = { run: job.run, worker: job.worker.name };
        if (job.signal.aborted) return unstartedResult(who, "cancelled", CANCELLED);
        if (!(error instanceof Unfetched)) throw error;
        return unstartedResult(who, "refused", { code: "ITEM_REFUSED", message: error.message });
      } finally {
        for (const file of opened) file[Symbol.dispose]();
      }
    },
    async [Symbol.asyncDispose]() {
      await using _ = files;
      await cells[Symbol.asyncDispose]();
    },
  };
}

class Unfetched extends Error {}

const CANCELLED = { code: "CANCELLED", message: "The item was ended while its attachments were fetched." };

/** What is said of them is another machine's word. */
function checkBounds(attachments: Job["attachments"]): void {
  const bytes = attachments.reduce((sum, { sent }) => sum + (sent?.bytes ?? 0), 0);
  if (attachments.length > ATTACHED_LIMITS.files || bytes > ATTACHED_LIMITS.bytes)
    throw new Unfetched(
      `its attachments are more than ${ATTACHED_LIMITS.files} files, or than ${formatBytes(ATTACHED_LIMITS.bytes)}`,
    );
}

async function broughtHere(
  { sent, ...attachment }: Attachment,
  files: FetchedFiles,
  opened: FetchedFile[],
  signal: AbortSignal,
): Promise<Attachment> {
  if (sent === undefined) return attachment;
  try {
    const file = await files.open(sent, signal, attachment.host);
    opened.push(file);
    const { host } = file;
    return { ...attachment, host, view: { origin: host, asked: ASK } };
  } catch (error) {
    if (!(error instanceof BlobRefused)) throw error;
    const what = attachment.asked ?? attachment.name;
    throw new Unfetched(`the attachment ${what} cannot be fetched: ${error.message}. Retry the item to send it again`);
  }
}
