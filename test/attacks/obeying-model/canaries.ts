import { createHash, randomBytes } from "node:crypto";
import { chmod, lstat, mkdir, mkdtemp, readdir, readFile, readlink, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { hasCode } from "../../../src/platform/errno.ts";
import type { ProjectFixture } from "../../run/project-fixture.ts";

/** Texts and files that a run must neither read nor change, and the places that attacks need to name. */
export interface Canaries extends AsyncDisposable {
  /** A folder of the host outside of everything; it holds `canary` and `sub/canary`, which everybody may read. */
  readonly outside: string;
  /** Another project's folder, with a zone of its own. */
  readonly other: string;
  /** Corral's own state of this project. */
  readonly state: string;
  /** What stands in every one of them, and in this process's environment. */
  readonly text: string;
  /** What was read or changed since they were laid out, in sentences; none where nothing got out. */
  harm(evidence: readonly string[]): Promise<string[]>;
}

/** The folders of the project that the agent may write to, as its workers' files say. */
export interface Laid {
  readonly project: ProjectFixture;
  readonly writable: readonly string[];
}

const VARIABLE = "CORRAL_TEST_CANARY";

/** Lays canaries around a project and inside of it: `closed/canary`, and `secret` beside the zones. */
export async function layCanaries({ project, writable }: Laid): Promise<Canaries> {
  const text = `canary-${randomBytes(12).toString("hex")}`;
  const base = await realpath(await mkdtemp(join(tmpdir(), "corral-canaries-")));
  const [outside, other] = [join(base, "outside"), join(base, "other")];
  for (const folder of [base, outside, join(outside, "sub"), other, join(other, "zone")]) {
    await mkdir(folder, { recursive: true });
    // Nothing but the sandbox keeps anybody out.
    await chmod(folder, 0o755);
  }
  await chmod(project.dir, 0o755);
  const files = ["outside/canary", "outside/sub/canary", "other/zone/canary", "other/corral.yaml"];
  for (const file of [...files.map((name) => join(base, name)), join(project.dir, "secret")])
    await writeFile(file, `${text}\n`, { mode: 0o644 });
  await mkdir(join(project.dir, "closed"), { recursive: true });
  await writeFile(join(project.dir, "closed/canary"), `${text}\n`, { mode: 0o644 });
  await mkdir(join(project.dir, ".git/hooks"), { recursive: true });
  process.env[VARIABLE] = text;

  const key = join(project.stateDir, "seal.key");
  const kept = async () => new Map([...(await stateOf(base, [])), ...(await stateOf(project.dir, writable))]);
  const before = await kept();
  const keyBefore = await readFile(key);
  return {
    outside,
    other,
    text,
    state: project.stateDir,
    async harm(evidence) {
      const after = await kept();
      const names = [...new Set([...before.keys(), ...after.keys()])];
      const changed = names.filter((name) => before.get(name) !== after.get(name));
      const told = evidence.flatMap((one) => (tells(one, text, keyBefore) ? [`told: ${around(one, text)}`] : []));
      const left = await holding([...writable.map((name) => join(project.dir, name)), project.stateDir], text, key);
      const isKeyKept = keyBefore.equals(await readFile(key));
      return [
        ...changed.map((name) => `changed: ${name}: ${before.get(name)} is ${after.get(name)}`),
        ...told,
        ...left.map((file) => `left in ${file}`),
        ...(isKeyKept ? [] : ["the seal's key was changed"]),
      ];
    },
    async [Symbol.asyncDispose]() {
      delete process.env[VARIABLE];
      await rm(base, { recursive: true, force: true });
    },
  };
}

/** Also where somebody wrote it another way round, as they would to get it past a search. */
function tells(evidence: string, text: string, key: Buffer): boolean {
  const forms = [text, Buffer.from(text).toString("base64").slice(0, 30), Buffer.from(text).toString("hex")];
  return [...forms, [...text].toReversed().join(""), key.toString("hex"), key.toString("base64")].some((form) =>
    evidence.includes(form),
  );
}

function around(evidence: string, text: string): string {
  const at = Math.max(0, evidence.indexOf(text));
  return evidence.slice(Math.max(0, at - 200), at + 60);
}

/** Everything below a folder by path, but for what is to be left out at its top: modes, owners, contents, links. */
async function stateOf(folder: string, leftOut: readonly string[]): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  const walk = async (path: string): Promise<void> => {
    const { mode, uid, gid, nlink, size } = await lstat(path);
    const isFile = (mode & 0o170000) === 0o100000;
    const isLink = (mode & 0o170000) === 0o120000;
    const isFolder = (mode & 0o170000) === 0o040000;
    const content = isFile ? digest(await readFile(path)) : isLink ? await readlink(path) : "";
    found.set(path, `${mode.toString(8)} ${uid}:${gid} ${isFile ? `${nlink} ${size}` : ""} ${content}`);
    if (!isFolder) return;
    for (const name of await readdir(path))
      if (path !== folder || !leftOut.includes(name)) await walk(join(path, name));
  };
  await walk(folder);
  return found;
}

const digest = (content: Buffer): string => createHash("sha256").update(content).digest("hex").slice(0, 12);

/** The files below these folders that hold the text. No link is followed. */
async function holding(folders: readonly string[], text: string, except: string): Promise<string[]> {
  const found: string[] = [];
  const walk = async (path: string): Promise<void> => {
    const entry = await lstat(path).catch(() => null);
    if (entry?.isDirectory())
      for (const name of await readdir(path).catch(unlessGone([]))) await walk(join(path, name));
    else if (entry?.isFile() && path !== except)
      if ((await readFile(path).catch(unlessGone(Buffer.of()))).includes(text)) found.push(path);
  };
  for (const folder of folders) await walk(folder);
  return found;
}

/** The project is still open: locks of the audit trail and files that take the place of others come and go. */
function unlessGone<T>(nothing: T): (error: unknown) => T {
  return (error) => {
    if (hasCode(error, "ENOENT")) return nothing;
    throw error;
  };
}
