import { onAbort } from "../../platform/on-abort.ts";
import { EngineTrouble } from "../port/driver.ts";

/** How long a started container may take to send its gate report. */
const REPORT_TIMEOUT_MS = 30_000;

/** Rejects with `EngineTrouble` if it is late, and with the signal's reason. */
export async function reportWithin(report: Promise<string>, signal: AbortSignal): Promise<string> {
  const { promise: stopped, reject } = Promise.withResolvers<never>();
  const late = (): void => reject(new EngineTrouble(`the cell sent no report within ${REPORT_TIMEOUT_MS / 1000} s`));
  const timer = setTimeout(late, REPORT_TIMEOUT_MS);
  using _ = onAbort(signal, () => reject(signal.reason));
  try {
    return await Promise.race([report, stopped]);
  } finally {
    clearTimeout(timer);
  }
}
