import { chown, mkdir, rename, rm, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { ToolResult } from "../../src/tools/tool.ts";
import { makeHostFolder } from "../run/grants/host-folder.ts";
import { type Person, personWho } from "../run/grants/person.ts";
import { WORKER_UID } from "../run/project-fixture.ts";
import { openSessionIn, type SessionFixture } from "../run/session/session-fixture.ts";

let host = "";
let opened: SessionFixture | null = null;

beforeEach(async () => {
  host = await makeHostFolder();
  for (const path of ["src/a", "secret/key"]) {
    await mkdir(dirname(join(host, path)), { recursive: true });
    await writeFile(join(host, path), `${path}\n`);
    for (const each of [path, dirname(path)]) await chown(join(host, each), WORKER_UID, WORKER_UID);
  }
});

afterEach(async () => {
  await opened?.[Symbol.asyncDispose]();
  opened = null;
  await rm(host, { recursive: true, force: true });
});

/** A worker that may ask for anything, of a person who always agrees: what is refused, no agreement would help. */
async function open(person: Person = personWho("session"), sandbox: object = {}): Promise<SessionFixture> {
  const worker = {
    command: ["true"],
    sandbox: { dynamic: true, ...sandbox },
    shell_rules: { default: "pre_approved" },
  };
  opened = await openSessionIn(
    { workers: { w: worker }, zones: { inbox: "ro", out: "rw" }, files: { "inbox/a": "a\n" } },
    { person },
  );
  return opened;
}

function textOf(result: ToolResult): string {
  return result.ok ? result.text : `${result.code}: ${result.message}`;
}

describe("what is never granted, whoever agrees", () => {
  it.each(["/", "/etc/passwd", "/proc/self/environ", "/sys/kernel", "/dev/sda", "/boot/x", "/root/.ssh/id", "/run/x"])(
    "is %s",
    async (path) => {
      const person = personWho("session");
      const s = await open(person);
      for (const [tool, more] of [
        ["read_file", {}],
        ["write_file", { content: "x" }],
      ] as const) {
        expect(textOf(await s.tool(tool, { path, ...more }))).toMatch(
          /^(GRANT_RESERVED|GRANT_SOURCE|FILE_SYSTEM|PATH_)/,
        );
      }
      expect(person.asked).toEqual([]);
    },
  );

  it("is Corral's own state, a directory around it, and writing to the project's own files", async () => {
    const person = personWho("session");
    const s = await open(person);
    // The fixture's project and state lie where nothing can be granted at all, so the rules are asked by themselves.
    const paths = [s.project.stateDir, dirname(s.project.stateDir), join(s.project.dir, "workers")];
    for (const path of paths) {
      expect(textOf(await s.tool("write_file", { path: `${path}/x`, content: "" }))).toMatch(/^GRANT_/);
    }
    expect(person.asked).toEqual([]);
  });
});

describe("a link that a worker plants in a directory that it was granted", () => {
  it("leads no tool and no command out of it", async () => {
    const s = await open();
    const src = join(host, "src");
    await s.tool("write_file", { path: `${src}/b`, content: "" });
    const planted = `ln -s ${host}/secret ${src}/abs; ln -s ../secret ${src}/rel; ln -s ../secret/key ${src}/file`;
    await s.exec(planted);
    for (const path of ["abs/key", "rel/key", "file"]) {
      expect(textOf(await s.tool("read_file", { path: `${src}/${path}` }))).toMatch(/^FILE_SYSTEM/);
      expect((await s.exec(`cat ${src}/${path}`)).stdout).toBe("");
      expect(textOf(await s.tool("write_file", { path: `${src}/${path}`, content: "x" }))).toMatch(/^FILE_SYSTEM/);
    }
    expect(textOf(await s.tool("commit_changes", {}))).not.toMatch(/secret\/key: .*applied/);
  });

  it("is no directory that could be asked for", async () => {
    const person = personWho("session");
    const s = await open(person);
    await symlink("secret", join(host, "link"));
    expect(textOf(await s.tool("read_file", { path: join(host, "link/key") }))).toMatch(/^GRANT_NO_DIRECTORY/);
    expect(person.asked).toEqual([]);
  });

  it("in the place of the directory itself leads nowhere: neither for tools nor for the next container", async () => {
    const s = await open();
    const src = join(host, "src");
    await s.tool("read_file", { path: `${src}/a` });
    await rename(src, join(host, "was"));
    await symlink("secret", src);
    await expect(s.exec(`cat ${src}/key`)).rejects.toMatchObject({ code: "MOUNT_SOURCE_REFUSED" });
    expect(textOf(await s.tool("read_file", { path: `${src}/key` }))).not.toContain("secret/key\n");
  });
});

describe("a directory that the project names, asked for by its place on the host", () => {
  it("is in /tmp here, where nothing is granted, and keeps the project's limits anywhere", async () => {
    // Its limits are in test/run/grants/judge.test.ts; that no text tells the host's place is what is shown here.
    const s = await open(personWho("no"));
    const told = textOf(await s.tool("read_file", { path: "/inbox/a" }));
    expect(told).toMatch(/^APPROVAL_DENIED/);
    expect(told).not.toContain(s.project.dir);
  });
});

// Each is answered on the host.
describe("a worker that asks again and again", () => {
  it("is not asked about for ever", async () => {
    const person = personWho("no");
    const s = await open(person);
    let last = "";
    for (let times = 0; times < 501; times += 1) last = textOf(await s.tool("read_file", { path: "/inbox/a" }));
    expect(person.asked).toHaveLength(500);
    expect(last).toMatch(/^GRANT_LIMIT/);
  });
});

describe("refusals", () => {
  it("do not tell whether something exists where the worker may not ask", async () => {
    const s = await open(personWho("session"), { dynamic: { within: [join(host, "src")] } });
    const told = async (path: string) =>
      textOf(await s.tool("read_file", { path: join(host, path) })).replaceAll(path, "");
    expect(await told("secret/key")).toBe(await told("secret/none"));
    expect(await told("secret/key")).toBe(await told("none/none"));
    expect(textOf(await s.tool("read_file", { path: join(host, "src/a") }))).toContain("src/a\n");
  });
});
