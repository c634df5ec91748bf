import { execFile } from "node:child_process";
import { chown } from "node:fs/promises";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { SANDBOX_RUNTIME } from "../outcome/names.ts";
import type { OneRun } from "./one-run.ts";
import type { OpenedPeer } from "./peer.ts";

/** The part of the package that the bench uses. The type checker may not find the package, so it is declared here. */
interface SandboxRuntime {
  readonly SandboxManager: {
    checkDependencies(): { readonly errors: readonly string[] };
    initialize(config: Config): Promise<void>;
    wrapWithSandbox(command: string, shell: undefined, config: Partial<Config>): Promise<string>;
    reset(): Promise<void>;
  };
}

interface Config {
  readonly network: { readonly allowedDomains: string[]; readonly deniedDomains: string[] };
  readonly filesystem: { readonly denyRead: string[]; readonly allowWrite: string[]; readonly denyWrite: string[] };
}

const execute = promisify(execFile);

/** `entry`: the package's file. It needs bubblewrap, socat and ripgrep on the machine. */
export async function openSandboxRuntime(entry: string): Promise<OpenedPeer> {
  try {
    const { SandboxManager } = (await import(pathToFileURL(entry).href)) as SandboxRuntime;
    const { errors } = SandboxManager.checkDependencies();
    if (errors.length > 0) return { name: SANDBOX_RUNTIME, absent: errors.join("; ") };
    await SandboxManager.initialize(configFor([]));
    return {
      name: SANDBOX_RUNTIME,
      difference:
        "sandbox-runtime makes no container: the host's files stay readable, and time, memory and processes are not limited",
      async run(_plan, run) {
        const writable = run.binds.filter(({ mode }) => mode === "rw").map(({ host }) => host);
        // It runs commands as the user of this process, with no rights over other users' files.
        for (const path of writable) await chown(path, process.getuid?.() ?? 0, process.getgid?.() ?? 0);
        const command = onHost(run);
        const wrapped = await SandboxManager.wrapWithSandbox(command, undefined, configFor(writable));
        await execute("/bin/sh", ["-c", wrapped]);
      },
      [Symbol.asyncDispose]: () => SandboxManager.reset(),
    };
  } catch (error) {
    return { name: SANDBOX_RUNTIME, absent: (error as Error).message };
  }
}

function configFor(allowWrite: string[]): Config {
  return {
    network: { allowedDomains: [], deniedDomains: [] },
    filesystem: { denyRead: [], allowWrite, denyWrite: [] },
  };
}

/** It has no paths of its own: a path in the container becomes the path on the host. */
function onHost({ command, binds }: OneRun): string {
  const file = binds.find(({ kind }) => kind === "file");
  const folder = binds.find(({ kind }) => kind === "directory");
  const [program, flag, script] = command;
  if (program === "sh" && flag === "-c" && script !== undefined && file !== undefined && folder !== undefined)
    return script.replaceAll("/attachments/in", file.host).replaceAll("/out/*", folder.host);
  return command.join(" ");
}
