import { loadProject } from "../../declarations/project.ts";
import { hostLines, threatOutcome, titleOf, verdictOf, verifyHtml } from "../../operations/verify/report.ts";
import { type VerifyReport, verifyMachine } from "../../operations/verify/verify.ts";
import type { Colors } from "../../operations/wording/question-text.ts";
import type { DriverChoice } from "../../sandbox/driver-choice.ts";
import { printableLine } from "../../text/visible.ts";
import { UsageError } from "../terminal/arguments.ts";
import { colorsFor, EXIT, printJson, say, stoppable, type Terminal } from "../terminal/terminal.ts";

interface VerifyOptions {
  readonly policy?: string;
  readonly runtime?: string;
  readonly full?: boolean;
  readonly project: string;
  readonly json?: boolean;
  readonly html?: boolean;
}

const USUAL = ["untrusted", "batch", "default"];
const ALL = [...USUAL, "ci"];

/** `corral verify`. Exit status 1 if something got through, or was not tried. */
export async function verifyVerb(options: VerifyOptions, terminal: Terminal): Promise<number> {
  const { policy, runtime = null, full = false, json, html } = options;
  if (json && html) throw new UsageError("use either --json or --html");
  const { env, stdout, stderr } = terminal;
  const isShown = stderr.isTTY && env.TERM !== "dumb";
  if (runtime !== null && policy !== undefined && !ALL.includes(policy))
    throw new UsageError("--runtime is for Corral's own policies; one of a project has `runtime` in its file");
  const policiesDir = policy === undefined || ALL.includes(policy) ? null : await policiesOfProject(options, terminal);
  using stop = stoppable(terminal, (line) => say(terminal, line));
  const policies = policy === undefined ? (full ? ALL : USUAL) : [policy];
  const named = env.CORRAL_DRIVER as DriverChoice | undefined;
  // Of an ordinary user, bubblewrap makes what runc makes for root.
  const each: DriverChoice[] = ["engine", process.getuid?.() === 0 ? "runc" : "bwrap"];
  const drivers = full && runtime === null && !named ? each : [named || "auto"];
  const reports: VerifyReport[] = [];
  for (const driver of drivers)
    for (const name of policies) {
      if (stop.signal.aborted) return EXIT.cancelled;
      let [tried, through] = [0, 0];
      const request = { policy: name, policiesDir, runtime, driver, measures: full, engineEnv: env };
      const report = await verifyMachine(request, {
        signal: stop.signal,
        onAttempts(attempts) {
          tried += attempts.length;
          through += attempts.filter(({ saw }) => saw !== null).length;
          if (isShown) stderr.write(`\r\u001b[Kpolicy ${name}: ${tried} tried, ${through} got through`);
        },
      }).catch((error: unknown) => {
        if (stop.signal.aborted) return null;
        throw error;
      });
      if (isShown) stderr.write("\r\u001b[K");
      if (report === null) return EXIT.cancelled;
      reports.push(report);
      if (!json && !html) stdout.write(`${reportText(report, colorsFor(stdout, env))}\n\n`);
    }
  const ok = reports.every((report) => report.ok);
  if (json) printJson(terminal, { ok, reports });
  else if (html) stdout.write(verifyHtml(reports));
  else stdout.write([...hostLines(reports).map((line) => `! ${line}`), verdictOf(reports), ""].join("\n"));
  return ok ? 0 : EXIT.someFailed;
}

async function policiesOfProject({ project }: VerifyOptions, { env }: Terminal): Promise<string | null> {
  return (await loadProject(project, env)).policiesDir;
}

/** For people. */
export function reportText(report: VerifyReport, colors: Colors): string {
  const marks = { held: colors.green("✓"), through: colors.red("✗"), "not tried": colors.yellow("?"), none: "-" };
  // Where no cell can be made, each threat has the same reason.
  const told = new Set<string>();
  const lines = report.threats.flatMap((threat) => {
    const { is, said } = threatOutcome(threat);
    const { notTried } = threat;
    const isNew = notTried !== null && !told.has(notTried);
    if (isNew) told.add(notTried);
    return [
      `${marks[is]} ${threat.meaning.padEnd(40)} ${said}`,
      ...threat.through.map(({ what, saw }) => `    ${printableLine(what, 200)}: ${printableLine(saw, 200)}`),
      ...(isNew ? [`    ${printableLine(notTried, 500)}`] : []),
    ];
  });
  return [titleOf(report), ...lines].join("\n");
}
