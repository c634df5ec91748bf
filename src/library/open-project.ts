import { resolve } from "node:path";
import type { Approver } from "../approval/approver.ts";
import { loadProject } from "../declarations/project.ts";
import type { Emit } from "../run/model/events.ts";
import type { ApprovalMode } from "../sandbox/approval.ts";
import { stateDirFrom } from "../state/state-dir.ts";
import { OpenedProject } from "./opened-project.ts";

/** How a project is opened. Everything may be left out. */
export interface OpenProjectOptions {
  /**
   * DOCKER_HOST, DOCKER_CONTEXT and their kind, where the state directory is, and the keys of models: usually `process.env`, which
   * the library does not read by itself. Absent: the Engine is where Docker's client finds it without any of these, and no
   * model that needs a key can be used. Nothing of it ever enters a container.
   */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /**
   * Where Corral keeps its own: the audit trail, what waits to be applied, transcripts. Made where it is missing, with mode 0700, and
   * never below what a worker sees. Absent: as on the command line, by `env` (`CORRAL_STATE_DIR`, `XDG_STATE_HOME`, `HOME`), else
   * `~/.local/state/corral`, so that `corral changes` and `corral audit` tell of what a program did.
   */
  readonly stateDir?: string;
  /**
   * Decides in a person's place where the mode is `interactive`, such as a `callbackApprover`. Absent, and without a `person`: what
   * has to be asked is denied.
   */
  readonly approver?: Approver;
  /** Who is asked in that mode where there is no `approver`. */
  readonly person?: Approver;
  /** In place of the project's `approval.mode`. */
  readonly approvalMode?: ApprovalMode;
  /** A policy in place of the project's, for all that does not name one. */
  readonly policy?: string;
  /** Told of whatever happens to any run. It must not throw. */
  readonly emit?: Emit;
}

/**
 * Opens the project of a folder: `corral.yaml` and its workers are read and checked now, the Engine is looked for with the
 * first thing that needs one.
 *
 *     await using project = await openProject(".", { env: process.env });
 *     const { status, output } = await project.run("summarize", { attachments: ["./paper.txt"] });
 *
 * @throws DeclarationError with every mistake in the project's files.
 */
export async function openProject(dir: string, options: OpenProjectOptions = {}): Promise<OpenedProject> {
  const { env = {}, stateDir, policy = null, ...rest } = options;
  const project = await loadProject(dir);
  const engine = { stateDir: resolve(stateDir ?? stateDirFrom(env)), engineEnv: env };
  return new OpenedProject(project, { ...rest, ...engine }, policy);
}
