import { describe, expect, it } from "vitest";
import { type ApprovalRequest, approveAll, autoDeny, noTerminal } from "../../src/approval/approver.ts";
import { type ApprovalRule, ruledApprover, ruling } from "../../src/approval/rules.ts";
import type { Project } from "../../src/declarations/project.ts";
import { approverFor } from "../../src/run/open/options.ts";

const never = new AbortController().signal;
const request = (more: Partial<ApprovalRequest> = {}): ApprovalRequest => {
  return { run: "r", root: "r", worker: "extract-text", operations: ["write"], paths: ["/text/a.md"], ...more };
};
/** `approve`, `deny`, or `-` where no rule speaks of it. */
function said(rules: readonly ApprovalRule[], more: Partial<ApprovalRequest> = {}): string {
  const decision = ruling(rules)(request(more));
  if (decision === null) return "-";
  return decision.outcome === "approved" ? "approve" : "deny";
}
const exec = (command: string, more: Partial<ApprovalRequest> = {}) => {
  return { operations: ["exec"], paths: [], command, ...more } satisfies Partial<ApprovalRequest>;
};
const approve = (rule: Omit<ApprovalRule, "decide">) => ({ ...rule, decide: "approve" }) as const;
const deny = (rule: Omit<ApprovalRule, "decide">) => ({ ...rule, decide: "deny" }) as const;

describe("rules", () => {
  it("decide in their order: the first that speaks of a request wins", () => {
    const text = approve({ paths: ["/text/**"] });
    const all = deny({});
    expect(said([text, all])).toBe("approve");
    expect(said([all, text])).toBe("deny");
    expect(said([text, all], { paths: ["/other/a"] })).toBe("deny");
    expect(said([text], { paths: ["/other/a"] })).toBe("-");
    expect(said([])).toBe("-");
  });

  it("come before the mode, whatever it is; what they do not speak of is the mode's to decide", async () => {
    const rules = [approve({ paths: ["/text/**"] }), deny({ paths: ["/secret/**"] })];
    const outcomes = async (path: string) =>
      await Promise.all(
        [noTerminal, approveAll, autoDeny].map(
          async (mode) => (await ruledApprover(rules, mode).decide(request({ paths: [path] }), never)).outcome,
        ),
      );
    expect(await outcomes("/text/a")).toEqual(["approved", "approved", "approved"]);
    expect(await outcomes("/secret/a")).toEqual(["denied", "denied", "denied"]);
    expect(await outcomes("/other/a")).toEqual(["denied", "approved", "denied"]);
  });

  it("that deny say which they are, and why", () => {
    const rules = [approve({ worker: "x", paths: ["/**"] }), deny({ why: "nothing is kept here" })];
    expect(ruling(rules)(request())).toEqual({
      outcome: "denied",
      scope: "once",
      reason: "rule 2 of the project's approval rules denies it: nothing is kept here",
    });
  });

  it("speak of workers by glob", () => {
    const rule = [deny({ worker: "extract-*" })];
    expect(said(rule)).toBe("deny");
    expect(said(rule, { worker: "other" })).toBe("-");
    expect(said(rule, { worker: "my-extract-text" })).toBe("-");
  });
});

describe("a rule that approves", () => {
  it("must speak of every operation", () => {
    const rule = [approve({ operations: ["write"], paths: ["/text/**"] })];
    expect(said(rule)).toBe("approve");
    expect(said(rule, { operations: ["write", "delete"] })).toBe("-");
    expect(said(rule, { operations: [] })).toBe("-");
  });

  it("must speak of every path, and needs one", () => {
    const rule = [approve({ paths: ["/text/**", "/notes/*.md"] })];
    expect(said(rule, { paths: ["/text/a", "/text", "/text/.b/c", "/notes/x.md"] })).toBe("approve");
    for (const path of ["/text-evil/a", "/notes/x/y.md", "/notes", "/", "/text/../etc/a", "/text//a", "text/a"])
      expect(said(rule, { paths: ["/text/a", path] }), path).toBe("-");
    expect(said(rule, { paths: [] })).toBe("-");
  });

  it("speaks of a grant by the directory that is asked for", () => {
    const rule = [approve({ operations: ["grant_read"], paths: ["/home/me/docs", "/home/me/docs/**"] })];
    const grant = (directory: string) =>
      ({ operations: ["grant_read"], paths: ["/home/me/docs/a.md"], directory }) as const;
    expect(said(rule, grant("/home/me/docs"))).toBe("approve");
    expect(said(rule, grant("/home/me"))).toBe("-");
    expect(said(rule, { operations: ["grant_read"], paths: ["/home/me/docs/a.md"] })).toBe("-");
    expect(said(rule, { ...grant("/home/me/docs"), operations: ["grant_read", "grant_write"] })).toBe("-");
  });

  it("speaks of a host by what an allow list would say", () => {
    const rule = [approve({ operations: ["grant_network"], hosts: ["*.example.org:443", "db.corp:*"] })];
    const reach = (to: string) => ({ operations: ["grant_network"], paths: [], to }) as const;
    for (const to of ["api.example.org:443", "a.b.example.org:443", "db.corp:5432"])
      expect(said(rule, reach(to)), to).toBe("approve");
    for (const to of ["example.org:443", "api.example.org:80", "api.example.org.evil.test:443", "evil.test:443"])
      expect(said(rule, reach(to)), to).toBe("-");
    expect(said(rule, { operations: ["grant_network"], paths: [] })).toBe("-");
    expect(said([approve({ paths: ["/**"] })], reach("api.example.org:443"))).toBe("-");
    expect(said([approve({ hosts: ["api.example.org:443"] })], { paths: ["/text/a"] })).toBe("-");
    const denied = [
      deny({ hosts: ["*.example.org:*"] }),
      approve({ operations: ["grant_network"], hosts: ["*.org:443"] }),
    ];
    expect(said(denied, reach("api.example.org:443"))).toBe("deny");
    expect(said(denied, reach("example.org:443"))).toBe("approve");
  });

  it("speaks of a whole command line, not of its beginning", () => {
    const rule = [approve({ command: "git log **" })];
    expect(said(rule, exec("git log -3"))).toBe("approve");
    for (const other of [
      "git log; rm -rf /text",
      "git log $(rm a)",
      "git log > /text/a",
      "git logs",
      "X=1 git log",
      "eval git log",
    ])
      expect(said(rule, exec(other)), other).toBe("-");
    expect(said(rule, exec("git log\n(in '/evil')", { line: "git log" }))).toBe("-");
    expect(said(rule)).toBe("-");
  });
});

