import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openProject, python, writable } from "../run/project-fixture.ts";

const MEBIBYTE = 1024 ** 2;

/** Writes files of 4 MiB without an end, and hides each from whoever adds up what is there. */
const HIDING: readonly (readonly [string, string])[] = [
  [
    "on their way from one process to another",
    `
import itertools, os, socket
sockets = []
for i in itertools.count():
    file = written(i)
    if i % 8 == 0: sockets.append(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
    socket.send_fds(sockets[-1][0], [b"x"], [file.fileno()]); file.close()`,
  ],
  [
    "among descriptors that come and go",
    `
import itertools, os, threading
def churn():
    while True:
        for fd in [os.open("/dev/null", os.O_RDONLY) for _ in range(50)]: os.close(fd)
threading.Thread(target=churn, daemon=True).start()
held = [written(i) for i in itertools.count()]`,
  ],
  [
    "in processes of their own",
    `
import itertools, os, time
for i in itertools.count():
    if os.fork() == 0:
        file = written(i); time.sleep(60)
    time.sleep(0.05)`,
  ],
  [
    "below folders that nobody may look into",
    `
import itertools, os
for i in itertools.count():
    os.mkdir(f"d{i}"); written(f"d{i}/f", False); os.chmod(f"d{i}", 0)`,
  ],
  [
    "in a folder deeper than any path",
    `
import itertools, os
for i in itertools.count():
    os.mkdir("d" * 200); os.chdir("d" * 200); written(i, False)`,
  ],
  [
    "under names that are no text",
    `
import itertools, os
for i in itertools.count(): written(f"\\udcff\\n{i}", False)`,
  ],
];

const WRITTEN = `
import os
os.chdir("/data")
def written(name, hide=True):
    file = open(f"{name}", "wb"); file.write(os.urandom(1 << 20) * 4); file.flush()
    if hide: os.unlink(f"{name}")
    else: file.close()
    return file
`;

describe.each([
  ["a directory", writable("data")],
  ["a staged directory", { name: "data", mode: "rw" }],
])("a worker that fills %s", (_, zone) => {
  it.each(HIDING)("with files %s is ended", async (_where, script) => {
    const command = python(WRITTEN + script);
    const worker = { image: "corral/python", command, sandbox: { zones: [zone] }, limits: { disk: "16m" } };
    const spec = { workers: { w: worker }, zones: { data: "rw" } as const };
    await using project = await openProject(spec, { approvalMode: "approve_all" });
    expect(await project.run("w")).toMatchObject({ status: "disk_limit" });
    const used = execFileSync("du", ["-sm", join(project.dir, "data"), project.stateDir], { encoding: "utf8" });
    const taken = used.split("\n").reduce((sum, line) => sum + (Number.parseInt(line, 10) || 0), 0);
    expect(taken * MEBIBYTE).toBeLessThan(40 * 16 * MEBIBYTE);
    expect(await project.traces()).toEqual([]);
  });
});
