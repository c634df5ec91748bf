import { stat } from "node:fs/promises";
import { openEngine } from "../isolation/open-engine.ts";
import { type EnginePort, EngineUnavailableError } from "../isolation/port/engine.ts";
import { IMAGES_DIR, packageVersion } from "../operations/package-version.ts";
import type { Colors } from "../operations/wording/colors.ts";
import { stateDirFrom } from "../state/state-dir.ts";
import { colorsFor, printJson, type Terminal } from "./terminal/terminal.ts";

/** One thing that was looked at. `missing` is what keeps workers from running; `warning` does not. */
export interface Finding {
  readonly what: string;
  readonly state: "ok" | "warning" | "missing";
  readonly detail: string;
}

/** `corral doctor`. Exit status 1 where something is missing. */
export async function doctorVerb(options: { readonly json?: boolean }, terminal: Terminal): Promise<number> {
  const findings = await examine(terminal.env);
  const ok = findings.every(({ state }) => state !== "missing");
  if (options.json) printJson(terminal, { ok, findings });
  else terminal.stdout.write(`${findingsText(findings, colorsFor(terminal.stdout, terminal.env))}\n`);
  return ok ? 0 : 1;
}

async function examine(env: Terminal["env"]): Promise<Finding[]> {
  const stateDir = stateDirFrom(env);
  const findings: Finding[] = [
    { what: "corral", state: "ok", detail: `${packageVersion()} on Node ${process.versions.node}` },
    { what: "user", state: "ok", detail: userText() },
    socketPathFinding(stateDir),
  ];
  try {
    const engine = await openEngine({ stateDir, engineEnv: env });
    findings.push(await stateDirFinding(stateDir), { what: "engine", state: "ok", detail: engine.description });
    findings.push(...(await capabilityFindings(engine)), ...(await imageFindings(engine)), await gateFinding(engine));
  } catch (error) {
    const what = error instanceof EngineUnavailableError ? "engine" : "state directory";
    findings.push({ what, state: "missing", detail: (error as Error).message });
  }
  return findings;
}

function userText(): string {
  const uid = process.getuid?.() ?? 0;
  return uid === 0 ? "root" : `uid ${uid}, groups ${process.getgroups?.().join(" ")}`;
}

/** The kernel takes 107 bytes for the path of a socket; below the state directory come `live/`, an owner, a run and `s`. */
function socketPathFinding(stateDir: string): Finding {
  const room = 107 - Buffer.byteLength("/live/0123456789/0123456789ab/s");
  const fits = Buffer.byteLength(stateDir) <= room;
  const detail = fits
    ? `short enough below ${stateDir}`
    : `${stateDir} is longer than ${room} bytes; set CORRAL_STATE_DIR to a shorter path`;
  return { what: "socket path", state: fits ? "ok" : "missing", detail };
}

async function stateDirFinding(stateDir: string): Promise<Finding> {
  const { mode } = await stat(stateDir);
  const open = (mode & 0o077) !== 0;
  const permissions = (mode & 0o777).toString(8);
  const detail = open
    ? `others can look into it (mode ${permissions}); run: chmod 700 ${stateDir}`
    : `mode ${permissions}`;
  return { what: "state directory", state: open ? "warning" : "ok", detail };
}

async function capabilityFindings({ driver }: EnginePort): Promise<Finding[]> {
  const { engine, version, missing, facts } = await driver.capabilities();
  const about = Object.entries(facts).map(([name, fact]) => `${name} ${fact}`);
  return [
    { what: "engine", state: "ok", detail: `${engine} ${version}: ${about.join("; ")}` },
    ...missing.map((need): Finding => ({ what: "engine", state: "missing", detail: need })),
  ];
}

async function imageFindings({ images }: EnginePort): Promise<Finding[]> {
  const statuses = await images.status(IMAGES_DIR);
  return statuses.map(({ tag, name, state }): Finding => {
    if (state === "present") return { what: "image", state: "ok", detail: tag };
    const detail = `${tag} is ${state}; run: corral images build ${name}`;
    return { what: "image", state: state === "missing" ? "missing" : "warning", detail };
  });
}

async function gateFinding(engine: EnginePort): Promise<Finding> {
  try {
    return { what: "gate", state: "ok", detail: await engine.gate() };
  } catch (error) {
    return { what: "gate", state: "missing", detail: (error as Error).message };
  }
}

function findingsText(findings: readonly Finding[], colors: Colors): string {
  const marks = { ok: colors.green("✓"), warning: colors.yellow("!"), missing: colors.red("✗") };
  return findings.map(({ what, state, detail }) => `${marks[state]} ${what.padEnd(16)} ${detail}`).join("\n");
}
