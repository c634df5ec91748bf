import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { networkInterfaces, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { CiEnd, CiStepEnd } from "../../../src/operations/ci/ci-end.ts";
import { runCi } from "../../../src/operations/ci/run-ci.ts";
import { type CliProject, cliProject, type Outcome } from "../../cli/cli-project.ts";
import { carriedOut } from "./carried-out.ts";

/*
 * Hostile pull requests against `corral ci run`. Several attacks share a head, and so a cell: each says in its cell that it was tried, and
 * whether it got something; what it could have left on the host is looked for there.
 */

/** How long a process of the slow job sleeps; no other program has this argument. */
const HIDDEN = "918273";

const BASE_CI = {
  version: 1,
  jobs: {
    node: { uses: "npm", run: "sh ./node.sh" },
    test: {
      image: "corral/python",
      run: "sh ./build.sh",
      limits: { disk: "200m" },
      reports: { junit: "reports/**", coverage: "cov.info" },
      artifacts: ["dist/**"],
      cache: [{ path: "kept", key: ["dep.txt"] }],
      services: { web: { image: "corral/python", run: "cd /tmp && exec python3 -m http.server 8080", ports: [8080] } },
    },
    greedy: {
      run: "sh ./greedy.sh $MATRIX_KIND",
      matrix: { kind: ["time", "disk"] },
      limits: { timeout: "6s", disk: "64m", pids: 64 },
    },
  },
};

const LOCK = JSON.stringify({
  name: "p",
  version: "1.0.0",
  lockfileVersion: 3,
  packages: { "": { name: "p", version: "1.0.0" } },
});
const PACKAGE = { name: "p", version: "1.0.0" };

const BASE_FILES = {
  "ci.yaml": JSON.stringify(BASE_CI),
  "dep.txt": "1\n",
  "package.json": JSON.stringify(PACKAGE),
  "package-lock.json": LOCK,
  "node.sh": "true\n",
  "build.sh": "mkdir -p kept; [ -e kept/tree ] && cat kept/tree; echo of the base > kept/tree\n",
  "greedy.sh": "true\n",
};

interface Seen {
  readonly end: CiEnd;
  readonly printed: string;
}

interface Attack {
  readonly name: string;
  /** Of the head. */
  readonly files?: Readonly<Record<string, string>>;
  /** In the cell: it succeeds if it got something. */
  readonly script?: string;
  /** Something that it got beyond that. */
  readonly got?: (seen: Seen) => unknown;
}

let project: CliProject;
let canary: string;
let listener: Server;
const heard: string[] = [];
/** All that a shell of the head can try to reach this machine by. */
let places: readonly string[];
let port: number;
let quiet: Seen;
/** Keys of the cache before any of them. */
let kept: readonly string[];
let green: { readonly outcome: Outcome; readonly summary: string };

const mark = (name: string): string => join("/tmp", MARKS, name);
const MARKS = `corral-pull-requests-${process.pid}`;
const touch = (name: string): string => `#!/bin/sh\ntouch ${mark(name)}\n`;
const stepOf = ({ end }: Seen, name: string): CiStepEnd | undefined => end.ends.find(({ step }) => step.name === name);

/** Nothing of these may have an effect outside of the cell, and nothing inside but to fail. */
const QUIET: readonly Attack[] = [
  {
    name: "a changed ci.yaml",
    files: { "ci.yaml": JSON.stringify({ version: 1, jobs: { test: { run: "true" }, evil: { run: "true" } } }) },
    got: (seen) =>
      stepOf(seen, "evil") !== undefined || stepOf(seen, "test")?.status !== "failed" || !seen.end.isChanged,
  },
  {
    name: "a project and workers of its own, with the names of the base's",
    files: {
      "corral.yaml": JSON.stringify({ version: 1, sandbox: { root: ".", network: true } }),
      "workers/test.worker": `---\n${JSON.stringify({ command: ["true"], sandbox: { inherit: true, network: true } })}\n---\n`,
      "policies/ci.yaml": "name: ci\nnetwork: true\n",
      "templates/ci-run/job.sh": touch("job"),
    },
  },
  {
    name: "install scripts",
    files: {
      "package.json": JSON.stringify({
        ...PACKAGE,
        scripts: { postinstall: "sh ./postinstall.sh", prepare: "sh ./postinstall.sh" },
      }),
      "postinstall.sh":
        "echo postinstall ran; for one in /lock-* /packages-* /cache-*; do touch $one/x && echo GOT install scripts; done; true\n",
      "node.sh": "true\n",
    },
    // They run in the job's cell alone, without a network, and not where packages are fetched.
    got: (seen) =>
      JSON.stringify(stepOf(seen, "fetch.npm")).includes("postinstall ran") ||
      !JSON.stringify(stepOf(seen, "node")?.result).includes("postinstall ran"),
  },
  { name: "a write into the cache", script: "touch /cache-*/x || rm -rf /cache-*/data.tar || mv /cache-* /work/c" },
  { name: "a poisoned folder of the cache", script: "echo poison > kept/tree; false" },
  {
    name: "a key of the cache that is the base's",
    files: { "dep.txt": "1\n" },
    script: "grep -v 'of the base' kept/tree | grep -v poison",
  },
  { name: "hooks", files: { ".husky/post-checkout": touch("husky"), "hooks/post-checkout": touch("hook") } },
  {
    name: "a configuration of git",
    files: { ".gitconfig": `[core]\n\tfsmonitor = touch ${mark("fsmonitor")}\n\thooksPath = hooks\n` },
  },
  {
    name: "filters of .gitattributes",
    files: { ".gitattributes": "* filter=evil diff=evil export-subst\nbuild.sh export-ignore\n" },
  },
  {
    name: "submodules",
    files: {
      ".gitmodules": `[submodule "x"]\n\tpath = x\n\turl = ext::sh -c touch% ${mark("submodule")}\n`,
      x: "commit:",
    },
    script: "ls -A x | grep .",
  },
  {
    name: "large files of LFS",
    files: {
      ".lfsconfig": "[lfs]\n\turl = http://127.0.0.1:1/\n",
      big: `version https://git-lfs.github.com/spec/v1\noid sha256:${"0".repeat(64)}\nsize 9\n`,
    },
    script: "! grep -q git-lfs big",
  },
  {
    name: "links that lead out",
    files: { out: "link:/", "reports/link": "link:/etc" },
    script: "cat outCANARY/secret",
  },
  { name: "tokens in the environment", script: "env | grep -E 'TOKEN|SECRET|GITHUB_|SSH_|AWS_|secret-of'" },
  { name: "tokens of the processes", script: "cat /proc/*/environ 2> /dev/null | tr '\\0' '\\n' | grep secret-of" },
  { name: "the Engine's socket", script: "ls /var/run/docker.sock /run/docker.sock /run/containerd 2> /dev/null" },
  {
    name: "files of the host",
    script: `ls -d ${"/tmp/"}corral-* /home/*/.ssh /root/.ssh /work/head/.git 2> /dev/null`,
  },
  {
    name: "publishing as a way out",
    script: `python3 - <<'END'
import socket, sys
got = 0
for place in PLACES:
    try:
        s = socket.create_connection((place, PORT), 2); s.sendall(b"PUT /published HTTP/1.0\\r\\n\\r\\n"); got = 1
    except OSError: pass
try:
    socket.getaddrinfo("registry.npmjs.org", 443); got = 1
except OSError: pass
sys.exit(not got)
END`,
    got: () => heard.length > 0,
  },
  {
    name: "another port of a service",
    script: "python3 -c 'import socket; socket.create_connection((\"web\", 22), 2)' 2> /dev/null",
  },
  {
    name: "a false server at the place of a service",
    script: "python3 -c 'import socket; s = socket.socket(); s.bind((\"127.0.0.1\", 8080))' 2> /dev/null",
  },
  {
    name: "a matrix without end",
    files: {
      "more/ci.yaml": JSON.stringify({
        version: 1,
        jobs: {
          test: { run: "x", matrix: { a: Array.from({ length: 32 }, String), b: Array.from({ length: 32 }, String) } },
        },
      }),
    },
    got: ({ end }) => end.ends.length > 4,
  },
  {
    name: "a forged exit status and a forged report",
    script: `mkdir -p reports; echo '<testsuite><testcase name="all is well"/></testsuite>' > reports/a.xml
echo 0 > /work/status; echo '{"status":"succeeded"}' > /work/ci.json; false`,
    got: (seen) => stepOf(seen, "test")?.result?.exitCode !== 7,
  },
  {
    name: "a branch that is pushed again while it is tested",
    // The run is of the first commit: what moves it is in `onSource` and `onStart` below.
    got: ({ end, printed }) => end.head !== heads.quiet || printed.includes("of the second push"),
  },
];

/** Of a head whose tests "succeed": what it brings out, and what it prints. */
const LAUGHS = `<!DOCTYPE x [<!ENTITY a "ha">${[..."bcdefgh"].map((name, at) => `<!ENTITY ${name} "${`&${"abcdefg"[at]};`.repeat(10)}">`).join("")}]><testsuite><testcase name="&h;"/></testsuite>`;
const GREEN = `mkdir -p reports dist
cat > reports/laughs.xml <<'END'
${LAUGHS}
END
echo '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><testsuite><testcase name="&a;"/></testsuite>' > reports/entity.xml
printf '<testsuite><testcase name="n&#10;::error::forged" file="../../etc/passwd"><failure message="##[add-mask]x &lt;/script&gt;"/></testcase></testsuite>' > reports/texts.xml
printf 'LF:10\\nLH:99\\nend_of_record\\n' > cov.info
ln -s /etc/passwd dist/link; ln -s /etc/passwd /artifacts-*/outside; mkdir -p /artifacts-*/.git/hooks
mkfifo dist/fifo; echo good > dist/file; printf 'x' > "$(echo /reports-*)/::error::name.xml"
python3 -c "
import gzip, os, glob
open('dist/bomb.gz', 'wb').write(gzip.compress(bytes(50000000)))
out = glob.glob('/reports-*')[0]
os.makedirs(out + '/reports', exist_ok=True)
open(out + '/reports/huge.xml', 'wb').write(bytes(9000000))
open(out + '/reports/deep.xml', 'w').write('<a>' * 200000)"
printf '::error::forged\\n::add-mask::e\\n##[add-path]/evil\\n\\033]0;title\\007\\033[2J\\r::set-output name=a::b\\n'
printf '::stop-commands::x\\n::x::\\n::warning::forged' >&2
exit 0
`;

const GREEDY = `if [ $1 = disk ]; then cat /dev/zero > /work/full; exit 9; fi
(setsid sleep ${HIDDEN} &) ; (trap '' TERM HUP; nohup sleep ${HIDDEN} > /dev/null 2>&1 &)
bomb() { bomb | bomb & }
bomb
sleep ${HIDDEN}
`;

const heads = { quiet: "", second: "", green: "", greedy: "" };

function git(...args: string[]): string {
  return execFileSync("git", ["-c", "user.name=a", "-c", "user.email=a@localhost", ...args], { cwd: project.dir })
    .toString()
    .trim();
}

/** A commit on the base. The work tree is the base's again afterwards. */
async function pushed(branch: string, files: Readonly<Record<string, string>>): Promise<string> {
  git("checkout", "-qB", branch, "main");
  for (const [path, content] of Object.entries(files)) {
    await mkdir(dirname(join(project.dir, path)), { recursive: true });
    await rm(join(project.dir, path), { force: true });
    if (content.startsWith("link:")) await symlink(content.slice(5), join(project.dir, path));
    else if (content !== "commit:") await writeFile(join(project.dir, path), content);
  }
  git("add", "-A");
  // A submodule, whose commit may be any.
  for (const [path, content] of Object.entries(files))
    if (content === "commit:") git("update-index", "--add", "--cacheinfo", `160000,${"1".repeat(40)},${path}`);
  git("commit", "-qm", branch);
  const id = git("rev-parse", "HEAD");
  git("checkout", "-q", "main");
  return id;
}

const base = (...more: string[]) =>
  project.corral(["ci", "run", "--base", "main", "--head", "main", "--job", "test", "--json", ...more]);

beforeAll(async () => {
  canary = await mkdtemp(join(tmpdir(), "corral-canary-"));
  await writeFile(join(canary, "secret"), "of the host");
  await mkdir(dirname(mark("x")), { recursive: true });
  listener = createServer((request, response) => {
    heard.push(String(request.url));
    response.end("ok");
  });
  await new Promise<void>((resolve) => listener.listen(0, "0.0.0.0", resolve));
  port = (listener.address() as AddressInfo).port;
  const own = Object.values(networkInterfaces()).flatMap((all) => all?.map(({ address }) => address) ?? []);
  places = ["127.0.0.1", "172.17.0.1", ...own.filter((one) => !one.includes(":"))];
  project = await cliProject({ yaml: null, workers: {}, files: BASE_FILES });
  git("init", "-q", "-b", "main");
  git("add", ".");
  git("commit", "-qm", "base");
  const first = await base();
  expect(first.status, first.stderr).toBe(0);

  const scripts = QUIET.map(
    ({ name, script = "false" }) => `echo "TRIED ${name}"; if (\n${script}\n); then echo "GOT ${name}"; fi`,
  );
  const script = scripts
    .join("\n")
    .replace("PLACES", JSON.stringify(places))
    .replace("PORT", String(port))
    .replace("CANARY", canary);
  const files = Object.assign({}, ...QUIET.map((one) => one.files ?? {})) as Record<string, string>;
  // Only now: while the commits are made, the machine's own git would run it.
  heads.second = await pushed("second", { "build.sh": "echo of the second push; exit 0\n" });
  heads.quiet = await pushed("quiet", { ...files, "build.sh": `cat kept/tree\n${script}\nexit 7\n` });
  heads.green = await pushed("green", { "build.sh": GREEN });
  heads.greedy = await pushed("greedy", { "greedy.sh": GREEDY });
  git("config", "filter.evil.smudge", `touch ${mark("filter")}; cat`);
  git("config", "filter.evil.required", "true");
  git("config", "filter.lfs.smudge", `touch ${mark("lfs")}; cat`);
  git("config", "diff.evil.textconv", `touch ${mark("textconv")}; cat`);

  kept = await readdir(join(project.dir, ".corral/ci/cache"));
  const move = (): void => void git("update-ref", "refs/heads/quiet", heads.second);
  const engineEnv = { ...process.env, DEPLOY_TOKEN: "secret-of-the-runner" };
  const end = await runCi({
    base: "main",
    head: "quiet",
    cwd: project.dir,
    out: join(project.dir, "ci-results"),
    selection: { jobs: ["test", "node"] },
    concurrency: 2,
    machine: { stateDir: project.stateDir, engineEnv },
    signal: new AbortController().signal,
    emit: () => {},
    onSource: move,
    onStart: move,
    onEnd: () => {},
  });
  const result = end.ends.find(({ step }) => step.name === "test")?.result;
  quiet = { end, printed: `${result?.stdout}\n${result?.stderr}` };

  const summary = join(canary, "summary.md");
  const env = { GITHUB_ACTIONS: "true", GITHUB_STEP_SUMMARY: summary, DEPLOY_TOKEN: "secret-of-the-runner" };
  const outcome = await project.corral(["ci", "run", "--base", "main", "--head", "green", "--job", "test"], { env });
  green = { outcome, summary: await readFile(summary, "utf8") };
}, 240_000);

afterAll(async () => {
  listener.close();
  await project[Symbol.asyncDispose]();
  await rm(canary, { recursive: true, force: true });
  await rm(dirname(mark("x")), { recursive: true, force: true });
});

describe("a hostile pull request gets nothing by", () => {
  it.each(QUIET)("$name", ({ name, got }) => {
    expect(quiet.printed).toContain(`TRIED ${name}\n`);
    expect(quiet.printed).not.toContain(`GOT ${name}`);
    expect(got?.(quiet) ?? false).toBe(false);
  });

  it("any of them on the host, or for the next run of the base", async () => {
    expect(await readdir(dirname(mark("x")))).toEqual([]);
    expect(quiet.printed).toContain("of the base");
    expect(await readdir(join(project.dir, ".corral/ci/cache"))).toEqual(kept);
    const after = await base();
    expect(after.status, after.stderr).toBe(0);
    expect(after.stdout).toContain("of the base");
    expect(after.stdout).not.toContain("poison");
    // The control: a checkout as others make it runs the filter.
    git("checkout", "-q", heads.quiet);
    expect(await readdir(dirname(mark("x")))).toContain("filter");
  });

  it("results that are links, huge, bombs or named like commands, and reports with entities", async () => {
    const { outcome, summary } = green;
    expect(outcome.status, outcome.stderr).toBe(126);
    const entries = await readdir(join(project.dir, "ci-results", "test"), { recursive: true, withFileTypes: true });
    expect(entries.filter((one) => !one.isFile() && !one.isDirectory())).toEqual([]);
    expect(entries.map(({ name }) => name)).not.toContain(".git");
    const done = carriedOut(outcome);
    expect(done.length).toBeGreaterThan(2);
    for (const line of done) expect(line).toMatch(/^::error file=[\w./-]+,line=\d+,title=corral ci::test: (?!.*##\[)/);
    expect(outcome.stderr + summary).not.toContain("root:x:");
    expect(summary).not.toContain("##[add-mask]x </script>");
    expect(summary.trim()).not.toMatch(/\n[ \t]*\n/);
  });

  it("processes that outlive the job, a fork bomb or a full disk", async () => {
    const args = ["ci", "run", "--base", "main", "--head", heads.greedy, "--job", "greedy", "--json"];
    const ran = await project.corral(args);
    expect(ran.status, ran.stderr).toBe(1);
    const steps: { status: string }[] = JSON.parse(ran.stdout).steps;
    expect(steps.map(({ status }) => status)).toEqual(["timed_out", expect.stringMatching(/^(disk_limit|failed)$/)]);
    expect(await project.cells()).toEqual([]);
    const left = (await readdir("/proc")).filter((pid) => /^\d+$/.test(pid));
    const lines = await Promise.all(left.map((pid) => readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")));
    expect(lines.filter((line) => line.split("\0").includes(HIDDEN))).toEqual([]);
  });
});
