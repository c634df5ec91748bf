import { randomBytes } from "node:crypto";
import { symlink } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { listImages, removeImages } from "../../src/operations/images.ts";
import { openProject, type ProjectFixture, sh } from "../run/project-fixture.ts";
import { isAgain } from "../tiers/again.ts";

/* Images that a project builds from Dockerfiles which want more than an image may, in real cells. What may be in the place of a mount, `image-entries.test.ts` has. */

const opened: ProjectFixture[] = [];
afterAll(async () => {
  for (const project of opened) {
    const of = { stateDir: project.stateDir, engineEnv: process.env, project: project.corral.project };
    await removeImages(
      of,
      (await listImages(of).catch(() => [])).filter(({ kind, tag }) => kind === "build" && tag !== null),
    );
    await project[Symbol.asyncDispose]();
  }
});

const UNIQUE = randomBytes(8).toString("hex");

async function open(
  dockerfile: string,
  worker: Record<string, unknown>,
  more: { sandbox?: Record<string, unknown>; files?: Record<string, string> } = {},
): Promise<ProjectFixture> {
  const project = await openProject({
    workers: { w: { image: { build: "img" }, ...worker } },
    files: { "img/Dockerfile": `${dockerfile}\nLABEL unique=${UNIQUE}\n`, ...more.files },
    ...(more.sandbox === undefined ? {} : { sandbox: more.sandbox }),
  });
  opened.push(project);
  return project;
}

describe("an image of a project's own", () => {
  it.skipIf(isAgain())("needs no shell, no libraries and no users", async () => {
    const project = await open(
      "FROM corral/base AS base\nFROM scratch\nCOPY --from=base /usr/lib/corral/gate /bin/busybox",
      { command: ["/bin/busybox", "sh", "-c", "echo $((6 * 7)); /bin/busybox ls /"] },
    );
    const result = await project.run("w");
    expect(result.stdout, JSON.stringify(result.error)).toMatch(/^42\n/);
    expect(result.stdout).not.toContain("usr");
  });

  it("has no say in what runs first, as whom, and with which rights", async () => {
    const project = await open(
      `FROM corral/base
RUN mkdir /evil && printf '#!/bin/sh\\necho evil; exec "$@"\\n' > /evil/start && cp /evil/start /evil/head && cp /evil/start /evil/stat && chmod -R 755 /evil && \\
  cp /usr/bin/id /evil/suid && chown 0:0 /evil/suid && chmod 6755 /evil/suid
USER 0:0
WORKDIR /evil
ENV PATH=/evil:/usr/bin:/bin LD_PRELOAD=/evil/lib.so LD_LIBRARY_PATH=/evil ENV=/evil/start BASH_ENV=/evil/start gate=/evil/start IFS=/ corral_gate_command=/evil/start
VOLUME /data
ENTRYPOINT ["/evil/start"]
CMD ["/evil/start"]
ONBUILD RUN touch /onbuild
STOPSIGNAL SIGSTOP
HEALTHCHECK --interval=1s --retries=1 CMD touch /data/health; kill -9 -1
LABEL dev.corral.owner=forged dev.corral.run=forged dev.corral.made.digest=forged`,
      {
        command: sh(
          "unset LD_PRELOAD; pwd; id -u; id -g; /evil/suid -u; grep -e CapEff -e NoNewPrivs /proc/self/status | tr -d '\\t'; sleep 3; ls /data; /usr/bin/stat -f -c %T /data; touch /evil/x || echo read-only",
        ),
      },
    );
    const result = await project.run("w");
    expect(result.stdout.split("\n"), JSON.stringify(result.error)).toEqual([
      "/",
      "65532",
      "65532",
      "65532",
      "CapEff:0000000000000000",
      "NoNewPrivs:1",
      "tmpfs",
      "read-only",
      "",
    ]);
    expect(await project.traces()).toEqual([]);
  });

  it.skipIf(isAgain())("is not built from a folder with a link out of it", async () => {
    const project = await open("FROM corral/base\nCOPY . /context", { command: ["cat", "/context/passwd"] });
    await symlink("/etc/passwd", join(project.dir, "img/passwd"));
    expect((await project.run("w")).violations).toMatchObject([
      { code: "IMAGE_NOT_MADE", reason: expect.stringContaining("passwd is a symbolic link, which no build takes") },
    ]);
  });
});
