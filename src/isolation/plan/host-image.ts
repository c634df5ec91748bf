import { holds } from "../../sandbox/virtual-path.ts";

/** The name of the image that is this machine's own programs, for a driver that has no other. */
export const HOST_IMAGE = "host";

/** Directories of programs. On most machines all but the first are links into it. */
export const PROGRAM_DIRECTORIES = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"] as const;

/** What programs need of `/etc`: no accounts, no keys, no names of hosts. What is missing is left out. */
export const SETTINGS = (
  "alternatives debian_version fonts ghostscript ImageMagick-6 ImageMagick-7 java-11-openjdk java-17-openjdk java-21-openjdk " +
  "ld.so.cache ld.so.conf ld.so.conf.d libreoffice localtime magic mailcap mime.types os-release papersize paperspecs perl " +
  "python3 python3.11 python3.12 python3.13 ssl/certs ssl/openssl.cnf timezone"
)
  .split(" ")
  .map((name) => `/etc/${name}`);

/** True for a mount of it. This machine may have further file systems below its programs. */
export function isOfHostImage(path: string): boolean {
  return SETTINGS.includes(path) || PROGRAM_DIRECTORIES.some((directory) => holds(directory, path));
}

/** Devices of every cell, which bubblewrap shows from this machine's `/dev`. */
export const SHOWN_DEVICES = ["null", "zero", "full", "random", "urandom", "tty"] as const;
