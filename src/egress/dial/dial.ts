import { connect, type OnReadOpts, type Socket } from "node:net";
import { BOUNDS } from "../model/outlet.ts";

/**
 * Connects to the first address that answers. They are tried in turn, a further one as soon as one failed or was silent
 * for a moment (as RFC 8305 has it). Null if none answered in time; rejects never. `addresses` are judged. The socket is paused.
 */
export function dial(
  addresses: readonly string[],
  port: number,
  signal: AbortSignal,
  onread?: OnReadOpts,
): Promise<Socket | null> {
  return new Promise((resolve) => {
    const waiting = [...addresses];
    const open = new Set<Socket>();
    let stagger: NodeJS.Timeout | undefined;
    const finish = (winner: Socket | null): void => {
      clearTimeout(deadline);
      clearTimeout(stagger);
      signal.removeEventListener("abort", abort);
      for (const socket of open) if (socket !== winner) socket.destroy();
      resolve(winner);
    };
    const abort = (): void => finish(null);
    const next = (): void => {
      clearTimeout(stagger);
      const host = waiting.shift();
      if (host === undefined) {
        if (open.size === 0) finish(null);
        return;
      }
      const socket = connect({ host, port, allowHalfOpen: true, noDelay: true, ...(onread && { onread }) });
      open.add(socket);
      const failed = (): void => {
        open.delete(socket);
        next();
      };
      socket.once("error", failed).once("connect", () => {
        socket.off("error", failed);
        // The next owner listens too; an error before that must not be unhandled.
        socket.on("error", () => {});
        finish(socket);
      });
      stagger = setTimeout(next, BOUNDS.nextAddressMs);
    };
    const deadline = setTimeout(abort, BOUNDS.dialTimeoutMs);
    signal.addEventListener("abort", abort);
    if (signal.aborted) abort();
    else next();
  });
}
