import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync, globSync, renameSync, rmSync } from "node:fs";
import { appendFile, chmod, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { type AddressInfo, connect, createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { shellWord } from "../../src/text/visible.ts";
import { CHECKS, outcomeOf } from "./checks.ts";
import { type Host, packagesOf, USER } from "./hosts.ts";
import { ended, PATH, type RunningHost, ran, startHost } from "./second-engine.ts";

const ROOT = join(import.meta.dirname, "../..");
/** Emulated, beside other work. */
const BOOT_TIMEOUT_MS = 15 * 60_000;

interface MachineRequest {
  readonly root: string;
  readonly cache: string;
  readonly packed: string;
  readonly images: readonly string[];
}

/**
 * The release in a virtual machine, with systemd, cgroup v2 and AppArmor. QEMU emulates its processors, so it is some twenty times slower. What
 * it writes on its disks is thrown away; the disks are made once, but for the one with the checkout.
 */
export async function startMachine(host: Host, request: MachineRequest): Promise<RunningHost> {
  for (const program of ["qemu-system-x86_64", "ssh-keygen", "mke2fs"])
    await ran("which", [program]).catch(() => {
      throw new Error(`${program} is missing: apt-get install qemu-system-x86 openssh-client e2fsprogs`);
    });
  const dir = join(request.cache, `${host.name}.disks`);
  await mkdir(dir, { recursive: true });
  const key = join(dir, "key");
  if (!existsSync(key)) await ran("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", key]);
  const rootDisk = join(dir, `root-${digestOf(packagesOf(host))}.img`);
  await madeOnce(rootDisk, async (draft) => {
    await settle(request.root, await readFile(`${key}.pub`, "utf8"));
    await disk(draft, request.root, "4G");
  });
  const ids = await ran("docker", ["image", "inspect", "--format", "{{.Id}}", ...request.images]);
  // Other images need another disk.
  const engine = join(dir, `engine-${digestOf(ids)}.img`);
  await madeOnce(engine, (draft) => engineDisk(draft, host, request));
  await checkoutDisk(join(dir, "checkout.img"), dir, request.packed);
  return await booted(dir, request.root, [rootDisk, engine, join(dir, "checkout.img")]);
}

function digestOf(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 12);
}

/** A file that is made whole or not at all, unless it is there. */
async function madeOnce(path: string, make: (draft: string) => Promise<void>): Promise<void> {
  if (existsSync(path)) return;
  rmSync(`${path}.new`, { force: true });
  await make(`${path}.new`);
  renameSync(`${path}.new`, path);
}

async function disk(path: string, tree: string, size: string): Promise<void> {
  await rm(path, { force: true });
  await ran("truncate", ["-s", size, path]);
  await ran("mke2fs", ["-q", "-t", "ext4", "-E", "lazy_itable_init=1,root_owner=0:0", "-d", tree, path]);
}

/** The settings of a machine that one reaches by ssh alone. */
async function settle(root: string, publicKey: string): Promise<void> {
  await writeFile(join(root, "etc/hostname"), "machine\n");
  await writeFile(join(root, "etc/hosts"), "127.0.0.1 localhost machine\n");
  const mounts = [
    ...["/dev/vda / ext4 rw,noatime", "/dev/vdb /data ext4 rw,noatime", "/dev/vdc /disk ext4 ro"],
    ...["/data/lib/docker /var/lib/docker none bind", "/data/tmp /var/tmp none bind"],
    ...["/disk/corral /corral none bind", "/disk/packed /packed none bind"],
  ];
  await writeFile(join(root, "etc/fstab"), mounts.map((line) => `${line} 0 0\n`).join(""));
  for (const place of ["disk", "data"]) await mkdir(join(root, place), { recursive: true });
  const network = join(root, "etc/systemd/network");
  await mkdir(network, { recursive: true });
  await writeFile(join(network, "10-any.network"), "[Match]\nName=en* eth*\n[Network]\nDHCP=ipv4\nIPv6AcceptRA=no\n");
  const inside = (...command: string[]) => ran("chroot", [root, ...command]);
  await inside("systemctl", "enable", "systemd-networkd", "ssh", "docker", "apparmor");
  await inside(
    "systemctl",
    "disable",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
  );
  await inside("systemctl", "mask", "systemd-networkd-wait-online.service", "e2scrub_reap.service");
  await inside("mkdir", "-p", `/home/${USER}`);
  for (const [user, home] of [
    ["root", "/root"],
    [USER, `/home/${USER}`],
  ] as const) {
    const keys = join(root, home, ".ssh");
    await mkdir(keys, { recursive: true, mode: 0o700 });
    await writeFile(join(keys, "authorized_keys"), publicKey, { mode: 0o600 });
    await inside("chown", "-R", `${user}:${user}`, home);
    await chmod(join(root, home), 0o755);
  }
  await appendFile(join(root, "etc/ssh/sshd_config"), "UseDNS no\n");
  await inside("ssh-keygen", "-A");
}

