import { randomUUID } from "node:crypto";
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Readable } from "node:stream";
import type Docker from "dockerode";
import { z } from "zod";
import { nullFor } from "../../../platform/errno.ts";
import { sha256 } from "../../../platform/sha256.ts";
import { writeAtomically, writeIfMissing } from "../../../platform/write-file.ts";
import { currentOwner, formatOwner, loadSealKey, sealOf } from "../../../state/owner.ts";
import { makeClosedDir, statePaths } from "../../../state/state-dir.ts";
import { BASE_NAME, IMAGE_PREFIX, ImageBuildError } from "../../port/images.ts";
import { untilGone } from "../answers/asked.ts";
import { type ImagesRequest, inspectImage, readRecord } from "./catalog.ts";

const GATE_PATH = "/usr/lib/corral/gate";
const MAX_BYTES = 16 * 1024 * 1024;
type GateRequest = Omit<ImagesRequest, "imagesDir">;
const GateRecord = z.object({ baseId: z.string(), sha256: z.string().regex(/^[0-9a-f]{64}$/) });

/**
 * The host path of the static busybox that starts every worker, extracted from corral/base.
 *
 * Extracted once for each base image, and again if the file was changed.
 */
export async function gateBinary(request: GateRequest): Promise<string> {
  const { docker, stateDir } = request;
  const { tag, baseId } = await baseOf(request);
  const known = await gateOf(baseId, stateDir);
  if (known !== null) return known;
  const gateDir = statePaths(stateDir).gate;
  const binary = await readFromImage(docker, baseId, stateDir);
  if (!binary.subarray(0, 4).equals(ELF_MAGIC))
    throw new ImageBuildError(tag, `${GATE_PATH} in it is not an executable`);
  const digest = sha256(binary);
  await makeClosedDir(stateDir);
  await mkdir(join(gateDir, digest), { recursive: true, mode: 0o755 });
  const file = join(gateDir, digest, "busybox");
  // Replaced only if its content does not match its name: other orchestrators may be starting cells with this file.
  if (!(await writeIfMissing(file, binary, { mode: 0o555 })) && (await sha256OfFile(file)) !== digest)
    await writeAtomically(file, binary, { mode: 0o555 });
  await writeAtomically(recordIn(gateDir), JSON.stringify({ baseId, sha256: digest }));
  return file;
}

/** The gate of the current base image, if it was extracted before and not changed since; else null. */
export async function knownGate(request: GateRequest): Promise<string | null> {
  return await gateOf((await baseOf(request)).baseId, request.stateDir);
}

async function baseOf({ docker, prefix = IMAGE_PREFIX }: GateRequest): Promise<{ tag: string; baseId: string }> {
  const tag = `${prefix}/${BASE_NAME}`;
  const base = await inspectImage(docker, tag);
  if (!base) throw new ImageBuildError(tag, `it is not built. Run: corral images build ${BASE_NAME}`);
  return { tag, baseId: base.Id };
}

async function gateOf(baseId: string, stateDir: string): Promise<string | null> {
  const gateDir = statePaths(stateDir).gate;
  const known = GateRecord.safeParse(await readRecord(recordIn(gateDir))).data;
  if (known?.baseId !== baseId) return null;
  const file = join(gateDir, known.sha256, "busybox");
  return (await sha256OfFile(file)) === known.sha256 ? file : null;
}

function recordIn(gateDir: string): string {
  return join(gateDir, "gate.json");
}

const ELF_MAGIC = Buffer.from("\x7fELF", "latin1");

/** Reads from a container that is created and never started. Its labels name its owner, which may die before it is removed. */
async function readFromImage(docker: Docker, imageId: string, stateDir: string): Promise<Buffer> {
  const name = `corral-gate-${randomUUID()}`;
  const container = await docker.createContainer({
    name,
    Image: imageId,
    Cmd: ["/bin/false"],
    Labels: await ownerLabels(name, stateDir),
    HostConfig: { NetworkMode: "none" },
  });
  let response: NodeJS.ReadableStream | undefined;
  try {
    // Loaded only here: it is needed once for each base image, not at every start.
    const { extract } = await import("tar-stream");
    response = await container.getArchive({ path: GATE_PATH });
    const archive = response.pipe(extract());
    for await (const entry of archive) {
      if (entry.header.type !== "file" || (entry.header.size ?? 0) > MAX_BYTES) break;
      return Buffer.concat(await Array.fromAsync(entry as AsyncIterable<Buffer>));
    }
    throw new Error(`${GATE_PATH} in the image is not a file of at most ${MAX_BYTES} bytes`);
  } finally {
    // A response that is not read to its end would keep its connection, and this process, for minutes.
    (response as Readable | undefined)?.destroy();
    await untilGone(() => container.remove({ force: true }));
  }
}

async function ownerLabels(name: string, stateDir: string): Promise<Record<string, string>> {
  const owner = formatOwner(currentOwner());
  const seal = sealOf(await loadSealKey(stateDir), { kind: "container", name, run: name, owner });
  const fields = { run: name, root: name, parent: "", worker: "", owner, plan: "", seal };
  return Object.fromEntries(Object.entries(fields).map(([field, value]) => [`dev.corral.${field}`, value]));
}

async function sha256OfFile(file: string): Promise<string | null> {
  return readFile(file).then(sha256, nullFor("ENOENT"));
}
