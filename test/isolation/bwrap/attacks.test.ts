import fs from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { kernelText } from "../../../src/isolation/kernel/control-group.ts";
import { absence, openBwrapHere } from "./bwrap.ts";

const absent = await absence();

/** Words of Perl, which every Debian has. Numbers of calls are those of x86-64. */
const IN_PERL = `
sub told { my ($what, $result) = @_; print "$what: ", ($result == -1 ? 0 + $! : "done"), "\\n" }
told("unshare", syscall(272, 0x10000000));
told("mount", syscall(165, 0, 0, 0, 0, 0));
told("ptrace", syscall(101, 16, 1, 0, 0));
told("keyctl", syscall(250, 0, -3, 0));
told("bpf", syscall(321, 0, 0, 0));
told("packet socket", syscall(41, 17, 3, 0));
told("io_uring", syscall(425, 1, 0));
told("clone3", syscall(435, 0, 0));
for my $file ("/proc/1/mem", "/proc/1/environ", "/proc/keys", "/proc/sys/kernel/core_pattern", "/usr/x", "/etc/x", "/x", "/dev/x") {
  told("write $file", open(my $f, "+>>", $file) ? 0 : -1);
}
told("read $_", open(my $f, "<", $_) ? 0 : -1) for "/proc/1/mem", "/proc/1/environ", "/etc/shadow", "/root", "/var/lib", "/sys/kernel";
my $children = 0;
for (1 .. 400) { my $child = fork; last unless defined $child; if ($child == 0) { sleep 20; exit } $children += 1 }
print "children: $children\\n";
`;

