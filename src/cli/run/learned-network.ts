import type { Project } from "../../declarations/project.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { policiesOf } from "../../run/open/policies.ts";
import type { ApprovalMode } from "../../sandbox/approval.ts";
import { UsageError } from "../terminal/arguments.ts";
import type { Terminal } from "../terminal/terminal.ts";

/** Who learns from such work what it wants to reach, lets it write the list by which it is judged. */
const NEVER = ["untrusted", "ci"];

export interface LearnRequest {
  readonly policy?: string;
  readonly approve?: ApprovalMode;
}

/** `--learn-network`: if there is nothing to learn, or no user to ask, the error comes before anything runs. */
export async function refuseLearning(
  worker: WorkerDefinition,
  project: Project,
  { policy, approve = project.approval.mode }: LearnRequest,
  { stdin, stderr }: Terminal,
): Promise<void> {
  if (!stdin.isTTY || !stderr.isTTY)
    throw new UsageError("--learn-network asks the user about each host, and there is no terminal");
  if (approve !== "interactive")
    throw new UsageError(`--learn-network asks the user about each host, but the approval mode is ${approve}`);
  if (worker.needs.network === true)
    throw new UsageError(`--learn-network has nothing to ask: ${worker.name} has \`network: true\``);
  const policyNamed = policiesOf(project);
  for (const name of new Set([
    policy ?? project.policyName,
    ...(worker.policyName === null ? [] : [worker.policyName]),
  ])) {
    if (NEVER.includes(name) || (await policyNamed(name)).network === false)
      throw new UsageError(
        `--learn-network is refused under the policy ${name}; write what its workers may reach yourself`,
      );
  }
}
