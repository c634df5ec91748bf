import { existsSync, readFileSync } from "node:fs";
import { chown, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pack } from "tar-stream";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { connect } from "../../src/isolation/engine/open.ts";
import { STEWARD_LABEL } from "../../src/isolation/port/labels.ts";
import { asOther, packageIn, started } from "../engine-user.ts";
import { nodeIn, OTHER } from "../other-user.ts";

let base: string;
let node: string;
let program: string;

beforeAll(async () => {
  base = await mkdtemp(join(tmpdir(), "cu-"));
  // A copy that this user can reach, wherever the checkout is.
  node = nodeIn(base);
  program = await packageIn(base);
  await mkdir(join(base, "p/workers"), { recursive: true });
  const network = "network: { allow: [a.example:443] }";
  await writeFile(
    join(base, "p/corral.yaml"),
    `version: 1\npolicy: default\nsandbox: { mode: direct, zones: {}, ${network} }\n`,
  );
  await writeFile(join(base, "p/workers/w.worker"), `---\ncommand: [id]\nsandbox: { ${network} }\n---\n`);
  await chown(base, OTHER, OTHER);
});
afterAll(async () => {
  await rm(base, { recursive: true, force: true });
});

/** What it prints, on both streams. */
async function asUser(...args: readonly string[]): Promise<string> {
  return (await (await startAsUser(args)).ended).text;
}

async function startAsUser(args: readonly string[], cwd = join(base, "p")) {
  const env = { HOME: base, CORRAL_STATE_DIR: join(base, "s"), PATH: `${base}:/usr/bin` };
  return started([...(await asOther(env)), node, program, ...args], cwd);
}

it("has an allow list, and is told by doctor and explain that a second container makes its network", async () => {
  expect(await asUser("doctor")).toMatch(/allow lists.*second container, of corral\/node/);
  expect(await asUser("run", "w")).toContain("uid=65532");
  expect(await asUser("explain", "w")).toMatch(/note: Corral does not run as root: .*second container/);
  expect(await asUser("--driver", "bwrap", "doctor")).toMatch(/allow lists .* by nsenter/);
  const explained = await asUser("--driver", "bwrap", "explain", "w", "--policy", "default");
  expect(explained).not.toContain("second container");
});

it("runs a command without a project at once: its private files are read, and what it writes is its own", async () => {
  await mkdir(join(base, "p/in"));
  await writeFile(join(base, "p/in/a"), "private\n", { mode: 0o600 });
  for (const path of ["p", "p/in", "p/in/a"]) await chown(join(base, path), OTHER, OTHER);
  await writeFile(join(base, "p/roots"), "of root\n");
  const script = "id -u; cat /in/a /roots; cp /in/a /out/b";
  expect(await asUser("run", "--ro", "in", "--ro", "roots", "--rw", "out", "--apply", "--", "sh", "-c", script)).toBe(
    `${OTHER}\nprivate\nof root\ncorral: changes: 1 applied\n`,
  );
  expect(await stat(join(base, "p/out/b"))).toMatchObject({ uid: OTHER, gid: OTHER });
  expect(await asUser("run", "--ro", "in", "--ro", "roots", "--", "cat", "/in/a")).toBe("private\n");
});

// Of `ci`, which needs a repository, test/docs/tutorial.test.ts runs the same as an ordinary user.
it.each(["documents", "batch", "agent"])(
  "has a project for %s whose next two commands work, and its check",
  async (kind) => {
    const ran = async (line: string, cwd: string): Promise<string> => {
      const { status, text } = await (await startAsUser(line.split(" "), cwd)).ended;
      expect(status, text).toBe(0);
      return text;
    };
    const written = await ran(`init ${kind} t/${kind}`, base);
    const [, next = ""] = /\nNext:\n {2}cd \S+\n([\s\S]*)$/.exec(written) ?? [];
    const commands = next.trim().split(/\s*\n\s*/);
    expect(commands).toHaveLength(2);
    for (const command of [...commands, "corral check"])
      await ran(command.replace(/^corral /, ""), join(base, "t", kind));
  },
);

