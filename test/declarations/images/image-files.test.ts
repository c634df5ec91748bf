import { symlink } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { loadProject } from "../../../src/declarations/project.ts";
import { DeclarationError } from "../../../src/declarations/yaml/problem.ts";
import { projectFolder } from "../project-folder.ts";

const DOCKERFILE = "FROM corral/base\n";

/** The messages of a project whose one worker has this front matter; empty if it has no mistake. */
async function mistakesOf(
  image: string,
  { yaml = "version: 1\n", files = {} }: { yaml?: string; files?: Record<string, string> } = {},
  prepare: (dir: string) => Promise<void> = async () => {},
): Promise<string[]> {
  const worker = `---\n${image}\ncommand: [x]\n---\n`;
  const dir = await projectFolder({ "corral.yaml": yaml, "workers/w.worker": worker, ...files });
  await prepare(dir);
  try {
    await loadProject(dir);
    return [];
  } catch (error) {
    if (!(error instanceof DeclarationError)) throw error;
    return error.problems.map(({ line, path, message }) => `${line} ${path}: ${message}`);
  }
}

describe("the image of a worker", () => {
  it("may be a name, a folder or an image of a registry with its digest", async () => {
    const files = { "images/ocr/Dockerfile": DOCKERFILE };
    const digest = `sha256:${"a".repeat(64)}`;
    for (const image of [
      "image: corral/python",
      "image: { build: ./images/ocr/ }",
      `image: { pull: "python:3.13-slim", digest: "${digest}" }`,
      `image: { pull: "127.0.0.1:5000/team/tool", digest: "${digest}" }`,
    ])
      expect(await mistakesOf(image, { files })).toEqual([]);
  });

  it.each([
    ["image: { build: images/none }", "2 image: `images/none` does not exist"],
    ["image: { build: images/empty }", "2 image: `images/empty` has no Dockerfile"],
    ["image: { build: corral.yaml }", "2 image: `corral.yaml` is not a folder"],
    ["image: { build: . }", "2 image: `.` must be inside of the project's folder"],
    ["image: { build: ../elsewhere }", "2 image: `../elsewhere` must be inside of the project's folder"],
    ["image: { build: /etc }", "2 image: `/etc` must be inside of the project's folder"],
    ["image: { build: images/ocr, pull: debian }", "2 image: needs either `build` or `pull`"],
    ["image: { buidl: images/ocr }", expect.stringContaining("did you mean `build`?")],
    [
      "image: { pull: 'debian:12' }",
      "2 image: needs `digest: sha256:…`, because a registry can change what a name means; `corral images pull debian:12` prints it",
    ],
    ["image: { pull: 'debian:12', digest: sha256:12 }", "2 image.digest: must be `sha256:` and 64 hexadecimal digits"],
    ["image: { pull: '-x' }", "2 image.pull: must be an image of a registry such as `python:3.13-slim`"],
    ["image: []", "2 image: must be the name of an image, `{ build: FOLDER }` or `{ pull: NAME, digest: sha256:… }`"],
  ])("%s is refused", async (image, message) => {
    const files = { "images/ocr/Dockerfile": DOCKERFILE, "images/empty/x": "" };
    expect(await mistakesOf(image, { files })).toContainEqual(message);
  });

  it("is not built from where a worker may write", async () => {
    const files = { "images/ocr/Dockerfile": DOCKERFILE };
    const zone = (path: string) => `version: 1\nsandbox: { mode: direct, zones: { z: { path: ${path}, mode: rw } } }\n`;
    const where = "2 image: `images/ocr` is where a worker may write; a worker could change what Corral runs there";
    for (const path of ["./images", "./images/ocr", "."])
      expect(await mistakesOf("image: { build: images/ocr }", { files, yaml: zone(path) })).toEqual([where]);
    expect(
      await mistakesOf("image: { build: images/ocr }", {
        files,
        yaml: "version: 1\nsandbox: { mode: direct, zones: { z: { path: ./images } } }\n",
      }),
    ).toEqual([]);
    const own = "image: { build: images/ocr }\nsandbox: { paths: { mine: { root: ./images, mode: rw } } }";
    expect(await mistakesOf(own, { files })).toEqual([where]);
  });

  it("is not built from a folder behind a symbolic link", async () => {
    const files = { "real/ocr/Dockerfile": DOCKERFILE };
    const linked = await mistakesOf("image: { build: images/ocr }", { files }, (dir) =>
      symlink("real", join(dir, "images")),
    );
    expect(linked).toEqual(["2 image: `images/ocr` leads through a symbolic link; use the real path"]);
  });

  it("is one of the project's own files, so that the root form mounts it read-only", async () => {
    const yaml = "version: 1\nsandbox: { root: { root: . } }\n";
    const dir = await projectFolder({
      "corral.yaml": yaml,
      "workers/w.worker": "---\nimage: { build: images/ocr }\ncommand: [x]\n---\n",
      "images/ocr/Dockerfile": DOCKERFILE,
    });
    const project = await loadProject(dir);
    expect(project.ownFiles).toContain(join(dir, "images/ocr"));
    expect(project.declaration.mounts.find(({ path }) => path === "/images")?.mode).toBe("ro");
  });
});

describe("packages that a worker names", () => {
  it("may be lists of names with versions", async () => {
    const environment =
      'environment: { pip: [lxml==5.3.0, "requests[socks]>=2,<3"], npm: ["@acme/demo", cowsay@^1.6.0] }';
    expect(await mistakesOf(environment)).toEqual([]);
  });

  it.each([
    ["pip: ['-r other.txt']", "environment.pip.0: must be a package of Python"],
    ["pip: ['x @ https://example.org/x.whl']", "environment.pip.0: must be a package of Python"],
    ["pip: [./x]", "environment.pip.0: must be a package of Python"],
    ["pip: ['x --index-url=https://example.org']", "environment.pip.0: must be a package of Python"],
    ["npm: [git+https://example.org/x]", "environment.npm.0: must be a package of npm"],
    ["npm: ['x@file:../y']", "environment.npm.0: must be a package of npm"],
    ["npm: ['x@npm:y']", "environment.npm.0: must be a package of npm"],
    ["npm: [../x]", "environment.npm.0: must be a package of npm"],
    ["npm: []", "environment.npm: "],
  ])("name no other place: %s", async (environment, message) => {
    const [mistake = ""] = await mistakesOf(`environment: { ${environment} }`);
    expect(mistake).toContain(message);
  });
});
