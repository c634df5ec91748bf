import { chown, readdir, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { collectState } from "../../src/operations/stored/stored-state.ts";
import { statePaths } from "../../src/state/state-dir.ts";
import { openProject, type ProjectFixture, python, sh, writable } from "./project-fixture.ts";

/* The cell's user is the owner of what it may write: any number, which its image need not name. */

const ABOUT = `import getpass, grp, json, os, pwd, socket
me = pwd.getpwuid(os.getuid())
open(os.environ["HOME"] + "/mine", "w").write("x")
print(json.dumps({"uid": os.getuid(), "same": getpass.getuser() == me.pw_name, "home": me.pw_dir,
  "group": grp.getgrgid(os.getgid()).gr_gid, "root": pwd.getpwnam("root").pw_uid,
  "address": socket.gethostbyname(socket.gethostname())}))`;
const NODE = `const { userInfo, hostname } = require("node:os");
require("node:dns").lookup(hostname(), (error, address) => console.log(JSON.stringify({ name: userInfo().username, uid: userInfo().uid, address })))`;
const OFFICE = `cd /tmp && printf 'a,b\\n1,2\\n' > t.csv && soffice --headless --convert-to pdf t.csv >/dev/null 2>&1; head -c 5 t.pdf; id -un`;

const sandbox = { zones: [writable("out")] };
const limits = { timeout: "2m", memory: "800m" };
const workers = {
  about: { command: python(ABOUT), image: "corral/python", output: "json", sandbox },
  node: { command: ["node", "-e", NODE], image: "corral/node", output: "json", sandbox },
  office: { command: sh(OFFICE), image: "corral/documents", sandbox, limits },
  names: { command: sh("cat /etc/passwd; getent hosts $(hostname)"), sandbox },
};

describe.each(["engine", "prefer-runc"])("the user of a cell of %s", (driver) => {
  let project: ProjectFixture;
  beforeAll(async () => {
    const engineEnv = { ...process.env, CORRAL_DRIVER: driver };
    project = await openProject({ workers, zones: { out: "rw" }, policy: "default" }, { engineEnv });
  });
  afterAll(() => project[Symbol.asyncDispose]());

  it.each([0, 1000, 1001, 65532, 2 ** 31 - 1])(
    "has a name, a group and a home for uid %d, and its host an address",
    async (id) => {
      await chown(join(project.dir, "out"), id, id);
      const { output, stderr } = await project.run("about");
      expect(output, stderr).toMatchObject({ uid: id, same: true, group: id, root: 0, address: "127.0.0.1" });
      if (id === 1001) {
        expect((await project.run("node")).output).toEqual({ name: "worker", uid: id, address: "127.0.0.1" });
        expect(await project.run("office")).toMatchObject({ status: "succeeded", stdout: "%PDF-worker\n" });
      }
      const cell = project.events.findLast((event) => event.type === "started");
      expect(cell?.type === "started" && cell.driver).toBe(driver === "engine" ? "engine" : "runc");
    },
  );

  it("is refused in words before anything starts if its number is above what engines take", async () => {
    await chown(join(project.dir, "out"), 3_000_000_000, 3_000_000_000);
    const result = await project.run("about");
    expect(result).toMatchObject({ status: "refused", violations: [{ code: "USER_NOT_ALLOWED" }] });
    expect(result.error?.message).toContain("user 3000000000 and group 3000000000");
    expect(result.error?.message).toContain("numbers up to 2147483647");
  });

  it("cannot change its name, and cells share the file, which is made again if it is another, and gc removes if no run was given it", async () => {
    await chown(join(project.dir, "out"), 4711, 4711);
    const shared = statePaths(project.stateDir).sharedNames;
    const first = await project.run("names");
    expect(first.stdout).toMatch(/^worker:x:4711:4711:worker:\/home\/worker:\/bin\/sh$/m);
    expect(first.stdout).toMatch(/^127\.0\.0\.1\s+localhost corral$/m);
    const files = await readdir(shared);
    for (const file of files) await writeFile(join(shared, file), "root::0:0::/:/bin/sh\n");
    expect(await project.run("names")).toMatchObject({ status: "succeeded", stdout: first.stdout });
    expect((await readdir(shared)).sort()).toEqual(files.sort());
    const machine = { stateDir: project.stateDir, engineEnv: process.env };
    await collectState(machine, { dryRun: false, olderThanMs: null });
    expect(await readdir(shared)).toHaveLength(files.length);
    for (const file of files) await utimes(join(shared, file), 0, 0);
    await project.run("names");
    await collectState(machine, { dryRun: false, olderThanMs: null });
    expect(await readdir(shared)).toHaveLength(2);
    expect(await project.run("names")).toMatchObject({ status: "succeeded", stdout: first.stdout });
  });
});