it("has an office file as PDF", async () => {
  await mkdir(join(base, "p/office"));
  await chown(join(base, "p/office"), OTHER, OTHER);
  const to = (kind: string, file: string): string => `soffice --headless --convert-to ${kind} ${file}`;
  const script = `cd /out && echo '<p>Hello' > h.html && ${to("odt", "h.html")} && ${to("docx", "h.odt")} && ${to("pdf", "h.docx")} && head -c 5 h.pdf`;
  const text = await asUser(
    "run",
    "--image",
    "corral/documents",
    "--rw",
    "office=out",
    "--apply",
    "--",
    "sh",
    "-c",
    script,
  );
  expect(text).toContain("%PDF-");
}, 120_000);

describe("cells that serve many items", () => {
  const script = `tr -d '"' > /tmp/input; d=/out/$(cat /tmp/input)/deeper; ls -A /tmp /out /attachments $d > /tmp/seen
    { id -u; cat /in/*; } > $d/result; cp /tmp/seen $d/seen; ln -s result $d/link; touch "$d/-rf"; mkdir -p $d/closed/deep; echo x > $d/closed/deep/f
    chmod 777 /out && echo changed; touch /out/mine /.corral/io/mine && echo made; rm -f /.corral/io/in && echo removed
    chmod 666 /.corral/io/in && echo opened; touch -d 2001-01-01 /out /.corral/io && echo dated
    # Deeper than any path: no program that walks by paths removes it.
    if [ "$(cat /tmp/input)" = slow ]; then ( cd $d; for i in $(seq 17); do n=$(printf %0250d $i); mkdir $n && cd $n || exit; done ); fi
    (sleep 100 &) ; chmod 0 $d/closed/deep/f $d/closed/deep $d/closed $d; [ "$(cat /tmp/input)" != slow ] || sleep 100`;
  const files = {
    "corral.yaml":
      "version: 1\npolicy: batch\nsandbox: { mode: direct, zones: { in: { path: in, mode: ro }, out: { path: out, mode: rw } } }\n",
    "workers/w.worker": `---\n${JSON.stringify({
      command: ["sh", "-c", script],
      sandbox: { zones: [{ name: "in" }, { name: "out", mode: "rw", approval: "pre_approved" }] },
    })}\n---\n`,
    "fleets/all.yaml": JSON.stringify({
      version: 1,
      worker: "w",
      manifest: "items.jsonl",
      key: "{name}",
      input: "{name}",
      allow_write: ["out/{name}/deeper"],
      reuse: "scrubbed",
      concurrency: 1,
    }),
    "items.jsonl": ["a", "b", ".c"].map((name) => `{"name":"${name}"}\n`).join(""),
    "fleets/slow.yaml": "",
    "slow.jsonl": '{"name":"slow"}\n',
    "in/private": "private\n",
  };
  const q = (path: string): string => join(base, "q", path);

  beforeAll(async () => {
    for (const dir of ["", "workers", "fleets", "in", "out"]) await mkdir(q(dir));
    files["fleets/slow.yaml"] = files["fleets/all.yaml"].replace("items.jsonl", "slow.jsonl");
    for (const [path, text] of Object.entries(files)) await writeFile(q(path), text, { mode: 0o600 });
    for (const path of ["", "workers", "fleets", "in", "out", ...Object.keys(files)])
      await chown(q(path), OTHER, OTHER);
  });

  it("are emptied in between, change nothing that is not the item's, and leave its files to the user", async () => {
    await chown(q("out"), 0, 0);
    const foreseen = await asUser("map", "--project", q(""), "--fleet", "all", "--dry-run", "1");
    expect(foreseen).toMatch(/^corral: no item would run: .*out\/a\/deeper cannot be written by this user/m);
    await chown(q("out"), OTHER, OTHER);
    const told = await asUser("map", "--project", q(""), "--fleet", "all", "--json");
    const results = told
      .split("\n")
      .filter((line) => line.startsWith('{"index"'))
      .map((line) => JSON.parse(line));
    expect(
      results.map(({ status }) => status),
      told,
    ).toEqual(["succeeded", "succeeded", "succeeded"]);
    for (const { output } of results) expect(output).toBeNull();
    for (const name of ["a", "b", ".c"]) {
      const dir = q(`out/${name}/deeper`);
      expect((await readdir(dir)).sort()).toEqual(["-rf", "closed", "link", "result", "seen"]);
      expect(await readFile(join(dir, "result"), "utf8")).toBe(`${OTHER}\nprivate\n`);
      expect(await readFile(join(dir, "seen"), "utf8")).toBe(
        `/attachments:\n\n/out:\n${name}\n\n/out/${name}/deeper:\n\n/tmp:\ninput\nseen\n`,
      );
      for (const path of [`out/${name}`, `out/${name}/deeper`, `out/${name}/deeper/closed/deep/f`])
        expect(await stat(q(path))).toMatchObject({ uid: OTHER, gid: OTHER });
    }
    expect(await leftBehind()).toEqual([]);
  });

  it("leave nothing that the user cannot remove, also if Corral is killed in the middle", async () => {
    const { child } = await startAsUser(["map", "--project", q(""), "--fleet", "slow"]);
    const running = async (): Promise<number> => (await asUser("ps", "--json")).split('"running"').length - 1;
    await expect.poll(running, { timeout: 30_000 }).toBe(2);
    const [pid = ""] = (await readdir(join(base, "s/live"))).map(
      (owner) => readFileSync(join(base, "s/live", owner, "owner"), "utf8").split("|")[3] ?? "",
    );
    process.kill(Number(pid), "SIGKILL");
    child.kill("SIGKILL");
    await expect
      .poll(async () => [await asUser("reap"), ...(await leftBehind())].at(-1), { timeout: 30_000 })
      .toBe("There is nothing to remove.\n");
    expect(await leftBehind()).toEqual([]);
  });

  it("leave nothing either if another client of the Engine ends the container that acts as root", async () => {
    const { ended } = await startAsUser(["map", "--project", q(""), "--fleet", "all", "--no-cache"]);
    const { docker } = await connect(process.env);
    const steward = async () =>
      (
        await docker.listContainers({
          filters: { label: [STEWARD_LABEL, `dev.corral.project=${q("")}`.replace(/\/$/, "")] },
        })
      )[0];
    await expect.poll(steward, { timeout: 30_000, interval: 20 }).toBeDefined();
    await docker.getContainer((await steward())?.Id ?? "").kill();
    const { text } = await ended;
    expect(text).toMatch(/did not do so|3 {2}succeeded/);
    expect(await leftBehind()).toEqual([]);
  });

  /** Directories of processes, and containers of this state directory. */
  async function leftBehind(): Promise<string[]> {
    const cells = JSON.parse(await asUser("ps", "--json")) as { run: string }[];
    return [...(await readdir(join(base, "s/live"))), ...cells.map(({ run }) => run)];
  }
});

