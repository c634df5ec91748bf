import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { WorkerDefinition } from "../../src/declarations/worker/worker.ts";
import type { RunEnvironment } from "../../src/run/model/environment.ts";
import { permissionOf, rootSandbox } from "../../src/run/model/permission.ts";
import { openCorral } from "../../src/run/open/corral.ts";
import { openSession } from "../../src/run/open-session.ts";
import { parsePathIn } from "../../src/sandbox/access.ts";
import type { Sandbox } from "../../src/sandbox/sandbox.ts";
import { ROOTED_BASE } from "../../src/sandbox/virtual-path.ts";
import { declarationOf } from "./declaration.ts";
import { type Abilities, probed } from "./probe.ts";
import { writeProjectFolder } from "./project-folder.ts";
import type { Scenario } from "./sandboxes.ts";
import { STRICTER, type Stricter } from "./stricter.ts";
import { textsFor } from "./texts.ts";
import { validated } from "./validator.ts";

export interface Comparison {
  /** A line for each difference that nobody meant. */
  readonly differences: readonly string[];
  /** How many were tried. */
  readonly paths: number;
  /** Of the table, what was met. */
  readonly met: ReadonlySet<Stricter>;
  /** What only the kernel lets the worker write, as it is meant. */
  readonly written: readonly string[];
}

/** Holds what the validator says and does against what the kernel does in the cell, at every path of a scenario. */
export async function compared(scenario: Scenario, stateDir: string): Promise<Comparison> {
  const base = await mkdtemp(join(tmpdir(), "corral-agree-"));
  try {
    const declaration = declarationOf(scenario);
    const projectDir = writeProjectFolder(base, scenario, declaration);
    await using corral = await openCorral({ projectDir, stateDir, engineEnv: process.env });
    const worker = corral.project.workers.get("probed") as WorkerDefinition;
    const sandbox = await sandboxOf(worker, corral.environment);
    const texts = textsFor(scenario, declaration, sandbox);

    const opened = await openSession({ worker, signal: new AbortController().signal }, corral.environment);
    if (!opened.ok) throw new Error(opened.violations.map(({ message }) => message).join("\n"));
    await using _ = opened;
    const kernel = await probed(
      opened.session,
      texts.map((text) => pathInCell(sandbox, text)),
    );
    const differences: string[] = [];
    const met = new Set<Stricter>();
    const written: string[] = [];
    for (const [index, text] of texts.entries()) {
      const validator = await validated(opened.session.files, sandbox, text);
      for (const act of ["read", "list", "write"] as const) {
        const inCell = kernel[index]?.[act] ?? false;
        if (validator[act] === inCell) continue;
        const meant = validator[act] ? undefined : STRICTER.find((row) => row.covers({ text, act, sandbox }));
        if (meant === undefined) differences.push(worded(text, act, validator));
        else met.add(meant);
        if (meant !== undefined && act === "write") written.push(text);
      }
    }
    return { differences, met, written, paths: texts.length };
  } finally {
    await rm(base, { recursive: true, force: true });
  }
}

export async function sandboxOf(worker: WorkerDefinition, environment: RunEnvironment): Promise<Sandbox> {
  const project = await rootSandbox(environment, null);
  const derivation = await permissionOf(worker, project, null, environment);
  if (!derivation.ok) throw new Error(JSON.stringify(derivation.violations));
  return derivation.sandbox;
}

/** The same place for a program in the cell. What is no path is tried as it stands. */
function pathInCell(sandbox: Sandbox, text: string): string {
  const parsed = parsePathIn(sandbox, text);
  const path = parsed.ok ? parsed.path : text;
  return sandbox.rooted && path.startsWith("/") ? ROOTED_BASE + path : path;
}

function worded(text: string, act: keyof Abilities, validator: Abilities): string {
  const [allows, refuses] = validator[act] ? ["validator", "kernel"] : ["kernel", "validator"];
  return `${act} ${JSON.stringify(text)}: the ${allows} allows it, the ${refuses} does not`;
}