describe("a rule that denies", () => {
  const behind = approve({ paths: ["/**"] });

  it("cannot be got round by asking for more at once", () => {
    const rules = [deny({ operations: ["delete"], paths: ["/text/keep/**"] }), behind];
    expect(said(rules, { operations: ["write", "delete"], paths: ["/text/a", "/text/keep/b"] })).toBe("deny");
    expect(said(rules, { operations: ["delete"], paths: ["/text/a"] })).toBe("approve");
    expect(said(rules, { operations: ["write"], paths: ["/text/keep/b"] })).toBe("approve");
  });

  it("cannot be got round by asking for a directory above", () => {
    const rules = [deny({ paths: ["/home/*/.ssh/**"] }), behind];
    const grant = (directory: string) => ({ operations: ["grant_read"], paths: [], directory }) as const;
    for (const directory of ["/home/me/.ssh", "/home/me/.ssh/keys", "/home/me", "/home"])
      expect(said(rules, grant(directory)), directory).toBe("deny");
    expect(said(rules, grant("/home/me/docs"))).toBe("approve");
    expect(said(rules, grant("/home-evil"))).toBe("approve");
  });

  it("speaks of all below what it names, and of paths that cannot be read", () => {
    const rules = [deny({ paths: ["/secret"] }), behind];
    for (const path of ["/secret", "/secret/a/b", "/x/../secret", "\n"])
      expect(said(rules, { paths: [path] }), path).toBe("deny");
    expect(said(rules, { paths: ["/secret-not"] })).toBe("approve");
  });

  it("speaks of a command anywhere in the line, and of what cannot be read", () => {
    const rules = [deny({ command: "git push **" }), approve({ operations: ["exec"] })];
    for (const line of [
      "git push origin",
      "ls; git push",
      "ls && (git push)",
      "eval $x",
      "echo $(git push)",
      "/usr/bin/git push",
    ])
      expect(said(rules, exec(line)), line).toBe("deny");
    expect(said(rules, exec("git status"))).toBe("approve");
    expect(said(rules, exec("ls\n(in '/docs')", { line: "ls" }))).toBe("approve");
    expect(said(rules)).toBe("-");
  });
});

describe("the modes", () => {
  it("approve_all covers neither grants nor pushes, and says so", async () => {
    for (const operation of ["grant_read", "grant_write", "push"] as const) {
      const decision = await approveAll.decide(request({ operations: ["write", operation] }), never);
      expect(decision).toMatchObject({ outcome: "denied", reason: expect.stringContaining("approve_all") });
      const ruled = ruledApprover([approve({ operations: [operation], paths: ["/text/**"] })], approveAll);
      const directory = "/text/sub";
      expect((await ruled.decide(request({ operations: [operation], directory }), never)).outcome).toBe("approved");
    }
    expect(await approveAll.decide(request({ operations: ["write", "delete", "exec"] }), never)).toMatchObject({
      outcome: "approved",
      scope: "session",
    });
  });

  it("interactive without anybody to ask denies, and says so", async () => {
    expect(await noTerminal.decide(request(), never)).toMatchObject({
      outcome: "denied",
      reason: expect.stringContaining("no terminal"),
    });
    expect(
      await approverFor(
        { approval: { mode: "interactive", timeoutMs: 1000, rules: [] } } as unknown as Project,
        {},
      ).decide(request(), never),
    ).toMatchObject({
      outcome: "denied",
      reason: expect.stringMatching(/no approver is set; set `approver`/),
    });
  });
});
