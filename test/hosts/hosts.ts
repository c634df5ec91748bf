import { existsSync, readFileSync, renameSync, rmSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { readHostApt } from "../../src/isolation/engine/images/bootstrap.ts";
import { ran } from "./second-engine.ts";

/** A host as users have it: a release of Debian with its own Engine, runtime and programs. Kernel and control groups are this machine's. */
export interface Host {
  readonly name: string;
  readonly suite: string;
  /** Of `daemon.json`. */
  readonly settings: Readonly<Record<string, unknown>>;
  /** Corral's own policies name it there; it is one of the runtimes of its settings. */
  readonly runtime?: "runsc";
  /** A virtual machine with its own kernel, systemd, cgroup v2 and AppArmor. */
  readonly isMachine?: boolean;
}

export const HOSTS: readonly Host[] = [
  { name: "debian12", suite: "bookworm", settings: { "storage-driver": "overlay2" } },
  {
    name: "gvisor",
    suite: "bookworm",
    settings: {
      "storage-driver": "overlay2",
      runtimes: {
        runsc: {
          path: "/usr/bin/runsc",
          runtimeArgs: ["--platform=ptrace", "--network=none", "--oci-seccomp", "--fsgofer-host-uds"],
        },
      },
    },
    runtime: "runsc",
  },
  { name: "trixie", suite: "trixie", settings: { "storage-driver": "overlay2" } },
  { name: "sid-overlay2", suite: "sid", settings: { "storage-driver": "overlay2" } },
  {
    name: "sid-containerd",
    suite: "sid",
    settings: { "storage-driver": "overlayfs", features: { "containerd-snapshotter": true } },
  },
  { name: "trixie-machine", suite: "trixie", settings: { "storage-driver": "overlay2" }, isMachine: true },
  { name: "sid-machine", suite: "sid", settings: { "storage-driver": "overlay2" }, isMachine: true },
];

/** What tests start, beside the Engine. Debian 12 has Docker's command line in `docker.io`, and gVisor. */
const PACKAGES = "docker.io,crun,iptables,ca-certificates,procps,git,curl,jq";
/** What a machine needs besides. */
const MACHINE_PACKAGES =
  "systemd,systemd-sysv,dbus,libpam-systemd,udev,kmod,linux-image-cloud-amd64,initramfs-tools,apparmor,iproute2,openssh-server";
/** An ordinary user, who may use the Engine. */
export const USER = "dev";

/** What is installed in the root directory of a release, by name. */
export function packagesOf({ suite, isMachine = false }: Host): string {
  return `${PACKAGES}${suite === "bookworm" ? ",runsc" : ",docker-cli"}${isMachine ? `,${MACHINE_PACKAGES}` : ""}`;
}

/**
 * The root directory of a release, made once for what is installed in it. What a stopped run left half made is made again. Debian's sid is tested as it was when it was
 * fetched, so its dates are not checked; the signatures are.
 */
export async function rootDirectory(host: Host, cache: string): Promise<string> {
  const { suite, isMachine = false } = host;
  const root = join(cache, isMachine ? `${suite}-machine` : suite);
  const [packages, stamp] = [packagesOf(host), `${root}.packages`];
  if (existsSync(root) && existsSync(stamp) && readFileSync(stamp, "utf8") === packages) return root;
  rmSync(root, { recursive: true, force: true });
  await mkdir(cache, { recursive: true });
  const draft = `${root}.new`;
  rmSync(draft, { recursive: true, force: true });
  const { mirror } = await readHostApt(suite);
  const options = ["--mode=root", "--variant=minbase", `--include=${packages}`];
  const apt = ['APT::Install-Recommends "false"', 'Acquire::Check-Valid-Until "false"'];
  const left = ["/usr/share/doc/*", "/usr/share/locale/*"];
  const more = [...apt.map((line) => `--aptopt=${line}`), ...left.map((path) => `--dpkgopt=path-exclude=${path}`)];
  await ran("mmdebstrap", [...options, ...more, suite, draft, ...(mirror === null ? [] : [mirror])]);
  await ran("chroot", [draft, "useradd", "--groups", "docker", "--shell", "/bin/sh", USER]);
  for (const place of ["corral", "packed", "old", "var/lib/docker"])
    await mkdir(join(draft, place), { recursive: true });
  await writeFile(join(draft, "etc/hosts"), "127.0.0.1 localhost\n");
  renameSync(draft, root);
  await writeFile(stamp, packages);
  return root;
}
