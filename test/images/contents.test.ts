import { describe, expect, it } from "vitest";
import { openProject } from "../run/project-fixture.ts";

/** What each image is for, done in a cell for work of strangers. */
const TASKS: Readonly<Record<string, readonly (readonly [what: string, script: string, prints: RegExp])[]>> = {
  "corral/documents": [
    ["text of an office file", "soffice --headless --convert-to docx a.txt; docx2txt a.docx -", /Invoice 4711/],
    [
      "a thumbnail of an office file, and the text of its picture",
      "soffice --headless --convert-to pdf a.txt; pdftoppm -r 150 -png -singlefile a.pdf a; convert a.png -resize 64x64 s.png; file -b s.png; tesseract a.png -",
      /PNG image data, 45 x 64[\s\S]*Invoice 4711/,
    ],
    [
      "a table",
      "printf 'a,b\\n1,2\\n' > t.csv; soffice --headless --convert-to xlsx t.csv; rm t.csv; soffice --headless --convert-to csv t.xlsx; cat t.csv",
      /^1,2$/m,
    ],
  ],
  "corral/node": [
    ["a Node that is supported", "node --version", /^v24\./m],
    ["npm, without network", "npm init -y && npm pack --silent && npm ls", /work-1\.0\.0\.tgz/],
    ["corepack", "corepack --version", /^\d+\.\d+\.\d+$/m],
    ["git", "git init -q . && git status --short", /\?\? a\.txt/],
  ],
  "corral/python": [
    [
      "pip and environments",
      "python3 -m venv --without-pip v && pip --python v/bin/python list && pip --version && ls /usr/share/python-wheels/",
      // A job of `ci.yaml` unpacks these for its own environment.
      /^pip \d.*^pip-[\d.]+-py3-none-any\.whl$/ms,
    ],
  ],
};

describe.each(Object.entries(TASKS))("%s", (image, tasks) => {
  it.each(tasks)("has %s", async (_, script, prints) => {
    const command = [
      "sh",
      "-c",
      `mkdir /tmp/work && cd /tmp/work && printf 'Invoice 4711\\n' > a.txt && { ${script}; } 2>&1`,
    ];
    const worker = { image, command, policy: "untrusted" };
    await using project = await openProject({ workers: { worker } });
    const result = await project.run("worker");
    expect(result.stdout, result.stderr).toMatch(prints);
    expect(result.status).toBe("succeeded");
  });
});
