import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { HostApt } from "./host-apt.ts";
import { contained } from "./host-command.ts";

/** Documentation is left out of every package; licences stay. */
const DPKG_EXCLUDES = `path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/info/*
path-exclude /usr/share/locale/*
path-exclude /usr/share/man/*
`;

/** Installing a package starts no service. */
const POLICY_RC = "#!/bin/sh\nexit 101\n";

const CLEAN = `
rm -rf /var/cache/apt/*.bin /var/cache/apt/archives/*.deb /var/lib/apt/lists/* /var/log/*.log /var/log/apt \
  /var/cache/debconf/*-old /usr/share/man/* /usr/share/info/* /usr/share/locale/* /etc/hostname /etc/resolv.conf
find /usr/share/doc -mindepth 2 ! -type d ! -name copyright -delete
find /usr/share/doc -mindepth 1 -type d -empty -delete
: > /etc/machine-id
`;

/**
 * Prepares a minimal Debian for an image: packages from the host's own sources, security updates if the host has them,
 * and no files that programs do not need.
 */
export async function configureRoot(
  root: string,
  apt: HostApt,
  run: (command: readonly string[]) => Promise<void>,
): Promise<void> {
  const inRoot = (...command: string[]) => run(contained(["chroot", root, ...command]));
  await writeFile(join(root, "etc/dpkg/dpkg.cfg.d/corral"), DPKG_EXCLUDES);
  await writeFile(join(root, "usr/sbin/policy-rc.d"), POLICY_RC, { mode: 0o755 });
  await writeFile(
    join(root, "etc/apt/apt.conf.d/90corral"),
    [...apt.settings, 'Acquire::Languages "none";', ""].join("\n"),
  );
  if (apt.sources.length > 0) {
    await writeFile(join(root, "etc/apt/sources.list"), `${apt.sources.join("\n")}\n`);
    await inRoot("apt-get", "update", "-o", "APT::Update::Error-Mode=any").catch(() => keepWhatAnswers(root, apt));
    await inRoot("apt-get", "update");
    await inRoot("apt-get", "dist-upgrade", "-y", "--no-install-recommends");
  }
  await inRoot("sh", "-c", CLEAN);
}

/** Keeps only the mirror: a source that does not answer would fail every later build. */
async function keepWhatAnswers(root: string, apt: HostApt): Promise<void> {
  const main = apt.sources.find(
    (source) => source.startsWith(`deb ${apt.mirror} `) && !/-(updates|security) main$/.test(source),
  );
  await writeFile(join(root, "etc/apt/sources.list"), main ? `${main}\n` : "");
}