/**
 * `/var` of the Engine, with the images, and with what tests unpack of them for runc: both are made here, where that takes seconds. A whole run of the
 * contract does so.
 */
async function engineDisk(draft: string, host: Host, request: MachineRequest): Promise<void> {
  {
    await using native = await startHost(host, request);
    const contract = CHECKS.find(({ name }) => name === "contract, runc");
    if (contract !== undefined) await outcomeOf({ ...host, isMachine: false }, native, contract, "root");
  }
  await disk(draft, join(request.cache, `${host.name}.data/var`), "8G");
}

async function checkoutDisk(path: string, dir: string, packed: string): Promise<void> {
  const tree = join(dir, "tree");
  await rm(tree, { recursive: true, force: true });
  for (const place of ["corral", "packed"]) await mkdir(join(tree, place), { recursive: true });
  const copy = `tar -C "$1" --exclude=./.git -cf - . | tar -C "$2" -xf -`;
  await ran("sh", ["-c", copy, "sh", ROOT, join(tree, "corral")]);
  await ran("sh", ["-c", copy, "sh", packed, join(tree, "packed")]);
  await disk(path, tree, "3G");
  await rm(tree, { recursive: true, force: true });
}

async function booted(dir: string, root: string, disks: readonly string[]): Promise<RunningHost> {
  const [kernel = "", initrd = ""] = ["vmlinuz-*", "initrd.img-*"].flatMap((name) =>
    globSync(join(root, "boot", name)),
  );
  const port = await freePort();
  const log = join(dir, "console.log");
  const monitor = join(dir, "monitor");
  const qemu = spawn(
    "qemu-system-x86_64",
    [
      ...[
        "-accel",
        "tcg,thread=multi,tb-size=1024",
        "-cpu",
        "max",
        "-machine",
        "q35",
        "-smp",
        "2",
        "-m",
        "6G",
        "-snapshot",
      ],
      ...["-display", "none", "-serial", `file:${log}`, "-monitor", `unix:${monitor},server=on,wait=off`],
      ...["-kernel", kernel, "-initrd", initrd],
      ...["-append", "root=/dev/vda rw console=ttyS0 systemd.default_timeout_start_sec=900s"],
      ...disks.flatMap((file) => ["-drive", `file=${file},if=virtio,format=raw,cache=unsafe`]),
      ...["-netdev", `user,id=n0,restrict=on,hostfwd=tcp:127.0.0.1:${port}-:22`, "-device", "virtio-net-pci,netdev=n0"],
      ...["-device", "virtio-rng-pci"],
    ],
    { stdio: ["ignore", "inherit", "inherit"] },
  );
  const end = async (): Promise<void> => {
    if (qemu.exitCode !== null || qemu.signalCode !== null) return;
    const exit = once(qemu, "exit");
    qemu.kill("SIGKILL");
    await exit;
  };
  const run: RunningHost["run"] = async (user, command, more = {}) => {
    const home = user === "root" ? "/root" : `/home/${user}`;
    const env = Object.entries({ PATH, HOME: home, NO_COLOR: "1", ...more }).map(([name, value]) => `${name}=${value}`);
    const line = ["env", "-i", "-C", home, ...env, ...command].map(shellWord).join(" ");
    return await ended(
      spawn("ssh", [...sshOptions(dir, port), `${user}@127.0.0.1`, line], { stdio: ["ignore", "pipe", "pipe"] }),
    );
  };
  const isUp = async (): Promise<void> => {
    const gaveUp = Date.now() + BOOT_TIMEOUT_MS;
    while ((await run("root", ["docker", "version"])).status !== 0) {
      if (qemu.exitCode !== null || Date.now() > gaveUp)
        throw new Error(`the machine did not start: ${(await readFile(log, "utf8")).slice(-3000)}`);
      await wait(2000);
    }
  };
  const restart = async (): Promise<void> => {
    const id = async (): Promise<string> => (await run("root", ["cat", "/proc/sys/kernel/random/boot_id"])).output;
    const before = await id();
    const line = connect(monitor).resume();
    line.end("system_reset\n");
    await once(line, "close");
    await isUp();
    if ((await id()) === before) throw new Error("the machine did not restart");
  };
  try {
    await isUp();
    return { run, restart, [Symbol.asyncDispose]: end };
  } catch (error) {
    await end();
    throw error;
  }
}

function sshOptions(dir: string, port: number): string[] {
  const settings = [
    "StrictHostKeyChecking=no",
    "UserKnownHostsFile=/dev/null",
    "ConnectTimeout=30",
    "ServerAliveInterval=30",
    "ServerAliveCountMax=40",
    "LogLevel=ERROR",
  ];
  return ["-i", join(dir, "key"), "-p", String(port), ...settings.flatMap((setting) => ["-o", setting])];
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}
