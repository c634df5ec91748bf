import type { Approver } from "../approval/approver.ts";
import type { AuditTrail } from "../audit/trail.ts";
import type { Changeset } from "../changes/model/changeset.ts";
import { loadProject, type Project } from "../declarations/project.ts";
import { type Decided, decisionsOn } from "../run/changes/decisions.ts";
import { approverFor } from "../run/open/options.ts";
import { RecordedApprover } from "../run/recorded/approver.ts";
import type { Env } from "../secrets/read-secret.ts";
import type { ApplyApproval, ApplyRequest } from "./changeset-facts.ts";

interface Asking {
  readonly approval: ApplyRequest["approval"];
  /** For what is recorded: who agrees. */
  readonly by: string | undefined;
}

/** Who decides on changes that waited, project by project. */
export class ChangeDeciders {
  readonly #env: Env;
  readonly #projects = new Map<string, Project>();
  /** One approver for each project and way to ask, so that an answer for the session covers further changesets. */
  readonly #asked = new Map<string, { readonly approver: Approver; readonly approval: ApplyRequest["approval"] }>();

  /** `env`: Corral's own environment, for reading projects. */
  constructor(env: Env) {
    this.#env = env;
  }

  async projectOf(dir: string): Promise<Project> {
    const project = this.#projects.get(dir) ?? (await loadProject(dir, this.#env));
    this.#projects.set(dir, project);
    return project;
  }

  /** Asks for each change as a run of the changeset's project would: its rules first. */
  async decide(
    selected: Changeset,
    { approval, by }: Asking,
    trail: AuditTrail,
    signal: AbortSignal,
  ): Promise<Decided> {
    const project = await this.projectOf(selected.project);
    const approver = this.#approverOf(project, selected.project, approval);
    const recorded = new RecordedApprover(by === undefined ? approver : decidedBy(by, approver), trail, {
      emit: () => {},
      now: () => performance.now(),
    });
    const { run, root, worker } = selected;
    return await decisionsOn(
      // The rules speak of every change: what a run may do by itself was not withheld from its project.
      { changeset: selected, toAsk: selected.changes, leftToCallers: [] },
      { run, root, worker: { name: worker } },
      { project, approver: recorded },
      signal,
    );
  }

  #approverOf(project: Project, dir: string, approval: ApplyRequest["approval"]): Approver {
    const before = this.#asked.get(dir);
    if (before !== undefined && before.approval === approval) return before.approver;
    const approver = approverFor(project, approval === "agreed" ? AGREED : approval(project));
    this.#asked.set(dir, { approver, approval });
    return approver;
  }
}

const AGREED_REASON = "the caller agreed to it without a question";

/** Takes the place of a person's answer, whatever the project's mode; its rules come first all the same. */
const AGREED: ApplyApproval = {
  approvalMode: "interactive",
  approver: {
    decide: async () => ({ outcome: "approved", scope: "once", reason: AGREED_REASON }),
  },
};

/** Names who agreed in what is recorded; a rule that decides has its own reason. */
function decidedBy(by: string, approver: Approver): Approver {
  return {
    async decide(request, signal) {
      const decision = await approver.decide(request, signal);
      return decision.reason === AGREED_REASON
        ? { ...decision, reason: `${by} applied it through the service`, by }
        : decision;
    },
  };
}
