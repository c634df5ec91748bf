import { readFileSync } from "node:fs";
import type Docker from "dockerode";
import { z } from "zod";
import type { Capabilities } from "../port/driver.ts";
import type { EngineFacts } from "../port/images.ts";
import { asked } from "./answers/asked.ts";

/** The fields of the Engine's `GET /info` that matter here. */
const EngineInfo = z.object({
  ServerVersion: z.string(),
  OSType: z.string(),
  OperatingSystem: z.string(),
  KernelVersion: z.string(),
  DockerRootDir: z.string().startsWith("/"),
  Driver: z.string(),
  CgroupVersion: z.string().optional(),
  MemoryLimit: z.boolean(),
  SwapLimit: z.boolean(),
  PidsLimit: z.boolean(),
  CpuCfsQuota: z.boolean(),
  SecurityOptions: z.array(z.string()).nullish(),
  Runtimes: z.record(z.string(), z.looseObject({ path: z.string().nullish() }).nullish()).nullish(),
  DefaultRuntime: z.string().nullish(),
  InitBinary: z.string().nullish(),
  /** Podman's answer has it, Docker's has not. */
  BuildahVersion: z.string().nullish(),
});

const EngineVersion = z.object({
  ApiVersion: z.string(),
  Components: z.array(z.looseObject({ Name: z.string(), Version: z.string() })).nullish(),
});

/** What `doctor` reports before anything runs. A run does not rely on it: each cell is verified from inside. */
export async function capabilities(docker: Docker): Promise<Capabilities> {
  const info = await asked(() => docker.info(), EngineInfo);
  const version = await asked(() => docker.version(), EngineVersion);
  const security = (info.SecurityOptions ?? []).join(" ");
  const needs: readonly (readonly [boolean, string])[] = [
    [info.OSType === "linux", "Linux containers (this Engine runs others)"],
    [isAtLeast(version.ApiVersion, 1, 41), `the Engine's API must be 1.41 or newer, and is ${version.ApiVersion}`],
    [info.MemoryLimit, "memory limits (the kernel's memory control group)"],
    [info.SwapLimit || !hostHasSwap(), "limits of memory with swap, on a host that has swap"],
    [info.PidsLimit, "limits of processes (the kernel's pids control group)"],
    [info.CpuCfsQuota, "limits of processor time"],
    [security.includes("name=seccomp"), "seccomp filters"],
  ];
  return {
    engine: "docker",
    version: info.ServerVersion,
    missing: needs.filter(([met]) => !met).map(([, need]) => need),
    weaknesses: [
      ...holesOfRunc(version.Components?.find(({ Name }) => Name === "runc")?.Version ?? ""),
      ...(process.getuid?.() !== 0 && info.CgroupVersion !== "2" ? [SOCKETS_NOT_COUNTED] : []),
    ],
    facts: {
      api: version.ApiVersion,
      system: info.OperatingSystem,
      kernel: info.KernelVersion,
      cgroups: `v${info.CgroupVersion ?? "1"}`,
      storage: info.Driver,
      data: info.DockerRootDir,
      runtimes: Object.keys(info.Runtimes ?? {})
        .sort()
        .join(", "),
      security: security || "none",
    },
  };
}

const SOCKETS_NOT_COUNTED =
  "what waits in the sockets of a cell counts for no limit: control groups of version 1 need root for that. Use version 2, or run Corral as root";

/**
 * What is known of a version of runc and applies to cells. A distribution may have mended it without another number. That a link at `/dev` of
 * an image is followed (CVE-2026-41579, before 1.3.6) does not apply: neither driver leaves such a link to runc.
 */
export function holesOfRunc(version: string): string[] {
  const [, major = "", minor = "", patch = "", candidate] = /^(\d+)\.(\d+)\.(\d+)(?:-rc\.?(\d+))?/.exec(version) ?? [];
  if (major !== "1") return [];
  const [at, fix] = [Number(minor), Number(patch)];
  const isMended =
    at >= 5 ||
    (at === 4 && (candidate === undefined || Number(candidate) >= 3)) ||
    (at === 3 && fix >= 3) ||
    (at === 2 && fix >= 8);
  if (isMended) return [];
  const what = "a process that changes what a container mounts while it starts can make runc write files of the host";
  return [
    `runc ${version} has known holes (CVE-2025-31133, CVE-2025-52565, CVE-2025-52881), unless your distribution has mended them: ${what}. No worker of Corral can do that to its own cell; one of another container might. Update runc to 1.2.8, 1.3.3 or newer`,
  ];
}

/** What the Engine says of itself when it is opened. */
export interface OpenedEngine {
  /** Directories with the Engine's own data, which no mount may show. */
  readonly dataDirs: readonly string[];
  readonly facts: Omit<EngineFacts, "isLocal">;
  /** For people: why no cell of this Engine can be as planned, and what to do. Null if that is not known beforehand. */
  readonly unfit: string | null;
}

export async function openedEngine(docker: Docker): Promise<OpenedEngine> {
  const info = await asked(() => docker.info(), EngineInfo.pick(OPENED));
  const runtime = info.DefaultRuntime ?? "";
  return {
    dataDirs: [info.DockerRootDir, "/var/lib/docker", "/var/lib/containerd"],
    facts: {
      version: info.ServerVersion,
      // `name=seccomp,profile=default`.
      security: (info.SecurityOptions ?? []).map((option) => /^name=([^,]*)/.exec(option)?.[1] ?? option),
      runc: runtime === "runc" ? (info.Runtimes?.runc?.path ?? "runc") : null,
      init: info.InitBinary || "docker-init",
    },
    unfit: unfitFor(info),
  };
}

/** What was tried, and is refused before anything starts. Each cell would be refused by its gate as well. */
function unfitFor(
  info: Pick<z.infer<typeof EngineInfo>, "BuildahVersion" | "SecurityOptions" | "ServerVersion">,
): string | null {
  const security = (info.SecurityOptions ?? []).join(" ");
  const other = "or name another Engine with DOCKER_HOST or a Docker context";
  if (typeof info.BuildahVersion === "string")
    return `it is Podman ${info.ServerVersion}, which takes no seccomp profile by Docker's API. Install and start Docker, ${other}`;
  if (/\bname=rootless\b/.test(security))
    return `it is rootless, and cannot mount the directories that Corral holds open. Use the Docker of the system, ${other}`;
  if (/\bname=userns\b/.test(security))
    return `its containers have users of their own (userns-remap), and so mounts and owners that are not as planned. Take userns-remap out of its daemon.json and start it again, ${other}`;
  return null;
}

const OPENED = {
  DockerRootDir: true,
  ServerVersion: true,
  SecurityOptions: true,
  DefaultRuntime: true,
  Runtimes: true,
  InitBinary: true,
  BuildahVersion: true,
} as const;

/** False for a text that is no version. */
function isAtLeast(version: string, major: number, minor: number): boolean {
  const [, its, itsMinor] = /^(\d{1,6})\.(\d{1,6})$/.exec(version) ?? [];
  return Number(its) > major || (Number(its) === major && Number(itsMinor) >= minor);
}

function hostHasSwap(): boolean {
  return !/^SwapTotal:\s+0 kB$/m.test(readFileSync("/proc/meminfo", "utf8"));
}
