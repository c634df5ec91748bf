import { describe, expect, it } from "vitest";
import { parseWorker } from "../../../src/declarations/worker/worker.ts";
import { systemPrompt } from "../../../src/run/agent/agent-run.ts";
import { mount, project } from "../../sandbox/sandboxes.ts";

const worker = parseWorker("---\nmodel: openai/m\n---\nSum it up.\n", "clerk.worker");

describe("what a model is told of where it is", () => {
  it("names what it can read and write, and which files are shown where", () => {
    const sandbox = project([
      mount("/inbox", "ro", { suffixes: [".md", ".txt"], maxFileBytes: 1024 }),
      mount("/notes", "rw"),
    ]);
    const prompt = systemPrompt({ worker, attachments: [] }, sandbox);
    expect(prompt).toMatch(/^Sum it up\.\n\nYou are the worker clerk\./);
    expect(prompt).toContain(
      "Readable paths: /inbox, /notes. Writable paths: /notes. In /inbox only files ending in .md, .txt and of at most 1 KiB are visible.\n",
    );
    // Only what a worker calls its directories is told.
    expect(prompt).not.toMatch(/zone|\/host/);
  });

  it("says that there are none where there are none", () => {
    expect(systemPrompt({ worker, attachments: [] }, project([]))).toContain(
      "Readable paths: none. Writable paths: none.\n",
    );
    const attachments = [{ name: "in.pdf", host: "/host/in.pdf" }];
    const prompt = systemPrompt({ worker, attachments }, project([]));
    expect(prompt).toContain("Readable paths: /attachments. Writable paths: none.\n");
  });
});
