import { describe, expect, it } from "vitest";
import { parseCiYaml } from "../../../src/declarations/ci/ci-yaml.ts";
import { withWorkers } from "../../../src/declarations/ci/job-workers.ts";

const parsed = parseCiYaml(
  JSON.stringify({
    version: 1,
    jobs: {
      deps: { worker: "fetch", trust: "base", lock_files: ["deps.lock"] },
      test: { needs: ["deps"], worker: "build", env: { B: "job" }, limits: { pids: 10 } },
      lint: { worker: "build", run: "lint", image: "corral/python", environment: { apt: ["file"] } },
    },
  }),
  "ci.yaml",
);
if (!parsed.ok) throw new Error(JSON.stringify(parsed.problems));
const file = parsed.value;

const written = (worker: object) => `---\n${JSON.stringify(worker)}\n---\n`;
const FETCH = {
  image: "corral/python",
  command: ["python3", "-c", "pass"],
  sandbox: { network: { allow: ["files.example:443"], lockfiles: ["deps.lock"] } },
};
const BUILD = {
  environment: { apt: ["make"] },
  command: ["make", "a b"],
  env: { A: "worker", B: "worker" },
  limits: { pids: 50, timeout: "1m" },
};
const read = (fetch: object | null, build: object) =>
  withWorkers(
    file,
    new Map([
      ["fetch", fetch === null ? null : written(fetch)],
      ["build", written(build)],
    ]),
  );

describe("the worker of a job", () => {
  it("says what the job does not say, and fetches by its own command and network", () => {
    const checked = read(FETCH, BUILD);
    if (!checked.ok) throw new Error(JSON.stringify(checked.problems));
    const { jobs } = checked.value;
    expect(jobs.get("test")).toMatchObject({
      run: "make 'a b'",
      image: null,
      environment: { apt: ["make"] },
      limits: { pids: 10, timeoutMs: 60_000 },
    });
    expect([...(jobs.get("test")?.env ?? [])]).toEqual([
      ["A", "worker"],
      ["B", "job"],
    ]);
    expect(jobs.get("lint")).toMatchObject({ run: "lint", image: "corral/python", environment: { apt: ["file"] } });
    expect(jobs.get("deps")).toMatchObject({
      run: null,
      fetcher: { image: "corral/python", lockFiles: ["deps.lock"], network: FETCH.sandbox.network },
    });
  });

  it.each([
    ["a file that is not in the commit", null, BUILD, ["workers/fetch.worker: : is not in the commit of ci.yaml"]],
    [
      "files, callees, secrets and a policy of the host",
      FETCH,
      { ...BUILD, policy: "default", calls: ["x"], secrets: ["s"], sandbox: { working_dir: "/", paths: {} } },
      ["calls", "secrets", "policy", "sandbox.working_dir", "sandbox.paths"].map(
        (key) => `workers/build.worker: ${key}: is not for a worker of \`ci.yaml\``,
      ),
    ],
    [
      "a network beside the code of the head",
      FETCH,
      { ...BUILD, sandbox: { network: { allow: ["evil.example:443"] } } },
      ["lint", "test"].map(
        (job) =>
          `workers/build.worker: sandbox.network: is for \`trust: base\` alone: \`${job}\` runs what the head has`,
      ),
    ],
    [
      "an open network, hosts by consent, and other files",
      { ...FETCH, sandbox: { network: { dynamic: { within: ["*.example:443"] }, lockfiles: ["/etc/Cargo.lock"] } } },
      BUILD,
      [
        "workers/fetch.worker: sandbox.network.dynamic: is not for a worker",
        "workers/fetch.worker: sandbox.network.lockfiles.0: is none of `lock_files` of the job `deps`",
      ],
    ],
    [
      "an image and packages of the work tree",
      { ...FETCH, environment: { npm: "package-lock.json" } },
      { ...BUILD, image: { build: "./image" } },
      [
        "workers/fetch.worker: environment: must have lists of packages",
        "workers/build.worker: image: must be the name of an image",
      ],
    ],
  ])("cannot have %s", (_, fetch, build, expected) => {
    const checked = read(fetch, build);
    const said = checked.ok ? [] : checked.problems.map(({ file, path, message }) => `${file}: ${path}: ${message}`);
    const [some, others] = [said.toSorted(), expected.toSorted()];
    expect(some.map((one, index) => one.slice(0, others[index]?.length))).toEqual(others);
  });
});
