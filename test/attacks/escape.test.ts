import { chmod, chown, copyFile, mkdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openProject, python, sh, writable } from "../run/project-fixture.ts";

describe("from within its cell, a worker", () => {
  it("cannot write to what it was shown read-only, nor to the system, nor to Corral's own files", async () => {
    const script = `for path in /docs/new /docs/a.txt /attachments/x /attachments/new / /new /etc/new /etc/passwd /usr/bin/new /.corral/new /.corral/busybox /.corral/socket /proc/sys/kernel/hostname /sys/new /home/new; do
        (echo x >> "$path") 2>/dev/null && echo "wrote $path"
        [ -e "$path" ] && rm -rf "$path" 2>/dev/null && echo "removed $path"
        [ -e "$path" ] && mv "$path" /tmp/ 2>/dev/null && echo "moved $path"
        chmod 777 "$path" 2>/dev/null && echo "changed $path"
      done; touch /out/ok && echo "wrote /out/ok"`;
    const w = { command: sh(script), sandbox: { zones: [{ name: "docs" }, writable("out")] } };
    await using project = await openProject({
      workers: { w },
      zones: { docs: "ro", out: "rw" },
      files: { "docs/a.txt": "A" },
    });
    const attachments = [{ name: "x", host: join(project.dir, "docs/a.txt") }];
    expect(await project.run("w", { attachments })).toMatchObject({ stdout: "wrote /out/ok\n" });
  });

  it("cannot mount, make namespaces, or change its root", async () => {
    const script = `try() { "$@" > /tmp/o 2>&1 && echo "could: $*"; }
      try mount -t tmpfs none /tmp; try mount -o remount,rw /; try mount -o remount,rw,bind /docs; try mount --bind /tmp /docs
      try umount /docs; try umount -l /.corral/socket; try unshare -m true; try unshare -U true; try unshare -Ur true; try unshare -n true
      try unshare -p true; try chroot / true; try nsenter -t 1 -m true; try hostname other; try mknod /tmp/null c 1 3; try mknod /tmp/disk b 254 0
      try busybox pivot_root /tmp /tmp; try busybox insmod x; try date -s 2000-01-01; try busybox ip link set lo down
      echo tried`;
    const w = { command: sh(script), sandbox: { zones: [{ name: "docs" }] } };
    await using project = await openProject({ workers: { w }, zones: { docs: "ro" } });
    expect((await project.run("w")).stdout).toBe("tried\n");
  });

  it("gains nothing by a setuid program, whoever owns it", async () => {
    const script = `/tools/busybox id -u; /tools/busybox cat /docs/private 2>&1 | tail -1; perl -e 'printf "%o\\n", (stat shift)[2] & 07777' /tools/busybox`;
    const w = { command: sh(script), sandbox: { zones: [{ name: "tools" }, { name: "docs" }] } };
    await using project = await openProject({
      workers: { w },
      zones: { tools: "ro", docs: "ro" },
      files: { "docs/private": "secret" },
    });
    // The gate is a static busybox, which runs the command that its first argument names, as whoever it is.
    const tool = join(project.dir, "tools/busybox");
    await copyFile(await project.corral.environment.gate(), tool);
    await chown(tool, 0, 0);
    await chmod(tool, 0o6755);
    await chown(join(project.dir, "docs/private"), 0, 0);
    await chmod(join(project.dir, "docs/private"), 0o600);
    const { stdout } = await project.run("w");
    expect(stdout).toMatch(/^65532\n.*Permission denied\n6755\n$/);
  });

  it("cannot trace another process, nor reach into one", async () => {
    const script = `
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
child = os.fork()
if child == 0: time.sleep(30); os._exit(0)
def told(name, result): print(name, "possible" if result >= 0 else os.strerror(ctypes.get_errno()), flush=True)
told("attach", libc.ptrace(16, child, 0, 0))
local = ctypes.create_string_buffer(8)
class iovec(ctypes.Structure): _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
vec = iovec(ctypes.addressof(local), 8)
told("read", libc.process_vm_readv(child, ctypes.byref(vec), 1, ctypes.byref(vec), 1, 0))
told("init", libc.ptrace(16, 1, 0, 0))
os.kill(child, 9)`;
    await using project = await openProject({ workers: { w: { image: "corral/python", command: python(script) } } });
    const result = await project.run("w");
    expect(result, result.stderr).toMatchObject({ status: "succeeded" });
    expect(result.stdout).not.toContain("possible");
  });

  it("sees no process but its own", async () => {
    const w = { command: sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '; echo; ls -d /proc/[0-9]* | wc -l") };
    await using project = await openProject({ workers: { w, other: { command: sh("echo up; exec sleep 61") } } });
    const cancel = new AbortController();
    const running = project.run("other", { signal: cancel.signal });
    await project.printed("other", "up");
    const { stdout } = await project.run("w");
    cancel.abort();
    await running;
    expect(stdout).not.toContain("sleep 61");
    expect(Number(stdout.trim().split("\n").at(-1))).toBeLessThan(6);
  });

  it("leaves no program that runs, where /tmp and HOME are all it can write", async () => {
    const script = `for dir in /tmp "$HOME"; do cp /bin/busybox $dir/b && $dir/b true 2>/dev/null && echo "ran $dir/b"; done; echo tried`;
    await using project = await openProject({ workers: { w: { command: sh(script) } } });
    expect((await project.run("w")).stdout).toBe("tried\n");
  });

  it("is not led to the host by a folder that was removed while it ran", async () => {
    const script =
      "cd /work/a; echo up; while [ ! -e /flag/go ]; do sleep 0.1; done; ls .. ../..; cat ../../../etc/hostname";
    const w = { command: sh(script), sandbox: { zones: [writable("work"), { name: "flag" }] } };
    await using project = await openProject({
      workers: { w },
      zones: { work: "rw", flag: "ro" },
      files: { "work/a/1": "" },
    });
    const running = project.run("w");
    await project.printed("w", "up");
    await mkdir(join(project.dir, "flag/go"));
    expect((await running).stdout).toMatch(/corral\n$/);
  });
});