it("reads its private files beside those of others", async () => {
  await mkdir(join(base, "p/theirs"));
  await writeFile(join(base, "p/theirs/b"), "of another\n");
  await writeFile(join(base, "p/mine"), "private\n", { mode: 0o600 });
  await chown(join(base, "p/mine"), OTHER, OTHER);
  for (const path of ["p/theirs", "p/theirs/b"]) await chown(join(base, path), 1, 1);
  expect(await asUser("run", "--ro", "mine", "--ro", "theirs", "--", "cat", "/mine", "/theirs/b")).toBe(
    "private\nof another\n",
  );
});

it("is held by the same: an image's devices and links, what a mount forbids, and what is said of sockets' memory", async () => {
  const { docker } = await connect(process.env);
  const tags = ["node", "link"].map((what) => `corral-test/ordinary-${what}-${process.pid}:1`) as [string, string];
  const [device, link] = [
    { name: "x", type: "character-device", devmajor: 10, devminor: 200 },
    { name: "roots", type: "symlink", linkname: "/etc/passwd" },
  ] as const;
  try {
    for (const [at, entry] of [device, link].entries()) {
      const tar = pack();
      tar.entry(entry);
      tar.finalize();
      const answer = await docker.importImage(tar as unknown as string, { repo: tags[at] ?? "" });
      await new Promise((done) => answer.resume().once("end", done));
    }
    expect(await asUser("run", "--image", tags[0], "--", "true")).toContain(
      "device nodes, which its programs could open: /x",
    );
    expect(await asUser("run", "--image", tags[1], "--ro", "roots", "--", "true")).toContain(
      "a symbolic link at /roots",
    );
  } finally {
    for (const tag of tags) await docker.getImage(tag).remove({ force: true });
  }
  const script = "grep ' /in ' /proc/self/mountinfo";
  expect(await asUser("run", "--ro", "in", "--", "sh", "-c", script)).toMatch(/ \/in ro,nosuid,nodev/);
  const isUnified = existsSync("/sys/fs/cgroup/cgroup.controllers");
  expect(await asUser("run", "--json", "--", "true")).toContain(
    `"socketMemory":"${isUnified ? "counted" : "not counted"}"`,
  );
});
