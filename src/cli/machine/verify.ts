import { loadProject } from "../../declarations/project.ts";
import { type VerifyReport, verifyMachine } from "../../operations/verify/verify.ts";
import type { Colors } from "../../operations/wording/question-text.ts";
import type { DriverChoice } from "../../sandbox/driver-choice.ts";
import { counted, durationText } from "../../text/amounts.ts";
import { printableLine } from "../../text/visible.ts";
import { UsageError } from "../terminal/arguments.ts";
import { colorsFor, EXIT, printJson, say, stoppable, type Terminal } from "../terminal/terminal.ts";

interface VerifyOptions {
  readonly policy?: string;
  readonly runtime?: string;
  readonly full?: boolean;
  readonly project: string;
  readonly json?: boolean;
}

const USUAL = ["untrusted", "batch", "default"];
const ALL = [...USUAL, "ci"];

/** `corral verify`. Exit status 1 if something got through, or was not tried. */
export async function verifyVerb(options: VerifyOptions, terminal: Terminal): Promise<number> {
  const { policy, runtime = null, full = false, json } = options;
  const { env, stdout, stderr } = terminal;
  const isShown = stderr.isTTY && env.TERM !== "dumb";
  if (runtime !== null && policy !== undefined && !ALL.includes(policy))
    throw new UsageError("--runtime is for Corral's own policies; one of a project has `runtime` in its file");
  const policiesDir = policy === undefined || ALL.includes(policy) ? null : await policiesOfProject(options, terminal);
  using stop = stoppable(terminal, (line) => say(terminal, line));
  const policies = policy === undefined ? (full ? ALL : USUAL) : [policy];
  const drivers: DriverChoice[] = full ? ["engine", "runc"] : [(env.CORRAL_DRIVER as DriverChoice) || "auto"];
  const reports: VerifyReport[] = [];
  for (const driver of drivers)
    for (const name of policies) {
      if (stop.signal.aborted) return EXIT.cancelled;
      let [tried, through] = [0, 0];
      const request = { policy: name, policiesDir, runtime, driver, engineEnv: env };
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
      if (!json) stdout.write(`${reportText(report, colorsFor(stdout, env))}\n\n`);
    }
  const ok = reports.every((report) => report.ok);
  if (json) printJson(terminal, { ok, reports });
  else stdout.write(`${hostText(reports)}${ok ? "All of it held." : "Not all of it held."}\n`);
  return ok ? 0 : EXIT.someFailed;
}

async function policiesOfProject({ project }: VerifyOptions, { env }: Terminal): Promise<string | null> {
  return (await loadProject(project, env)).policiesDir;
}

function reportText(report: VerifyReport, colors: Colors): string {
  const { policy, runtime, driver, threats, durationMs } = report;
  const by = [driver ?? "no container", ...(runtime === null ? [] : [`runtime ${runtime}`])].join(", ");
  const lines = threats.flatMap(({ meaning, tried, through, notTried }) => {
    const mark =
      through.length > 0
        ? colors.red("✗")
        : notTried !== null
          ? colors.yellow("?")
          : tried === 0
            ? "-"
            : colors.green("✓");
    const said =
      through.length > 0
        ? `${through.length} of ${tried} got through`
        : notTried !== null
          ? "not tried"
          : tried === 0
            ? "nothing to try"
            : `${tried} held`;
    const why = notTried === null ? [] : [`    ${printableLine(notTried, 500)}`];
    return [
      `${mark} ${meaning.padEnd(40)} ${said}`,
      ...through.map(({ what, saw }) => `    ${printableLine(what, 200)}: ${printableLine(saw, 200)}`),
      ...why,
    ];
  });
  const sum = threats.reduce((all, { tried }) => all + tried, 0);
  const head = `Policy ${policy}, ${by}: ${counted(sum, "attack", "attacks")} in ${durationText(durationMs)}`;
  return [head, ...lines].join("\n");
}

/** What this machine cannot enforce, once. */
function hostText(reports: readonly VerifyReport[]): string {
  const details = new Set(reports.flatMap(({ host }) => host.map(({ what, detail }) => `! ${what}: ${detail}\n`)));
  return [...details].join("");
}
