import { randomBytes } from "node:crypto";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { ADDRESSES, hostileRegistry, npmFiles, packageProject } from "../run/images/package-project.ts";
import type { RegistryServer } from "../run/packages/registry-server.ts";
import type { ProjectFixture } from "../run/project-fixture.ts";
import { isAgain } from "../tiers/again.ts";

/* Packages whose install scripts attack the machine that prepares them, and the runs that use them. */

const opened: AsyncDisposable[] = [];
afterAll(async () => {
  for (const one of opened.toReversed()) await one[Symbol.asyncDispose]();
});

const CANARY = `canary-${randomBytes(8).toString("hex")}`;
const DEMO = "/env/node/node_modules/@acme/demo";

async function open(script: string, command: string[] = ["cat", `${DEMO}/found`]): Promise<ProjectFixture> {
  const server: RegistryServer = await hostileRegistry(script);
  opened.push(server);
  const worker = {
    image: "corral/node",
    environment: { npm: "app/package-lock.json", addresses: ADDRESSES },
    sandbox: { zones: [{ name: "secret" }] },
    command,
  };
  const project = await packageProject(
    server,
    worker,
    { ...npmFiles(server), "secret/key": CANARY, "other/key": CANARY },
    { secret: "ro" },
  );
  opened.push(project);
  return project;
}

async function leftIn({ stateDir }: ProjectFixture): Promise<string[]> {
  return (await readdir(join(stateDir, "environments"))).filter((name) => !name.endsWith(".lock"));
}

describe("the install script of a package", () => {
  it("sees nothing of the project, the host or the run that waits for it, and reaches no other host", async () => {
    const project = await open(`
      exec > found 2> errors
      id -u; grep CapEff /proc/self/status | tr -d '\\t'; grep NoNewPrivs /proc/self/status | tr -d '\\t'
      ls -d /secret /project /app /attachments /.corral/socket 2>/dev/null
      env | grep -c -e CORRAL_SOCKET -e DOCKER -e CORRAL_STATE
      awk '$2 ~ /^\\/env/ || $2 ~ /^\\/secret/ { print $2 }' /proc/mounts
      node -e "for (const host of ['93.184.216.34', '169.254.169.254', 'example.org', '127.0.0.1'])
        fetch('http://' + host + '/', {signal: AbortSignal.timeout(3000)}).then((r) => console.log('reached', r.status), () => console.log('not reached'))"
      grep -r ${CANARY} / --include=key -s | head -1
      touch /usr/x /etc/x /node_modules/x 2>/dev/null && echo written
      exit 0
    `);
    const result = await project.run("w");
    expect(result, JSON.stringify(result.error)).toMatchObject({ status: "succeeded" });
    expect(result.stdout.split("\n")).toEqual([
      "65532",
      "CapEff:0000000000000000",
      "NoNewPrivs:1",
      "0",
      "/env/node",
      ...Array<string>(4).fill("not reached"),
      "",
    ]);
    expect(await project.traces()).toEqual([]);
  });

  // The host judges what was installed, by `closeTree`, whose own test has every kind of link and file.
  it.skipIf(isAgain()).each([
    [
      "a link upwards",
      "ln -s ../../../../../../etc ./x",
      "node_modules/@acme/demo/x is a link that may lead out of it",
    ],
    [
      "a link in place of a folder",
      "rm -rf /env/node/node_modules/.bin; ln -s /etc /env/node/node_modules/.bin",
      "node_modules/.bin is a link that may lead out of it",
    ],
  ])("cannot leave %s", async (_, script, refusal) => {
    const project = await open(`${script}\nexit 0`);
    const result = await project.run("w");
    expect(result.violations).toMatchObject([
      { code: "IMAGE_NOT_MADE", reason: `what was installed is refused: ${refusal}` },
    ]);
    expect(await leftIn(project)).toEqual([]);
  });

  it("cannot leave a setuid program", async () => {
    const project = await open("cp /bin/true ./x; chmod 4755 ./x && echo made > found || echo refused > found; exit 0");
    const result = await project.run("w");
    const refused = result.violations.map((violation) => "reason" in violation && violation.reason);
    if (result.status === "succeeded") expect(result.stdout).toBe("refused\n");
    else expect(refused).toEqual([expect.stringContaining("is setuid or setgid")]);
  });

  it.skipIf(isAgain())("cannot go on when the packages are checked and used", async () => {
    const script =
      "(sleep 2; while :; do echo later > found; sleep 0.1; done) > /dev/null 2>&1 &\necho first > found; exit 0";
    const project = await open(script, ["sh", "-c", `sleep 4; cat ${DEMO}/found; ls -l ${DEMO}/found | cut -c1-10`]);
    expect((await project.run("w")).stdout).toBe("first\n-rw-r--r--\n");
  });
});