describe.skipIf(absent !== null || process.arch !== "x64")("a cell of bubblewrap", () => {
  let here: Awaited<ReturnType<typeof openBwrapHere>>;
  beforeAll(async () => {
    here = await openBwrapHere();
  });
  afterAll(() => here[Symbol.asyncDispose]());

  const ran = async (script: string, input = ""): Promise<{ readonly text: string; readonly code: number | null }> => {
    const { plan, pins } = await here.plan({ command: ["sh", "-c", script] });
    let text = "";
    const onOutput = (_: string, chunk: Buffer): void => {
      text += chunk.toString();
    };
    const started = await here.driver.start({ plan, pins, onOutput, signal: new AbortController().signal });
    if (!started.ok) throw new Error(JSON.stringify(started.violations));
    await using cell = started.cell;
    cell.release(Buffer.from(input));
    const exit = await cell.exit;
    return { text, code: exit.kind === "exited" ? exit.code : null };
  };

  it("gives no call, file, process or right beyond its plan", async () => {
    const { text } = await ran(`perl -e '${IN_PERL}' 2>&1`);
    const told = new Map(text.split("\n").map((line) => line.split(": ") as [string, string]));
    const [EPERM, ENOENT, EACCES, EROFS, ENOSYS] = ["1", "2", "13", "30", "38"];
    for (const call of ["unshare", "mount", "ptrace", "keyctl", "bpf", "packet socket"])
      expect(told.get(call), call).toBe(EPERM);
    for (const call of ["io_uring", "clone3"]) expect(told.get(call), call).toBe(ENOSYS);
    for (const path of ["/usr/x", "/etc/x", "/x", "/dev/x"]) expect(told.get(`write ${path}`), path).toBe(EROFS);
    for (const file of ["/proc/1/mem", "/proc/1/environ"])
      for (const how of ["read", "write"]) expect(told.get(`${how} ${file}`), file).toBe(EACCES);
    expect(told.get("write /proc/keys")).toBe(EACCES);
    expect(told.get("write /proc/sys/kernel/core_pattern")).toMatch(/^(13|30)$/);
    for (const path of ["/etc/shadow", "/root", "/var/lib", "/sys/kernel"])
      expect(told.get(`read ${path}`), path).toBe(ENOENT);
    // All of its processes together have its limit: the first one, the shell and Perl are among them.
    const children = Number(told.get("children"));
    expect(children).toBeGreaterThan(here.untrusted.defaultLimits.pids - 10);
    expect(children).toBeLessThan(here.untrusted.defaultLimits.pids);
  });

  it("has three streams, a loopback device, no capability, and memory in which nothing is executed", async () => {
    const script = [
      "ls /proc/self/fd | wc -l; echo said > /dev/stdout",
      "grep -c : /proc/net/dev; grep -c 'Cap...:.0000000000000000' /proc/self/status",
      "cp /usr/bin/true /tmp/t; /tmp/t 2> /dev/null; echo ran $?; cp /usr/bin/true /dev/shm/t; /dev/shm/t 2> /dev/null; echo ran $?",
      "head -c 70000000 /dev/zero > /dev/shm/full 2> /dev/null; stat -c %s /dev/shm/full",
      `perl -e '$x = "a" x (900 << 20)' 2> /dev/null; echo memory $?`,
    ].join("\n");
    const { text } = await ran(script);
    // `ls` has one more descriptor: the directory that it lists.
    expect(text.split("\n")).toEqual([
      ...["4", "said", "1", "5", "ran 126", "ran 126"],
      expect.stringMatching(/^6[67]\d{6}$/),
      expect.stringMatching(/^memory (1|12|255)$/),
      "",
    ]);
  });

  it("changes nothing that a cell beside it has, and ends with what started it", async () => {
    const begin = async (script: string) => {
      const { plan, pins } = await here.plan({ command: ["sh", "-c", script] });
      let text = "";
      const onOutput = (_: string, chunk: Buffer): void => {
        text += chunk.toString();
      };
      const started = await here.driver.start({ plan, pins, onOutput, signal: new AbortController().signal });
      if (!started.ok) throw new Error(JSON.stringify(started.violations));
      started.cell.release(Buffer.alloc(0));
      return { cell: started.cell, said: () => text };
    };
    const tries = [
      ...["echo x > /etc/hosts", "echo x > /dev/x", "rm /etc/passwd", "mv /etc/group /etc/g", "chmod 0 /etc/passwd"],
      ...["rm /dev/null", "touch /etc/hosts /dev /", "ln -s / /etc/l", "echo x > /proc/acpi/x", "echo x > /dev/shm/x"],
    ];
    const one = await begin(
      `for all in ${tries.map((each) => `'${each}'`).join(" ")}; do (eval "$all") 2> /dev/null && echo "$all"; done; echo done; sleep 100`,
    );
    await expect.poll(one.said, { timeout: 10_000 }).toContain("done");
    const other = await begin("ls -A /dev/shm; ls -la /etc /dev | sha256sum; sleep 100");
    const third = await begin("ls -la /etc /dev | sha256sum");
    await third.cell.exit;
    expect(one.said()).toBe("echo x > /dev/shm/x\ndone\n");
    await expect.poll(other.said, { timeout: 10_000 }).toBe(third.said());
    const launchers = fs.readdirSync("/proc").filter((pid) => {
      const [, name, , parent] = (kernelText(`/proc/${pid}/stat`) ?? "").split(" ");
      return name === "(bwrap)" && parent === String(process.pid);
    });
    for (const pid of launchers) process.kill(Number(pid), "SIGKILL");
    for (const { cell } of [one, other]) expect(await cell.exit).toMatchObject({ kind: "lost" });
    for (const { cell } of [one, other, third]) await cell[Symbol.asyncDispose]();
    expect(await ran("echo again")).toMatchObject({ text: "again\n" });
  });

  it("reads nothing that was for a cell before it, whose pipes it has", async () => {
    for (let time = 0; time < 3; time += 1) {
      expect(await ran("exec 2>&-; echo one; sleep 0.1 & exit 3", "for another cell\n".repeat(1000))).toEqual({
        text: "one\n",
        code: 3,
      });
      expect(await ran("cat; echo two >&2")).toEqual({ text: "two\n", code: 0 });
    }
    expect(
      new Set(
        fs
          .readdirSync(join(here.dir, "pipes"), { recursive: true })
          .filter((name) => name.toString().endsWith(".start")),
      ).size,
    ).toBe(1);
  });

  it("keeps its pipes if the same process closes the same state directory elsewhere", async () => {
    const other = here.driverOf(here.maker);
    const { plan, pins } = await here.plan({ command: ["true"] });
    const started = await other.start({ plan, pins, onOutput: () => {}, signal: new AbortController().signal });
    if (!started.ok) throw new Error(JSON.stringify(started.violations));
    await started.cell[Symbol.asyncDispose]();
    expect(await ran("echo before")).toMatchObject({ text: "before\n" });
    await other.removeLeft();
    expect(await ran("echo after")).toMatchObject({ text: "after\n" });
  });

  it("is refused, with all reasons, if its plan asks for what is not enforced", async () => {
    const { plan, pins } = await here.plan({ command: ["true"], policy: here.untrusted });
    const asked = { ...plan, network: "open" as const, hardening: { ...plan.hardening, capabilities: ["CAP_KILL"] } };
    const signal = new AbortController().signal;
    const started = await here.driver.start({ plan: asked, pins, signal, onOutput: () => {} });
    expect(started).toMatchObject({ ok: false, violations: [{ code: "ENFORCEMENT_MISSING" }] });
    const text = JSON.stringify(started);
    for (const reason of ["the open network", "keeps capabilities", "limit_scope: process"])
      expect(text).toContain(reason);
    expect(await here.traces(plan.run)).toEqual([]);
  });
});
