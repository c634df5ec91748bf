import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { CommitFiles } from "../../src/git/stage.ts";
import { ciSource } from "../../src/operations/ci/run-ci.ts";
import { carriedOut } from "../attacks/ci/carried-out.ts";
import { strictXml } from "../fleet/report/strict-xml.ts";
import { cliProject } from "./cli-project.ts";

const JOB = `test -e dep.txt
mkdir -p reports dist kept
if [ -e kept/tree ]; then cat kept/tree; else echo made by the base > kept/tree; fi
echo '<testsuite><testcase name="one" file="build.sh"/></testsuite>' > reports/a.xml
perl -MIO::Socket -e '$s = IO::Socket::INET->new("web:8080") or die "no service"; print $s "GET /top HTTP/1.0\\r\\n\\r\\n"; print <$s>'
sh ./build.sh`;

/** The client in the job is perl, which each image of Debian has. */
const WEB = `mkdir /tmp/www; id > /tmp/www/id; ls / > /tmp/www/top
cd /tmp/www && exec python3 -m http.server 8080 --bind 127.0.0.1`;

const CI = (run: string) =>
  JSON.stringify({
    version: 1,
    jobs: {
      deps: { worker: "fetch", trust: "base", lock_files: ["dep.txt"] },
      first: { worker: "look", needs: ["deps"] },
      test: {
        image: "corral/base",
        needs: ["first"],
        run,
        matrix: { part: ["a", "b"] },
        reports: { junit: "reports/*.xml" },
        artifacts: ["dist/**"],
        services: { web: { image: "corral/python", run: WEB, ports: [8080] } },
        cache: [{ path: "kept", key: ["dep.txt"] }],
      },
      after: { image: "corral/base", needs: ["test"], run: "echo after" },
    },
  });

/** Both are the base's. */
const WORKERS = {
  fetch: { command: ["sh", "-c", "ls; tr 1-9 a-i < dep.txt > /work/fetched/made"] },
  look: { command: ["sh", "-c", 'echo "$WORD"; cat /work/fetched/deps/made'], env: { WORD: "the base's" } },
};
const OTHERS = { fetch: { command: ["echo", "forged"] }, look: { command: ["echo", "forged"] } };

const HOSTILE = `echo '::error::forged'
ln -s /etc/passwd dist/link
echo good > dist/file
echo poison > kept/tree
perl -MIO::Socket -e 'exit !IO::Socket::INET->new(PeerAddr => "172.17.0.1:22", Timeout => 2)' && echo 'a network'
env | grep -iE 'token|secret|SSH_' && echo 'a secret'
ls /var/run/docker.sock 2> /dev/null && echo 'a socket'
exit 7`;

