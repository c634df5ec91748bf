import { noTerminal } from "../../approval/approver.ts";
import { refusedError } from "../../operations/request-error.ts";
import { deniedLine } from "../../operations/wording/denied-traffic.ts";
import { openCorralFor } from "../../run/open/corral.ts";
import { openSession } from "../../run/open-session.ts";
import type { Session } from "../../run/session/session.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { printable } from "../../text/visible.ts";
import { type ElsewhereOptions, personAt, tellSuggestion, waitingBy } from "../consent/person.ts";
import { type Asked, declaredWorker } from "../declared/declared-worker.ts";
import { EXIT } from "../terminal/exit-status.ts";
import { ImageLines } from "../terminal/image-lines.ts";
import { type Stop, stoppable } from "../terminal/stop.ts";
import { say, type Terminal } from "../terminal/terminal.ts";

export type SessionOptions = Omit<Asked, "words"> & ElsewhereOptions;

/** Opens a session of a worker for one verb, and closes it after; for a refused one it prints why and sets the exit status. */
export async function inSession(
  options: SessionOptions,
  terminal: Terminal,
  act: (session: Session, stop: Stop) => Promise<number>,
): Promise<number> {
  const declared = await declaredWorker(options, terminal);
  const { project, worker, isImplied } = declared;
  using stop = stoppable(terminal, (line) => say(terminal, line));
  const person = personAt(project, { terminal, stop });
  const images = new ImageLines();
  await using corral = await openCorralFor(project, {
    stateDir: stateDirFrom(terminal.env),
    engineEnv: terminal.env,
    emit(event) {
      for (const line of images.see(event)) say(terminal, line);
      if (event.type === "trouble") say(terminal, `corral: ${event.detail}`);
      else if (event.type === "network_denied") say(terminal, deniedLine(event.worker, event.denied));
    },
    ...(options.approve === undefined || options.apply ? {} : { approvalMode: options.approve }),
    person: person ?? noTerminal,
    ...waitingBy(options, (line) => say(terminal, line)),
  });
  const policy = declared.policy === null ? {} : { policy: declared.policy };
  const opened = await openSession({ worker, signal: stop.signal, ...policy }, corral.environment);
  if (!opened.ok) throw refusedError("WORKER_REFUSED", worker.name, opened.violations);
  try {
    const status = await act(opened.session, stop);
    const failure = (await opened.finish())?.failure ?? null;
    if (failure !== null) say(terminal, `corral: ${printable(failure.error.message)}`);
    if (!isImplied) await tellSuggestion(project, options.project, corral.environment.grants.told, terminal);
    return status === 0 && failure !== null ? EXIT.refused : status;
  } finally {
    await opened[Symbol.asyncDispose]();
  }
}
