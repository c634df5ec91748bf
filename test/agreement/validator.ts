import fs from "node:fs";
import { dirname } from "node:path";
import type { GuardedFiles } from "../../src/files/guarded.ts";
import { hostPathOf } from "../../src/sandbox/access.ts";
import { SandboxError } from "../../src/sandbox/errors.ts";
import type { Sandbox } from "../../src/sandbox/sandbox.ts";
import type { VirtualPath } from "../../src/sandbox/virtual-path.ts";
import { lookAt } from "./disk.ts";
import type { Abilities } from "./probe.ts";

/** What the validator lets the worker do without asking anybody: it is asked, and then each thing is really tried. */
export async function validated(files: GuardedFiles, sandbox: Sandbox, text: string): Promise<Abilities> {
  const path = await allowed(async () => files.resolve(text));
  const place = path?.ok ? path.path : null;
  const read = await allowed(() => files.read(text));
  const list = await allowed(() => files.list(text));
  const query = await allowed(() => files.inspect(text));
  const write = isFree(files, text) && (await wrote(files, sandbox, text, place));
  contradicted(text, "read", read !== null && query !== null && !query.readable);
  contradicted(text, "write", write && query !== null && !query.writable);
  return { read: read !== null, list: list !== null, write };
}

/** A cell has a place writable only where neither writing nor deleting must be asked for. */
function isFree(files: GuardedFiles, text: string): boolean {
  try {
    const needs = [...files.needs("write", text), ...files.needs("delete", text)];
    return needs.every(({ consent }) => consent === "pre_approved");
  } catch (error) {
    if (error instanceof SandboxError) return false;
    throw error;
  }
}

/** Appends nothing, which makes a file where there is none; and takes back what that made. */
async function wrote(files: GuardedFiles, sandbox: Sandbox, text: string, path: VirtualPath | null): Promise<boolean> {
  let host = path === null ? null : hostPathOf(sandbox, path);
  let made: string | null = null;
  for (; host !== null && lookAt(host) === null; host = dirname(host)) made = host;
  const done = await allowed(() => files.append(text, ""));
  // Nothing can be made or removed through a link that leads to itself.
  if (made !== null && lookAt(made) !== null) fs.rmSync(made, { recursive: true, force: true });
  return done !== null;
}

async function allowed<Answer>(act: () => Promise<Answer>): Promise<Answer | null> {
  try {
    return await act();
  } catch (error) {
    if (error instanceof SandboxError) return null;
    throw error;
  }
}

function contradicted(text: string, what: string, wrong: boolean): void {
  if (wrong) throw new Error(`at ${JSON.stringify(text)} a ${what} was done, which the query says cannot be done`);
}
