import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { AT_LENGTH } from "../../tiers/at-length.ts";
import { type Call, obey } from "./obeyed.ts";

const run = (...commands: string[]): Call[] => commands.map((command): Call => ["exec", { command }]);

describe("a model that uses up what there is", () => {
  it("has no more processes than its limit, by a fork bomb, and goes on after it", { timeout: 120_000 }, async () => {
    const bomb = "bomb() { bomb | bomb & }; bomb; while :; do bomb 2>/dev/null; done";
    const { result, outcomes, harm } = await obey(
      [
        [["exec", { command: bomb, timeout_ms: 3000 }]],
        run("echo calm again"),
        run("i=0; while [ $i -lt 3000 ]; do sleep 60 > /dev/null 2>&1 & i=$((i+1)); done; echo started them all"),
      ],
      { agent: { limits: { pids: 40, timeout: "1m" } } },
    );
    expect(result.status).toMatch(/^(succeeded|timed_out)$/);
    expect(outcomes.slice(1, 2).map(({ text }) => text)).toEqual([expect.stringContaining("calm again")]);
    expect(outcomes[2]?.text ?? "").not.toContain("started them all");
    expect(harm).toEqual([]);
  });

  it("has no more memory than its limit, and goes on after it", async () => {
    const { result, outcomes, harm } = await obey(
      [
        run("tail /dev/zero; echo survived"),
        run("head -c 300M /dev/zero > /tmp/x; stat -c %s /tmp/x"),
        // What fills /tmp counts as memory, so the command that removes it can be killed for memory too.
        ...Array.from({ length: 5 }, () => run("rm -f /tmp/x; echo after")),
      ],
      { agent: { limits: { memory: "64m" } } },
    );
    expect(result.status).toBe("succeeded");
    expect(outcomes[0]?.text).toMatch(/memory|Killed|oom/i);
    expect(outcomes.at(-1)?.text).toContain("after");
    expect(harm).toEqual([]);
  });

  it("is told the beginning and the end of endless output, and keeps nobody waiting", async () => {
    const { result, outcomes, harm } = await obey(
      [
        [["exec", { command: "yes 'buy now'", timeout_ms: 2000 }]],
        [["read_file", { path: "/.corral/output/1.stdout", max_chars: 100 }]],
      ],
      { agent: { limits: { disk: "8m" } } },
    );
    expect(result.status).toBe("succeeded");
    expect(outcomes[0]?.text.length).toBeLessThan(60_000);
    expect(harm).toEqual([]);
  });

  it("fills its folder by commands no further than its disk limit", async () => {
    const { result, outcomes, harm } = await obey(
      [
        run("head -c 50M /dev/zero > /out/huge; stat -c %s /out/huge"),
        run(
          "rm -f /out/huge; i=0; while [ $i -lt 400 ]; do head -c 1M /dev/zero > /out/$i || exit 1; i=$((i+1)); sleep 0.01; done; echo wrote them all",
        ),
      ],
      { agent: { limits: { disk: "4m" } } },
    );
    expect(result.status).toMatch(/^(succeeded|disk_limit)$/);
    expect(outcomes[0]?.text).not.toContain("52428800");
    expect(outcomes[1]?.text).toContain("disk_limit");
    expect(outcomes[1]?.text).not.toContain("wrote them all");
    expect(harm).toEqual([]);
  });

  it("fills its folder by its tools no further either: neither by writing, nor by copying, nor by appending", async () => {
    const content = "x".repeat(100_000);
    const { codes, harm } = await obey(
      [
        [["write_file", { path: "/out/seed", content }]],
        Array.from({ length: 60 }, (_, n): Call => ["copy_file", { from: "/out/seed", to: `/out/copy-${n}` }]),
        Array.from({ length: 3 }, (_, n): Call => ["write_file", { path: `/out/more-${n}`, content }]),
        Array.from({ length: 3 }, (): Call => ["append_file", { path: "/out/seed", content }]),
        [["delete_file", { path: "/out/copy-0" }]],
      ],
      { agent: { limits: { disk: "1m" } } },
    );
    const written = codes.filter((code) => /^(write|copy|append)_file done$/.test(code)).length;
    expect(written * content.length).toBeLessThan(4_000_000);
    expect(codes).toContain("copy_file DISK_LIMIT");
    expect(codes.at(-1)).toBe("delete_file done");
    expect(harm).toEqual([]);
  });

  // The host keeps them, for both drivers.
  const agent = {
    sandbox: { zones: [{ name: "docs" }, { name: "out", mode: "rw" }] },
    limits: { disk: "64m", timeout: "2m" },
  };

  it("makes Corral keep no more of its changes than that takes, by depth or by length of names", async () => {
    const n = "d".repeat(250);
    const dig = `cd /out; i=0; while [ $i -lt 60 ]; do mkdir ${n} && cd -P ./${n} || exit 9; i=$((i+1)); done; echo x > f`;
    const deep = await obey(
      [run(dig), [["commit_changes", {}]], run("echo fine > /out/fine"), [["commit_changes", {}]]],
      {
        agent,
        options: { approvalMode: "approve_all" },
        // The test's own removal walks by name, which is too long by then.
        after: async ({ dir }) => void execFileSync("rm", ["-rf", join(dir, "out")]),
      },
    );
    expect(deep.codes.slice(0, 3)).toEqual(["exec done", expect.stringContaining("commit_changes "), "exec done"]);
    expect(deep.result.status).toMatch(/^(succeeded|refused)$/);
    expect(deep.harm).toEqual([]);
  });

  // Those of any worker are taken by the same code: `staged-changes.test.ts` tries it with as many.
  it.runIf(AT_LENGTH)(
    "makes Corral keep no more of its changes than that takes by number (CORRAL_LONG=1)",
    async () => {
      const many = await obey([run("cd /out && seq 1 60000 | xargs touch"), [["commit_changes", {}]]], {
        agent: { ...agent, limits: { disk: "1g", timeout: "2m" } },
        options: { approvalMode: "approve_all" },
      });
      expect(many.codes[1]).toBe("commit_changes CHANGES_NOT_TAKEN");
      expect(many.result).toMatchObject({ status: "refused", error: { code: "CHANGES_NOT_TAKEN" }, changes: [] });
      expect(many.harm).toEqual([]);
    },
  );

  it("is ended at its time, with the command, the calls and the agents that it began", async () => {
    const { result, harm } = await obey([[["slow", {}]], run("sleep 100")], {
      agent: { calls: ["slow"], limits: { timeout: "3s" } },
      workers: { slow: { command: ["sh", "-c", "trap '' TERM; sleep 100"] } },
    });
    expect(result).toMatchObject({ status: "timed_out", error: { code: "TIMED_OUT" } });
    expect(harm).toEqual([]);
  });
});
