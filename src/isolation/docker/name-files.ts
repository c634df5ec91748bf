import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { writeAtomically } from "./images/state-folder.ts";

/** Files on the host that a cell without a network has in the place of those that the Engine makes for its networks. */
export interface NameFiles {
  readonly hosts: string;
  readonly resolver: string;
}

/** As the Engine writes it for a container of its network `none`: programs of a cell may still talk to each other by name. */
const HOSTS = `127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
ff00::0\tip6-mcastprefix
ff02::1\tip6-allnodes
ff02::2\tip6-allrouters
`;

/** The host's name servers, and those that an image may name, are nobody's business in a cell that has no network. */
const RESOLVER = "nameserver 127.0.0.1\n";

/** Makes them in a directory that no worker can write. Several processes may do so at once. */
export async function makeNameFiles(dir: string): Promise<NameFiles> {
  const [hosts, resolver] = [join(dir, "hosts"), join(dir, "resolv.conf")];
  await mkdir(dir, { recursive: true, mode: 0o755 });
  await writeUnlessSame(hosts, HOSTS);
  await writeUnlessSame(resolver, RESOLVER);
  return { hosts, resolver };
}

async function writeUnlessSame(file: string, content: string): Promise<void> {
  const there = await readFile(file, "utf8").catch(() => null);
  if (there !== content) await writeAtomically(file, content, 0o444);
}
