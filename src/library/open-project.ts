import { resolve } from "node:path";
import type { Approver } from "../approval/approver.ts";
import { loadProject } from "../declarations/project.ts";
import { DRIVER_CHOICES, type DriverChoice } from "../isolation/port/engine.ts";
import type { Emit } from "../run/model/events.ts";
import { APPROVAL_MODE_NAMES, type ApprovalMode } from "../sandbox/approval.ts";
import { stateDirFrom } from "../state/state-dir.ts";
import { any, type Checks, checkKeys } from "./checked-request.ts";
import { OpenedProject } from "./opened-project.ts";

/** How a project is opened. Every option is optional. */
export interface OpenProjectOptions {
  /**
   * Variables that name the Engine (`DOCKER_HOST`, `DOCKER_CONTEXT`, …), the state directory and the keys of models: usually
   * `process.env`, which the library does not read by itself. Absent: Corral uses the Engine's default socket, and models that
   * need a key are not available. None of them enters a container.
   */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /**
   * The directory of Corral's own state: the audit trail, changes that are not applied yet, transcripts. Corral creates it with
   * mode 0700; no worker can see it. Absent: as on the command line, from `env` (`CORRAL_STATE_DIR`, `XDG_STATE_HOME`, `HOME`),
   * else `~/.local/state/corral`, so `corral changes` and `corral audit` show what the program did.
   */
  readonly stateDir?: string;
  /**
   * Answers the questions of the mode `interactive` in place of the user, for example a `callbackApprover`. Without it and
   * without a `person`, every question is answered with a denial.
   */
  readonly approver?: Approver;
  /** Answers the questions of that mode if there is no `approver`. */
  readonly person?: Approver;
  /** Replaces the project's `approval.mode`. */
  readonly approvalMode?: ApprovalMode;
  /** Replaces the project's policy, for every worker that names none. */
  readonly policy?: string;
  /**
   * What makes containers: the Engine, or runc without it. Replaces `CORRAL_DRIVER` of `env`; absent in both: `auto`, the Engine, and runc for
   * fresh items of fleets if it can make cells here. With `prefer-runc` it makes all that it can, and with `runc` nothing runs if it cannot.
   */
  readonly driver?: DriverChoice;
  /** Receives every event of every run. It must not throw. */
  readonly emit?: Emit;
}

/**
 * Opens a project. Reads and checks `corral.yaml` and the workers now; connects to the Engine when an operation first needs it.
 *
 *     await using project = await openProject(".", { env: process.env });
 *     const { status, output } = await project.run("summarize", { attachments: ["./paper.txt"] });
 *
 * @throws DeclarationError with every mistake in the project's files; RangeError for an option, an `approvalMode` or a `driver`
 *   that does not exist.
 */
export async function openProject(dir: string, options: OpenProjectOptions = {}): Promise<OpenedProject> {
  checkKeys(options, OPTIONS, "openProject");
  const { env: given = {}, driver, stateDir, policy = null, ...rest } = options;
  if (driver !== undefined && !DRIVER_CHOICES.includes(driver))
    throw new RangeError(`\`driver\` must be one of ${DRIVER_CHOICES.join(", ")}, not ${JSON.stringify(driver)}`);
  const env = driver === undefined ? given : { ...given, CORRAL_DRIVER: driver };
  const { approvalMode } = rest;
  if (approvalMode !== undefined && !APPROVAL_MODE_NAMES.includes(approvalMode)) {
    const names = APPROVAL_MODE_NAMES.join(", ");
    throw new RangeError(`\`approvalMode\` must be one of ${names}, not ${JSON.stringify(approvalMode)}`);
  }
  const project = await loadProject(dir, env);
  const engine = { stateDir: resolve(stateDir ?? stateDirFrom(env)), engineEnv: env };
  return new OpenedProject(project, { ...rest, ...engine }, policy);
}

const OPTIONS: Checks<OpenProjectOptions> = {
  env: any,
  stateDir: any,
  approver: any,
  person: any,
  approvalMode: any,
  policy: any,
  driver: any,
  emit: any,
};
