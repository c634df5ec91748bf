import { describe, expect, it } from "vitest";
import { openProject, python, sh, writable } from "../run/project-fixture.ts";
import { isAgain } from "../tiers/again.ts";

/** What each call that makes a watcher of files answers. */
const WATCHERS = python(`
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def answer(result):
    return "made" if result >= 0 else errno.errorcode[ctypes.get_errno()]
print(answer(libc.inotify_init()), answer(libc.inotify_init1(os.O_CLOEXEC)), answer(libc.fanotify_init(0x200, 0)))`);

describe("watchers of files, which the kernel counts for each user number", () => {
  it.each([
    ["untrusted", "ENOSYS ENOSYS EPERM\n"],
    ["batch", "ENOSYS ENOSYS EPERM\n"],
    ["default", "made made EPERM\n"],
    ["ci", "made made EPERM\n"],
  ])("under %s: a worker that makes them is answered %s", async (policy, stdout) => {
    await using project = await openProject({
      policy,
      workers: { w: { image: "corral/python", command: WATCHERS } },
    });
    expect(await project.run("w")).toMatchObject({ status: "succeeded", stdout, stderr: "" });
  });

  // The filter of system calls is the same under both drivers.
  it.skipIf(isAgain())("are not needed by tail, which looks again instead, nor by git and Node", async () => {
    const script = `
      cd /out; echo one > log; (sleep 0.5; echo two >> log; sleep 1.2; echo three >> log) &
      timeout 6 tail -f log 2> said | head -3; cat said
      git init -q . && git add log && git -c user.name=w -c user.email=w@example.org commit -qm first && git status --short
      node -e '
        const fs = require("fs");
        try { fs.watch("/out/log"); } catch (error) { console.log(error.code); }
        fs.watchFile("/out/log", { interval: 20 }, (now) => { console.log("changed to", now.size); fs.unwatchFile("/out/log"); });
        setTimeout(() => fs.writeFileSync("/out/log", ""), 100);'`;
    await using project = await openProject({
      zones: { out: "rw" },
      workers: { w: { image: "corral/node", command: sh(script), sandbox: { zones: [writable("out")] } } },
    });
    const result = await project.run("w");
    expect(`${result.stdout}${result.stderr}`.split("\n")).toEqual([
      ...["one", "two", "three"],
      "tail: inotify cannot be used, reverting to polling: Function not implemented",
      "?? said",
      "ENOSYS",
      "changed to 0",
      "",
    ]);
  });
});
