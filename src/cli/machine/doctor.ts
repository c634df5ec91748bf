import { examineMachine, type Finding } from "../../operations/machine.ts";
import type { Colors } from "../../operations/wording/quoted-lines.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { colorsFor, printResult, type Terminal } from "../terminal/terminal.ts";

/** `corral doctor`. Exit status 1 if something is missing. */
export async function doctorVerb(options: { readonly json?: boolean }, terminal: Terminal): Promise<number> {
  const { env, stdout } = terminal;
  const examined = await examineMachine({ stateDir: stateDirFrom(env), engineEnv: env });
  printResult(terminal, options.json, examined, () => findingsText(examined.findings, colorsFor(stdout, env)));
  return examined.ok ? 0 : 1;
}

function findingsText(findings: readonly Finding[], colors: Colors): string {
  const marks = { ok: colors.green("✓"), warning: colors.yellow("!"), missing: colors.red("✗") };
  return findings.map(({ what, state, detail }) => `${marks[state]} ${what.padEnd(16)} ${detail}`).join("\n");
}
