import { afterAll, beforeAll, expect, it } from "vitest";
import { type CliProject, cliProject, sh } from "./cli-project.ts";

const files = ["a", "b"].map((name) => [
  `node_modules/${name}`,
  {
    resolved: `https://registry.npmjs.org/${name}/-/${name}-1.0.0.tgz`,
    integrity: `sha512-${Buffer.alloc(64, name).toString("base64")}`,
  },
]);
const network = {
  allow: ["tunnel.example:443", { to: "api.example:443", methods: ["GET"] }, { to: "b.example:81", paths: ["/x"] }],
  packages: ["npm", "pypi"],
  lockfiles: ["package-lock.json"],
};
const env = {
  PIP_INDEX_URL: "https://someone:hidden@index.example/simple/",
  PIP_EXTRA_INDEX_URL: "ftp://other:hidden@index.example/",
};

let project: CliProject;
beforeAll(async () => {
  project = await cliProject({
    yaml: { version: 1, policy: "default", policies: "./policies", sandbox: { zones: {}, network } },
    workers: {
      locked: { command: sh("true"), sandbox: { network }, calls: ["narrow"] },
      narrow: { command: sh("true") },
      greedy: { command: sh("true"), sandbox: { network: { packages: ["npm", "crates"] } } },
      plain: { command: sh("true") },
      installs: { command: sh("true"), root: "writable", policy: "loose" },
    },
    files: {
      "policies/loose.yaml":
        "name: loose\ndescription: packages\nextends: default\nhardening: { read_only_root: { value: false, why: a test installs packages } }\n",
      "package-lock.json": JSON.stringify({ lockfileVersion: 3, packages: Object.fromEntries(files) }),
    },
  });
});
afterAll(async () => {
  await project[Symbol.asyncDispose]();
});

const NOTES = [
  "An index of pip names a user, who is left out.",
  "An index of pip is a ftp: address, which is not on the network; it is not used.",
];

it("corral explain says what a program in the container writes for a host that is looked into", async () => {
  const { stdout } = await project.corral(["explain", "locked"], { env });
  expect(stdout).toMatch(/ tunnel\.example:443$/m);
  expect(stdout).toContain("api.example:443 (GET), in the container http://api.example/\n");
  expect(stdout).toContain("b.example:81 (/x), in the container http://b.example:81/\n");
  expect(stdout).toContain(
    "(GET HEAD, 2 files of lock files, packages npm), in the container http://registry.npmjs.org/\n",
  );
});

it("corral explain says whether a worker writes its root file system", async () => {
  expect((await project.corral(["explain", "installs"], { env })).stdout).toMatch(
    /^ {2}root {2,}its sessions write \/etc/m,
  );
  expect((await project.corral(["explain", "plain"], { env })).stdout).not.toMatch(/^ {2}root /m);
});

it("corral explain and corral check say which registries of this machine are not used, without their users", async () => {
  const shown = await project.corral(["explain", "locked"], { env });
  const checked = await project.corral(["check"], { env });
  for (const note of NOTES) {
    expect(shown.stdout).toContain(`note: ${note}\n`);
    expect(checked.stdout).toContain(`warning ${note}\n`);
    expect(shown.stdout.split(note)).toHaveLength(2);
  }
  expect(shown.stdout + checked.stdout).not.toMatch(/hidden|someone|other:/);
  expect((await project.corral(["explain", "plain"], { env })).stdout).not.toContain("pip");
});

it("the files of lock files are a number in the JSON of explain, and in violations", async () => {
  const json = async (name: string) => {
    const { stdout } = await project.corral(["explain", name, "--json"], { env });
    expect(stdout).not.toContain("sha512-");
    return JSON.parse(stdout).tree;
  };
  const rule = { to: "registry.npmjs.org:443", artifacts: 2, packages: "npm" };
  const { sandbox, calls } = await json("locked");
  expect(sandbox.network.allow).toContainEqual(expect.objectContaining(rule));
  const lost = calls[0].narrowings.find(
    ({ kind, by }: { kind: string; by: string }) => kind === "network" && by === "narrow",
  );
  expect(lost).toMatchObject({ to: false, from: { allow: expect.arrayContaining([expect.objectContaining(rule)]) } });
  const greedy = await json("greedy");
  expect(greedy.refused[0].has.allow).toContainEqual(expect.objectContaining(rule));
  expect(greedy.refused[0].exceeding[0].rule).toMatchObject({ packages: "crates" });
  const refused = await project.corral(["run", "greedy", "--json"], { env });
  expect(refused.stdout).not.toContain("sha512-");
  expect(JSON.parse(refused.stdout).violations[0].has.allow).toContainEqual(expect.objectContaining(rule));
});
