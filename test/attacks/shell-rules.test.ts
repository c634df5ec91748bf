// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the strings are shell commands.
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { ApprovalRequest } from "../../src/approval/approver.ts";
import { HANDY, openSessionIn } from "../run/session/session-fixture.ts";

const RULES = {
  default: "blocked",
  rules: [
    { pattern: "ls **", approval: "pre_approved" },
    { pattern: "printf **", approval: "pre_approved" },
    { pattern: "cat **", approval: "pre_approved" },
    { pattern: "false", approval: "pre_approved" },
    { pattern: "rm **", approval: "blocked" },
  ],
};

const PROJECT = (worker: object) => ({
  workers: { w: { ...HANDY, ...worker } },
  zones: { docs: "ro", out: "rw" } as const,
  files: { "out/precious": "precious\n", "out/b c": "", "docs/a.txt": "a document\n" },
});

describe("a command line that says one thing to Corral and another to the shell", () => {
  it("runs nothing that no rule allows", async () => {
    await using s = await openSessionIn(PROJECT({ shell_rules: RULES }));
    for (const command of [
      "rm -v /out/precious",
      'ls "${x:-\'}"; rm -v /out/precious; ls "\'}"',
      "ls $\\\n${x:-; rm -v /out/precious; ls \\\\}",
      'ls "${x#\'}"; rm -v /out/precious; ls "\'}"',
      "ls `printf '\\`rm /out/precious\\`'`; ls $(printf 'rm /out/precious')",
      "ls <<'E' \\\nE\nrm /out/precious\nE",
      "ls $'\\'; rm /out/precious #'",
      "ls() { rm /out/precious; }; ls",
      "ls &>x rm /out/precious",
      "ls \u0085rm /out/precious",
      "\\\nrm /out/precious",
      "l\\\ns; r\\\nm /out/precious",
      "[[ a || rm /out/precious ]]",
      "case x in x) rm /out/precious;; esac",
      "f() f() f() ".repeat(2000),
    ])
      await s.exec(command).catch((error: Error) => expect(error.message, command).toMatch(/blocked/));
    expect(await readFile(join(s.project.dir, "out/precious"), "utf8")).toBe("precious\n");
  });

  it("has the exit status, the output and the input of the line as written", async () => {
    await using s = await openSessionIn(PROJECT({ shell_rules: RULES }));
    expect(await s.exec("false")).toMatchObject({ exitCode: 1 });
    expect(await s.exec("ls /nowhere")).toMatchObject({ exitCode: expect.any(Number), status: "failed" });
    expect((await s.exec("printf '%s|' /out/* \"it's\" '$HOME' ~ 2>&1 | cat")).stdout).toBe(
      "/out/b c|/out/precious|it's|$HOME|/home/worker|",
    );
    expect((await s.exec("printf 'a\\n' && ! false || printf no; if false; then ls; else printf b; fi")).stdout).toBe(
      "a\nb",
    );
    const open = { ...RULES, default: "pre_approved" };
    await using other = await openSessionIn(PROJECT({ shell_rules: open }));
    expect((await other.exec("cat; cat < /docs/a.txt", { stdin: "given\n" })).stdout).toBe("given\na document\n");
  });

  it("shows the line that will run, and runs the line that was shown", async () => {
    const asked: ApprovalRequest[] = [];
    const person = {
      decide: async (request: ApprovalRequest) => {
        asked.push(request);
        return { outcome: "approved", scope: "once", reason: "a test" } as const;
      },
    };
    await using s = await openSessionIn(PROJECT({ shell_rules: { default: "ask" } }), { person });
    expect((await s.exec('printf   "%s"   `printf 1`\\2')).stdout).toBe("12");
    expect((await s.exec('printf "${x:-\'}"; printf 2; printf "\'}"')).stdout).toBe("'2'}");
    expect(asked.map(({ command }) => command)).toEqual([
      "printf %s $(printf 1)2",
      // It cannot be printed so: it is shown and run as it was written.
      'printf "${x:-\'}"; printf 2; printf "\'}"',
    ]);
  });
});
