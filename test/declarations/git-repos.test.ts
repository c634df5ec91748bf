import { mkdir, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { parseGitUrl } from "../../src/declarations/git/repo.ts";
import { loadProject } from "../../src/declarations/project.ts";
import { DeclarationError } from "../../src/declarations/yaml/problem.ts";
import { projectFolder } from "./project-folder.ts";

const SANDBOX = "sandbox: { mode: direct, zones: { work: { path: ./work, mode: rw }, seen: { path: ./seen } } }";

async function project(repos: string, files: Readonly<Record<string, string>> = {}): Promise<string> {
  const text = `version: 1\n${SANDBOX}\ngit: { repos: { ${repos} } }\n`;
  return projectFolder({ "corral.yaml": text, "work/": "", "seen/": "", ...files });
}

async function problems(dir: string): Promise<string[]> {
  try {
    await loadProject(dir);
    return [];
  } catch (error) {
    if (!(error instanceof DeclarationError)) throw error;
    return error.problems.map(({ path, message }) => `${path}: ${message}`);
  }
}

describe("the address of a repository", () => {
  it.each([
    ["https://host.example/a/b.git", "https", "https://host.example/a/b.git"],
    ["https://me@host.example:8443/b", "https", "https://me@host.example:8443/b"],
    ["ssh://git@host.example/~me/b.git", "ssh", "ssh://git@host.example/~me/b.git"],
    ["git+ssh://git@host.example:22/b", "ssh", "ssh://git@host.example:22/b"],
    ["http://127.0.0.1:8080/b", "http", "http://127.0.0.1:8080/b"],
    ["/srv/git/b.git", "file", "/srv/git/b.git"],
    ["file:///srv/git/b.git", "file", "/srv/git/b.git"],
  ])("may be %s", (raw, protocol, url) => {
    expect(parseGitUrl(raw)).toEqual({ ok: true, protocol, url });
  });

  it.each([
    "",
    "-u/x",
    "--upload-pack=touch x",
    "ext::sh -c id",
    "ext::sh",
    "fd::3",
    "git://host/x",
    "http://host.example/x",
    "ftp://host/x",
    "file://host/x",
    "relative/x.git",
    "../x.git",
    "/srv/../etc",
    "/srv//x",
    "https://me:secret@host/x",
    "https://host/x?token=1",
    "https://host/",
    "https:///x",
    "https://-host/x",
    "ssh://-oProxyCommand=id/x",
    "ssh://-x@host/x",
    "ssh://host/-x",
    "git@host.example:x.git",
    "https://host/a b",
    "https://host/a\nb",
    "https://host/a\u0000b",
    "https://host/`id`",
    "https://ho\\st/x",
  ])("is never %j", (raw) => {
    expect(parseGitUrl(raw).ok).toBe(false);
  });

  it("is asked for whole where it is of the short form of ssh", () => {
    expect(parseGitUrl("git@host.example:a/b.git")).toEqual({
      ok: false,
      fault: "must be a complete address; write ssh://git@host.example/a/b.git",
    });
  });
});

describe("repositories of a project", () => {
  it("are read with what is said of them, and with defaults", async () => {
    const dir = await project(
      "notes: { url: 'https://host.example/n.git', branch: drafts/a, at: work/notes, credentials: { env: TOKEN }, author: { name: N, email: n@example.org } }, " +
        "more: { url: 'ssh://git@host.example/m', at: /seen }, cmd: { url: 'https://host.example/c', at: /work/c, credentials: { command: [cat, /x] } }",
      {
        "workers/w.worker": "---\ncommand: [a]\ngit: [notes, cmd, notes]\n---\n",
        "workers/v.worker": "---\ncommand: [a]\n---\n",
      },
    );
    const { git, workers } = await loadProject(dir);
    expect([...(git?.values() ?? [])]).toEqual([
      {
        name: "notes",
        url: "https://host.example/n.git",
        protocol: "https",
        branch: "drafts/a",
        at: "/work/notes",
        credentials: { kind: "env", name: "TOKEN" },
        author: { name: "N", email: "n@example.org" },
      },
      {
        name: "more",
        url: "ssh://git@host.example/m",
        protocol: "ssh",
        branch: "main",
        at: "/seen",
        credentials: null,
        author: null,
      },
      {
        name: "cmd",
        url: "https://host.example/c",
        protocol: "https",
        branch: "main",
        at: "/work/c",
        credentials: { kind: "command", program: "cat", args: ["/x"] },
        author: null,
      },
    ]);
    expect(workers.get("w")?.git).toEqual(["cmd", "notes"]);
    expect(workers.get("v")?.git).toBeUndefined();
  });

  it("are none where nothing is said, and a worker that names one is told so", async () => {
    const dir = await projectFolder({
      "corral.yaml": "version: 1\n",
      "workers/w.worker": "---\ncommand: [a]\ngit: [x]\n---\n",
    });
    expect(await problems(dir)).toEqual(["git: there is no repository `x`; corral.yaml has none"]);
  });

  it.each([
    ["n: { url: 'ext::sh', at: /work }", /^git\.repos\.n\.url: must be/],
    ["n: { url: 'https://h/x', at: ../x }", /^git\.repos\.n\.at: /],
    ["n: { url: 'https://h/x', at: /work, branch: '-x' }", /^git\.repos\.n\.branch: must be the name of a branch/],
    ["n: { url: 'https://h/x', at: /work, branch: 'a..b' }", /branch/],
    ["n: { url: 'https://h/x', at: /work, branch: 'a.lock' }", /branch/],
    ["n: { url: 'https://h/x', at: /work, credentials: {} }", /credentials: needs exactly one of/],
    [
      "n: { url: 'https://h/x', at: /work, credentials: { env: A, command: [b] } }",
      /credentials: needs exactly one of/,
    ],
    ["n: { url: 'https://h/x', at: /work, credentials: { command: [./x] } }", /command\.0: must be an absolute path/],
    ["n: { url: 'https://h/x', at: /work, credentials: { command: [-x] } }", /command\.0: must be an absolute path/],
    ["n: { url: 'ssh://h/x', at: /work, credentials: { env: A } }", /credentials: are only for https/],
    ["n: { url: 'https://h/x', at: /work, author: { name: 'a <b>', email: c } }", /author\.name/],
    ["n: { url: 'https://h/x', at: /work, colour: red }", /unknown key/],
    ["-n: { url: 'https://h/x', at: /work }", /must be 1 to 64 letters/],
    [
      "n: { url: 'https://h/x', at: /work }, m: { url: 'https://h/y', at: /work/m }",
      /git\.repos\.m\.at: overlaps with \/work of `n`/,
    ],
  ])("are refused: %s", async (repos, expected) => {
    const [first = "", ...others] = await problems(await project(repos));
    expect(first).toMatch(expected);
    expect(others).toEqual([]);
  });

  it("on this machine, and programs that print secrets, never lie where a worker may write", async () => {
    const dir = await project("", { "r.git/HEAD": "", "work/r.git/HEAD": "", "work/token": "", "outer/deep/": "" });
    await symlink(join(dir, "r.git"), join(dir, "work/link"));
    const repo = (url: string, more = ""): Promise<string> =>
      projectWith(dir, `n: { url: '${url}', at: /work ${more} }`);
    expect(await problems(await repo(join(dir, "r.git")))).toEqual([]);
    for (const url of [join(dir, "work/r.git"), join(dir, "work"), dir, join(dir, "work/link")])
      expect((await problems(await repo(url)))[0]).toMatch(
        /^git\.repos\.n\.url: (is where a worker may write|leads through)/,
      );
    expect((await problems(await repo(join(dir, "none"))))[0]).toMatch(/does not exist/);
    const token = `, credentials: { command: [${join(dir, "work/token")}] }`;
    expect((await problems(await repo("https://h/x", token)))[0]).toMatch(/command\.0: is where a worker may write/);
    const ofWorker = await repo(join(dir, "outer/deep"));
    await projectFile(
      dir,
      "workers/w.worker",
      "---\ncommand: [a]\nsandbox: { paths: { o: { root: ./outer, mode: rw } } }\n---\n",
    );
    expect((await problems(ofWorker))[0]).toMatch(/is where a worker may write/);
  });

  it("on this machine are the project's own, which nobody is given to write", async () => {
    const dir = await project("", { "r.git/HEAD": "" });
    const { ownFiles } = await loadProject(await projectWith(dir, `n: { url: ${join(dir, "r.git")}, at: /work }`));
    expect(ownFiles).toContain(join(dir, "r.git"));
  });
});

async function projectFile(dir: string, path: string, text: string): Promise<void> {
  await mkdir(dirname(join(dir, path)), { recursive: true });
  await writeFile(join(dir, path), text);
}

async function projectWith(dir: string, repos: string): Promise<string> {
  await projectFile(dir, "corral.yaml", `version: 1\n${SANDBOX}\ngit: { repos: { ${repos} } }\n`);
  return dir;
}
