import { readFileSync } from "node:fs";
import type Docker from "dockerode";
import type { Capabilities } from "../port/driver.ts";

/** The fields of the Engine's `GET /info` that matter here; the client's types leave it open. */
interface EngineInfo {
  readonly ServerVersion: string;
  readonly OSType: string;
  readonly OperatingSystem: string;
  readonly KernelVersion: string;
  readonly Name: string;
  readonly DockerRootDir: string;
  readonly Driver: string;
  readonly CgroupVersion?: string;
  readonly MemoryLimit: boolean;
  readonly SwapLimit: boolean;
  readonly PidsLimit: boolean;
  readonly CpuCfsQuota: boolean;
  readonly InitBinary?: string;
  readonly SecurityOptions?: readonly string[];
  readonly Runtimes?: Readonly<Record<string, unknown>>;
}

/** What `doctor` reports before anything runs. A run does not rely on it: each cell is verified from inside. */
export async function capabilities(docker: Docker): Promise<Capabilities> {
  const info = await engineInfo(docker);
  const version = (await docker.version()) as { ApiVersion: string };
  const security = (info.SecurityOptions ?? []).join(" ");
  const needs: readonly (readonly [boolean, string])[] = [
    [info.OSType === "linux", "Linux containers (this Engine runs others)"],
    [
      Number.parseFloat(version.ApiVersion.replace(".", "")) >= 141,
      `the Engine's API must be 1.41 or newer, and is ${version.ApiVersion}`,
    ],
    [info.MemoryLimit, "memory limits (the kernel's memory control group)"],
    [info.SwapLimit || !hostHasSwap(), "limits of memory with swap, on a host that has swap"],
    [info.PidsLimit, "limits of processes (the kernel's pids control group)"],
    [info.CpuCfsQuota, "limits of processor time"],
    [security.includes("name=seccomp"), "seccomp filters"],
    [!security.includes("name=rootless"), "pinned mounts under a rootless Engine (not tested)"],
  ];
  return {
    engine: "docker",
    version: info.ServerVersion,
    missing: needs.filter(([met]) => !met).map(([, need]) => need),
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

/** Directories with the Engine's own data, which no mount may show. */
export async function engineDataDirs(docker: Docker): Promise<string[]> {
  const { DockerRootDir } = await engineInfo(docker);
  return [DockerRootDir, "/var/lib/docker", "/var/lib/containerd"];
}

async function engineInfo(docker: Docker): Promise<EngineInfo> {
  return (await docker.info()) as EngineInfo;
}

function hostHasSwap(): boolean {
  return !/^SwapTotal:\s+0 kB$/m.test(readFileSync("/proc/meminfo", "utf8"));
}