it("corral ci runs the base's jobs on the head, whatever the head says of them, and keeps for others what the base made alone", async () => {
  await using project = await cliProject({
    yaml: null,
    workers: WORKERS,
    files: { "ci.yaml": CI(JOB), "dep.txt": "1\n", "build.sh": "echo built > dist/file\n" },
  });
  const git = (...args: string[]) =>
    execFileSync("git", ["-c", "user.name=a", "-c", "user.email=a@localhost", ...args], { cwd: project.dir });
  git("init", "-q", "-b", "main");
  git("add", ".");
  git("commit", "-qm", "base");

  const good = await project.corral(["ci", "run", "--base", "main", "--head", "main"]);
  expect(good, good.stderr).toMatchObject({ status: 0 });
  expect(good.stderr).toContain("5 steps, all succeeded");
  expect(good.stdout).toContain("dep.txt\nthe base's\na\n");
  const results = join(project.dir, "ci-results");
  const parts = (await readdir(results)).filter((name) => name.startsWith("test"));
  expect(parts).toHaveLength(2);
  for (const part of parts) {
    expect(await readFile(join(results, part, "artifacts/dist/file"), "utf8")).toBe("built\n");
    expect(await readFile(join(results, part, "reports/reports/a.xml"), "utf8")).toContain("<testcase");
  }
  expect(JSON.parse(await readFile(join(results, "ci.json"), "utf8"))).toMatchObject({
    status: "succeeded",
    isTrusted: true,
    tests: { passed: 2, failed: 0 },
    trail: { hash: expect.stringMatching(/^[0-9a-f]{64}$/) },
  });
  const junit = strictXml(await readFile(join(results, "junit.xml"), "utf8"));
  expect(junit.attributes).toMatchObject({ tests: "7", failures: "0" });
  await rm(results, { recursive: true });

  git("checkout", "-qb", "pull");
  await writeFile(join(project.dir, "ci.yaml"), CI("true"));
  await writeFile(join(project.dir, "build.sh"), HOSTILE);
  for (const [name, worker] of Object.entries(OTHERS))
    await writeFile(join(project.dir, `workers/${name}.worker`), `---\n${JSON.stringify(worker)}\n---\n`);
  await symlink("/etc/passwd", join(project.dir, "link"));
  await writeFile(join(project.dir, ".gitattributes"), "* filter=evil export-subst\n");
  git("add", ".");
  git("commit", "-qm", "head");
  git("config", "filter.evil.smudge", `touch ${project.dir}/smudged`);
  git("checkout", "-q", "main");

  const bad = await project.corral(["ci", "run", "--base", "main", "--head", "pull", "--matrix", "part=a", "--json"]);
  expect(bad, bad.stderr).toMatchObject({ status: 1 });
  expect(bad.stderr).toContain("the head changes ci.yaml");
  const { steps } = JSON.parse(bad.stdout);
  expect(steps.map(({ status }: { status: string }) => status)).toEqual(["kept", "succeeded", "failed", "skipped"]);
  expect(steps[1].result.stdout).toBe("the base's\na\n");
  expect(steps[2].result).toMatchObject({ exitCode: 7 });
  const printed = JSON.stringify(steps[2].result);
  expect(printed).toContain("made by the base");
  // The service sees nothing of the head.
  expect(printed).toContain("200 OK");
  for (const none of ["work", "attachments", "cache-"]) expect(printed).not.toContain(`\\n${none}\\n`);
  for (const got of ["a network", "a secret", "a socket"]) expect(printed).not.toContain(got);
  expect(existsSync(join(project.dir, "smudged"))).toBe(false);
  const [part = ""] = (await readdir(results)).filter((name) => name.startsWith("test"));
  const artifacts = join(results, part, "artifacts");
  expect(existsSync(artifacts) ? await readdir(join(artifacts, "dist")) : []).not.toContain("link");

  const env = { GITHUB_ACTIONS: "true" };
  const step = await project.corral(["ci", "run", "--base", "main", "--head", "pull", "--matrix", "part=a"], { env });
  expect(step.stdout).toBe("");
  expect(step.stderr).toContain("\n::error::forged\n");
  expect(carriedOut(step)).toEqual([expect.stringMatching(/^::error file=ci\.yaml,line=1,title=corral ci::test /)]);

  const after = await project.corral(["ci", "run", "--base", "main", "--head", "main", "--job", "test", "--json"]);
  expect(after.status, after.stderr).toBe(0);
  expect(after.stdout).not.toContain("poison");
  expect(await project.cells()).toEqual([]);
});

it("the commits of corral ci are found once, and a head is said to change ci.yaml if it has another one, none, or one that is a link", async () => {
  const dir = await mkdtemp(join(tmpdir(), "corral-ci-source-"));
  onTestFinished(() => rm(dir, { recursive: true }));
  const git = (script: string): string =>
    execFileSync("sh", ["-ec", `git() { command git -c user.name=a -c user.email=a@localhost "$@"; }; ${script}`], {
      cwd: dir,
    }).toString();
  git("git init -q -b main; echo 'version: 1\njobs: { a: { run: x } }' > ci.yaml; git add .; git commit -qm base");
  git("git checkout -qb same; echo > other; git add .; git commit -qm same");
  git("git checkout -qb changed main; echo >> ci.yaml; git commit -qam changed");
  git("git checkout -qb none main; git rm -q ci.yaml; git commit -qm none");
  git("git checkout -qb link main; ln -sf /etc/passwd ci.yaml; git commit -qam link");
  await using files = await CommitFiles.open(dir, AbortSignal.timeout(60_000));
  const id = (of: string): string => git(`git rev-parse ${of}`).trim();
  for (const [head, isChanged] of Object.entries({ main: false, same: false, changed: true, none: true, link: true }))
    expect(await ciSource(files, { base: "main", head })).toMatchObject({
      base: id("main"),
      head: id(head),
      isChanged,
    });
  git("git checkout -qb many main; printf 1 > one; printf 1 > two; : > empty; git add .; git commit -qm many");
  const many = await files.readAll("many", ["two", "none", "one", "empty"], 10);
  expect(Object.fromEntries([...many].map(([path, text]) => [path, text === null ? null : String(text)]))).toEqual({
    two: "1",
    none: null,
    one: "1",
    empty: "",
  });
  await expect(files.readAll("many", ["one", "ci.yaml"], 10)).rejects.toThrow("ci.yaml of commit many is too large");
  await expect(files.readAll("link", ["other", "ci.yaml"], 99)).rejects.toThrow("is not a regular file");
  await expect(ciSource(files, { base: "none", head: "main" })).rejects.toThrow("has no ci.yaml");
  await expect(ciSource(files, { base: "main", head: "nowhere" })).rejects.toThrow("no commit nowhere");
});
