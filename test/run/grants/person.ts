import type { ApprovalRequest, Approver, Decision } from "../../../src/approval/approver.ts";

export type Answer = "once" | "tree" | "session" | "no";

/** A person who answers as the test says, and remembers what they were asked. The last answer stays. */
export interface Person extends Approver {
  readonly asked: ApprovalRequest[];
  answers: Answer[];
  /** `grant_read /inbox`, for each question. */
  questions(): string[];
}

export function personWho(...answers: Answer[]): Person {
  const asked: ApprovalRequest[] = [];
  return {
    asked,
    answers,
    questions: () => asked.map(({ operations, paths }) => `${operations.join("+")} ${paths.join(" ")}`),
    async decide(request): Promise<Decision> {
      asked.push(request);
      const answer = (this.answers.length > 1 ? this.answers.shift() : this.answers[0]) ?? "no";
      if (answer === "no") return { outcome: "denied", scope: "once", reason: "a person said no" };
      return { outcome: "approved", scope: answer, reason: "a person agreed" };
    },
  };
}
