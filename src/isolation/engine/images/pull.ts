import type { BootstrapRequest } from "./bootstrap.ts";
import { readMessages } from "./engine-messages.ts";

const FIRST_BYTE_TIMEOUT_MS = 8_000;
const TOTAL_TIMEOUT_MS = 10 * 60_000;

/** Pulls a tag such as `debian:bookworm-slim`, or `debian@sha256:…`. Null on success, else why no registry provided it. */
export async function pullTag(
  reference: string,
  { docker, onProgress, signal }: Pick<BootstrapRequest, "docker" | "onProgress" | "signal">,
  firstByteTimeoutMs = FIRST_BYTE_TIMEOUT_MS,
): Promise<string | null> {
  const givenUp = new AbortController();
  const firstByte = setTimeout(
    () => givenUp.abort(new Error(`no registry answered within ${firstByteTimeoutMs / 1000} s`)),
    firstByteTimeoutMs,
  );
  // Cleared at the end: the timer of AbortSignal.timeout would keep the process alive once a request listens to it.
  const total = setTimeout(
    () => givenUp.abort(new Error(`the registry took longer than ${TOTAL_TIMEOUT_MS / 60_000} minutes`)),
    TOTAL_TIMEOUT_MS,
  );
  const abortSignal = AbortSignal.any([givenUp.signal, ...(signal ? [signal] : [])]);
  try {
    const answer = await docker.pull(reference, { abortSignal });
    for await (const message of readMessages(answer)) {
      clearTimeout(firstByte);
      if (message.error) return message.error;
      // The progress bars of each layer are for terminals; the other lines are enough.
      if (message.status && !/^(Downloading|Extracting|Waiting|Verifying|Pulling fs)/.test(message.status)) {
        onProgress({ image: reference, step: "pull", text: message.status });
      }
    }
    return null;
  } catch (error) {
    signal?.throwIfAborted();
    return abortSignal.aborted
      ? String(abortSignal.reason?.message ?? abortSignal.reason)
      : (error as Error).message.trim();
  } finally {
    clearTimeout(firstByte);
    clearTimeout(total);
  }
}
