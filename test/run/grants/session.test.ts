import { chown, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { listLiveGrants, revokeLiveGrant } from "../../../src/state/live-grants.ts";
import { currentOwner } from "../../../src/state/owner.ts";
import type { ToolResult } from "../../../src/tools/tool.ts";
import { WORKER_UID } from "../project-fixture.ts";
import { openSessionIn, type SessionFixture } from "../session/session-fixture.ts";
import { makeHostFolder } from "./host-folder.ts";
import { type Person, personWho } from "./person.ts";

let opened: SessionFixture | null = null;
let host = "";

beforeEach(async () => {
  host = await makeHostFolder();
  for (const [path, text] of Object.entries({ "src/main.py": "print()\n", "docs/a.md": "docs\n" })) {
    await mkdir(dirname(join(host, path)), { recursive: true });
    await writeFile(join(host, path), text);
    for (const each of [path, dirname(path)]) await chown(join(host, each), WORKER_UID, WORKER_UID);
  }
});

afterEach(async () => {
  await opened?.[Symbol.asyncDispose]();
  opened = null;
  await rm(host, { recursive: true, force: true });
});

async function open(person: Person, sandbox: Record<string, unknown> = {}): Promise<SessionFixture> {
  const worker = {
    command: ["true"],
    sandbox: { dynamic: true, ...sandbox },
    shell_rules: { default: "pre_approved" },
  };
  opened = await openSessionIn(
    { workers: { w: worker }, zones: { inbox: "ro", out: "rw" }, files: { "inbox/2024/a.txt": "a document\n" } },
    { person },
  );
  return opened;
}

function textOf(result: ToolResult): string {
  return result.ok ? result.text : `${result.code}: ${result.message}`;
}

describe("a request for a directory, in a session with a cell", () => {
  it("asks for reading, for writing, and for the folder beside it; the cell shows what was granted", async () => {
    const person = personWho("session");
    const s = await open(person);
    const [src, docs] = [join(host, "src"), join(host, "docs")];
    expect((await s.exec(`touch /tmp/kept; cat ${src}/main.py`)).exitCode).not.toBe(0);

    const read = await s.tool("read_file", { path: `${src}/main.py` });
    expect(textOf(read)).toContain("print()\n");
    expect(textOf(read)).toContain("The next command runs in a new container");
    const seen = await s.exec(`cat ${src}/main.py; ls /tmp/kept; echo x > ${src}/new`);
    expect(seen).toMatchObject({ cellReplaced: true, stdout: "print()\n" });
    expect(seen.stderr).toMatch(/kept.*No such file/s);
    expect(seen.stderr).toMatch(/Read-only file system|cannot create/);

    expect(textOf(await s.tool("write_file", { path: `${src}/main.py`, content: "pass\n" }))).toContain("Replaced");
    expect(textOf(await s.tool("write_file", { path: `${src}/two.py`, content: "two\n" }))).toMatch(/^Created[^[]*$/);
    const wrote = await s.exec(`cat ${src}/main.py ${src}/two.py && echo three > ${src}/three.py`);
    expect(wrote).toMatchObject({ cellReplaced: true, exitCode: 0, stdout: "pass\ntwo\n" });
    expect(textOf(await s.tool("read_file", { path: `${docs}/a.md` }))).toContain("docs\n");
    expect(person.questions()).toEqual([`grant_read ${src}`, `grant_write ${src}`, `grant_read ${docs}`]);
  });

  it("asks for a deletion in what can be written", async () => {
    const person = personWho("session", "no");
    const s = await open(person);
    const src = join(host, "src");
    await s.tool("write_file", { path: `${src}/x`, content: "" });
    expect(textOf(await s.tool("delete_file", { path: `${src}/main.py` }))).toContain("APPROVAL_DENIED");
    expect(person.questions()).toEqual([`grant_write ${src}`, `delete ${src}/main.py`]);
  });

  it("asks under the project's names too, and writes nothing that the project only reads", async () => {
    const person = personWho("session");
    const s = await open(person);
    expect(textOf(await s.tool("list_files", { path: "/inbox/2024" }))).toContain("/inbox/2024/a.txt");
    expect(textOf(await s.tool("write_file", { path: "/inbox/2024/b", content: "" }))).toMatch(/^GRANT_NOT_ABOVE/);
    expect(person.questions()).toEqual(["grant_read /inbox/2024"]);
    expect((await s.exec("cat /inbox/2024/a.txt")).stdout).toBe("a document\n");
  });
});

describe("a grant", () => {
  it("for one operation is that operation's alone, and the cell stays as it is", async () => {
    const person = personWho("once");
    const s = await open(person);
    const file = join(host, "src/main.py");
    for (const _ of [1, 2])
      expect(textOf(await s.tool("read_file", { path: file }))).toContain("for this one operation");
    expect(person.questions()).toHaveLength(2);
    expect((await s.exec(`cat ${file}`)).exitCode).not.toBe(0);
  });

  it("for one operation covers both paths of a copy, and what it writes is there at once", async () => {
    const s = await open(personWho("once"));
    const [from, to] = [join(host, "src/main.py"), join(host, "docs/copy.py")];
    expect(textOf(await s.tool("copy_file", { from, to }))).toContain("Copied");
    expect(await readFile(to, "utf8")).toBe("print()\n");
  });

  it.each(["discard", "stage"])(
    "for one operation writes nothing past the side of a directory (%s: true)",
    async (side) => {
      const person = personWho("once");
      const worker = { command: ["true"], sandbox: { dynamic: true } };
      opened = await openSessionIn(
        {
          workers: { w: worker },
          zones: { checkout: "rw" },
          sandbox: { zones: { checkout: { path: "./checkout", mode: "rw", [side]: true } } },
        },
        { person },
      );
      const written = textOf(await opened.tool("write_file", { path: "/checkout/new", content: "" }));
      expect(written).toMatch(/^GRANT_FOR_ONE_OPERATION: .*staged until the end of the run/);
      expect(await readdir(join(opened.project.dir, "checkout"))).toEqual([]);
    },
  );

  it("that is denied leaves the refusal, with what may be used instead", async () => {
    const s = await open(personWho("no"), { zones: [{ name: "inbox" }] });
    const refused = textOf(await s.tool("read_file", { path: join(host, "src/main.py") }));
    expect(refused).toMatch(/^APPROVAL_DENIED: .*a person said no/);
    expect(refused).toContain("Readable paths: /inbox");
  });

  it("is not even spoken of where a worker is not dynamic", async () => {
    const person = personWho("session");
    const s = await open(person, { dynamic: false });
    const path = join(host, "src/main.py");
    expect(await s.tool("read_file", { path })).toMatchObject({ ok: false, code: "PATH_NOT_IN_SANDBOX" });
    expect(person.asked).toEqual([]);
  });

  it("is not among what approve_all approves", async () => {
    const worker = { command: ["true"], sandbox: { dynamic: true } };
    opened = await openSessionIn({ workers: { w: worker }, zones: { inbox: "ro" } }, { approvalMode: "approve_all" });
    expect(textOf(await opened.tool("list_files", { path: "/inbox" }))).toMatch(/^APPROVAL_DENIED/);
  });

  it("for writing keeps what is written there on a side until it is applied", async () => {
    const s = await open(personWho("session"));
    const path = join(host, "src/new.py");
    await s.tool("write_file", { path, content: "new\n" });
    await expect(readFile(path, "utf8")).rejects.toThrow("ENOENT");
    expect(textOf(await s.tool("commit_changes", {}))).toContain(path);
    expect(await readFile(path, "utf8")).toBe("new\n");
  });

  it("is in the audit trail, and is listed while it lives", async () => {
    const s = await open(personWho("tree"));
    await s.tool("list_files", { path: "/inbox" });
    const live = join(s.project.stateDir, "live");
    expect(await listLiveGrants(live, currentOwner())).toMatchObject([
      {
        worker: "w",
        through: ["w"],
        directory: "/inbox",
        host: join(s.project.dir, "inbox"),
        mode: "read",
        scope: "tree",
      },
    ]);
    await s.close();
    expect(await listLiveGrants(live, currentOwner())).toEqual([]);
  });
});

describe("a grant that is taken back", () => {
  it("is gone for tools and for the cell, and a command that runs is ended", async () => {
    const person = personWho("session");
    const s = await open(person);
    const src = join(host, "src");
    await s.tool("read_file", { path: `${src}/main.py` });
    const running = s.exec(`cat ${src}/main.py; sleep 60`);
    await expect.poll(() => s.processes().then((all) => all.join())).toContain("sleep 60");
    const live = join(s.project.stateDir, "live");
    const [grant] = await listLiveGrants(live, currentOwner());
    expect(await revokeLiveGrant(live, currentOwner(), grant?.id ?? "")).toBe(true);
    expect(await running).toMatchObject({ cellReplaced: true, stdout: "print()\n" });

    expect(textOf(await s.tool("read_file", { path: `${src}/main.py` }))).toMatch(/^GRANT_REVOKED/);
    const after = await s.exec(`cat ${src}/main.py`);
    expect(after.exitCode).not.toBe(0);
    expect(after.stderr).toContain("No such file");
    expect(person.questions()).toEqual([`grant_read ${src}`]);
  });

  it("of an upgrade leaves reading, and what was not applied is not", async () => {
    const s = await open(personWho("session"));
    const src = join(host, "src");
    await s.tool("read_file", { path: `${src}/main.py` });
    await s.tool("write_file", { path: `${src}/main.py`, content: "changed" });
    const live = join(s.project.stateDir, "live");
    const write = (await listLiveGrants(live, currentOwner())).find(
      (grant) => "mode" in grant && grant.mode === "write",
    );
    await revokeLiveGrant(live, currentOwner(), write?.id ?? "");
    expect(textOf(await s.tool("read_file", { path: `${src}/main.py` }))).toBe("print()\n");
    expect(textOf(await s.tool("write_file", { path: `${src}/main.py`, content: "" }))).toMatch(/^GRANT_REVOKED/);
    expect((await s.exec(`cat ${src}/main.py`)).stdout).toBe("print()\n");
  });

  it("of an upgrade leaves what was kept apart before as it was: the suffixes hold, before, with and after it", async () => {
    const zones = { inbox: { path: "./inbox", mode: "rw", suffixes: [".md"] } };
    const worker = {
      command: ["true"],
      sandbox: { dynamic: true, zones: [{ name: "inbox" }] },
      shell_rules: { default: "pre_approved" },
    };
    opened = await openSessionIn(
      {
        workers: { w: worker },
        zones: { inbox: "rw" },
        sandbox: { zones },
        files: { "inbox/a.md": "a\n", "inbox/k": "k" },
      },
      { person: personWho("session") },
    );
    const s = opened;
    expect((await s.exec("ls /inbox")).stdout).toBe("a.md\n");
    expect(textOf(await s.tool("write_file", { path: "/inbox/b.md", content: "b\n" }))).toContain("Created");
    expect(textOf(await s.tool("write_file", { path: "/inbox/b", content: "" }))).toMatch(/^SUFFIX_NOT_ALLOWED/);
    expect((await s.exec("ls /inbox && touch /inbox/c.md")).stdout).toBe("a.md\nb.md\n");
    const live = join(s.project.stateDir, "live");
    const [grant] = await listLiveGrants(live, currentOwner());
    await revokeLiveGrant(live, currentOwner(), grant?.id ?? "");
    expect(textOf(await s.tool("read_file", { path: "/inbox/a.md" }))).toBe("a\n");
    expect((await s.exec("ls /inbox; touch /inbox/d.md")).stdout).toBe("a.md\n");
  });
});
