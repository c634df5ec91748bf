import { execFile, execFileSync } from "node:child_process";
import { mkdir, mkdtemp, realpath, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { loadProject } from "../../src/declarations/project.ts";
import { openedEngine } from "../../src/isolation/engine/capabilities.ts";
import { connect } from "../../src/isolation/engine/open.ts";
import { pinSources } from "../../src/isolation/sources/pin.ts";
import { type RefusedSources, refusedSourcesFor } from "../../src/isolation/sources/refused-sources.ts";

let dir: string;
let stateDir: string;
let engineData: string[];
let engineSocket: string;
const mounted: string[] = [];

beforeAll(async () => {
  dir = await realpath(await mkdtemp(join(tmpdir(), "corral-src-")));
  stateDir = join(dir, "home/state/corral");
  await mkdir(join(stateDir, "live"), { recursive: true });
  await mkdir(join(dir, "home/beside"));
  const { docker, socketPath } = await connect({});
  engineData = [...(await openedEngine(docker)).dataDirs];
  engineSocket = await realpath(socketPath ?? "");
});
afterEach(() => {
  for (const place of mounted.splice(0).reverse()) execFileSync("umount", [place]);
});
afterAll(() => rm(dir, { recursive: true, force: true }));

/** As for a run: made before it, of the mounts that there are then. */
function refusedNow(): RefusedSources {
  return refusedSourcesFor(stateDir, { data: engineData, sockets: [engineSocket] });
}

async function reasonFor(host: string): Promise<string | null> {
  const pinning = await pinSources([host], refusedNow());
  if (!pinning.ok) return pinning.refusals[0]?.reason ?? "";
  await pinning.pins[Symbol.asyncDispose]();
  return null;
}

async function bind(source: string, name: string): Promise<string> {
  const place = join(dir, name);
  await mkdir(place, { recursive: true });
  execFileSync("mount", ["--bind", source, place]);
  mounted.push(place);
  return place;
}

describe("a mount source that would give the host away is refused", () => {
  it.each([
    ["/", "it is the whole file system"],
    ["/etc", "it lies in a directory of the operating system"],
    ["/etc/ssl", "it lies in a directory of the operating system"],
    ["/etc/passwd", "it lies in a directory of the operating system"],
    ["/proc", "it lies in a directory of the operating system"],
    ["/proc/self", "it lies in a directory of the operating system"],
    ["/proc/1/root", "it lies in a directory of the operating system"],
    ["/sys", "it lies in a directory of the operating system"],
    ["/sys/fs/cgroup", "it lies in a directory of the operating system"],
    ["/dev", "it lies in a directory of the operating system"],
    ["/dev/shm", "it lies in a directory of the operating system"],
    ["/boot", "it lies in a directory of the operating system"],
    ["/run", "it holds the Engine's socket"],
    ["/var/lib", "it holds the Engine's data"],
    ["/var", "it holds the Engine's data"],
  ])("%s: %s", async (host, reason) => {
    expect(await reasonFor(host)).toBe(reason);
  });

  it("the Engine's socket, and what holds it", async () => {
    expect(await reasonFor(engineSocket)).toBe("it lies in the Engine's socket");
    expect(await reasonFor(dirname(engineSocket))).toMatch(/^it holds/);
  });

  it("the Engine's data, wherever the Engine says that it is", async () => {
    for (const data of engineData) expect(await reasonFor(join(data, "volumes"))).toBe("it lies in the Engine's data");
  });

  it("Corral's own state, what is in it, and every directory above it", async () => {
    expect(await reasonFor(stateDir)).toBe("it lies in Corral's own state");
    expect(await reasonFor(join(stateDir, "live"))).toBe("it lies in Corral's own state");
    expect(await reasonFor(dirname(stateDir))).toBe("it holds Corral's own state");
    expect(await reasonFor(dir)).toBe("it holds Corral's own state");
  });

  it("but not what only stands beside it, or begins with the same letters", async () => {
    await mkdir(`${stateDir}-notes`, { recursive: true });
    expect(await reasonFor(`${stateDir}-notes`)).toBeNull();
    expect(await reasonFor(join(dir, "home/beside"))).toBeNull();
  });

  it("through a bind mount of it in another place", async () => {
    expect(await reasonFor(await bind("/etc", "harmless"))).toBe("it lies in a directory of the operating system");
    expect(await reasonFor(await bind("/etc/ssl", "part"))).toBe("it lies in a directory of the operating system");
    expect(await reasonFor(await bind(join(dir, "home"), "alias"))).toBe("it holds Corral's own state");
    expect(await reasonFor(join(dir, "alias/state/corral/live"))).toBe("it lies in Corral's own state");
    expect(await reasonFor(join(dir, "alias/beside"))).toBeNull();
  });

  it("as /proc of another mount, which is not the host's own place but is as telling", async () => {
    const place = join(dir, "other-proc");
    await mkdir(place);
    execFileSync("mount", ["-t", "proc", "proc", place]);
    mounted.push(place);
    expect(await reasonFor(place)).toBe("it lies in a directory of the operating system");
  });

  it("through a symbolic link in a project's own declaration, which is followed before it is judged", async () => {
    const projectDir = join(dir, "project");
    await mkdir(join(projectDir, "fine"), { recursive: true });
    const targets = { system: "/etc", state: stateDir, above: join(dir, "home"), socket: dirname(engineSocket) };
    const zones = Object.entries(targets).map(([name]) => `    ${name}: { path: ./${name}, mode: ro }`);
    for (const [name, target] of Object.entries(targets)) await symlink(target, join(projectDir, name));
    await writeFile(
      join(projectDir, "corral.yaml"),
      ["version: 1", "sandbox:", "  mode: direct", "  zones:", "    fine: { path: ./fine, mode: ro }", ...zones].join(
        "\n",
      ),
    );
    const { declaration } = await loadProject(projectDir);
    const judged = await Promise.all(declaration.mounts.map(async ({ name, host }) => [name, await reasonFor(host)]));
    expect(Object.fromEntries(judged)).toEqual({
      fine: null,
      system: expect.stringContaining("operating system"),
      state: expect.stringContaining("Corral's own state"),
      above: expect.stringContaining("Corral's own state"),
      socket: expect.stringMatching(/^it holds/),
    });
  });
});

describe("a source that the person who runs Corral may not read", () => {
  it("is refused, although the Engine, which is root, could mount it", async () => {
    const secret = join(dir, "secret");
    await mkdir(secret, { mode: 0o700 });
    await writeFile(join(secret, "inner"), "");
    const readable = join(dir, "readable");
    await mkdir(readable, { mode: 0o755 });
    // The checkout may lie where the other user cannot go, so that root loads the module and then becomes that user.
    const script = `
      const { pinSources } = await import(${JSON.stringify(fileURLToPath(new URL("../../src/isolation/sources/pin.ts", import.meta.url)))});
      process.setgroups([]); process.setgid(65532); process.setuid(65532);
      const pinning = await pinSources(process.argv.slice(1), { places: [], mountTable: [], hostRoot: "/" });
      console.log(JSON.stringify(pinning.ok ? [] : pinning.refusals.map(({ host, reason }) => [host, reason])));
      process.exit();`;
    // The directory above is its maker's alone, as temporary directories are.
    execFileSync("chmod", ["755", dir]);
    const args = ["--input-type=module", "-e", script, "--", secret, join(secret, "inner"), readable];
    const { stdout } = await promisify(execFile)(process.execPath, args);
    const reason = "the user that Corral runs as may not open it";
    expect(JSON.parse(stdout)).toEqual([
      [secret, reason],
      [join(secret, "inner"), reason],
    ]);
  });
});
