import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

export interface Certificate {
  readonly key: string;
  readonly cert: string;
}

export interface Certificates {
  /** In PEM: who verifies must trust it. */
  readonly authority: string;
  /** For every name below `.test`. */
  readonly good: Certificate;
  /** Of the same authority, for another name. */
  readonly otherName: Certificate;
  readonly expired: Certificate;
  /** Of nobody. */
  readonly selfSigned: Certificate;
}

const openssl = async (dir: string, ...args: string[]): Promise<void> => {
  await promisify(execFile)("openssl", args, { cwd: dir });
};

/** A certificate authority of one test, and what it signed. Nothing of it stays on the disk. */
export async function makeCertificates(names: readonly string[]): Promise<Certificates> {
  const dir = await mkdtemp(join(tmpdir(), "corral-ca-"));
  try {
    await selfSigned(dir, "ca", "/CN=test authority", "basicConstraints=critical,CA:TRUE");
    const text = (file: string): Promise<string> => readFile(join(dir, file), "utf8");
    const signed = async (name: string, hosts: readonly string[], days: string): Promise<Certificate> => {
      await openssl(dir, "req", "-newkey", "ec", ...EC, "-nodes", "-subj", `/CN=${name}`, ...named(name, ".csr"));
      await writeFile(join(dir, `${name}.ext`), `subjectAltName=${hosts.map((host) => `DNS:${host}`).join(",")}\n`);
      const from = ["x509", "-req", "-in", `${name}.csr`, "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"];
      await openssl(dir, ...from, "-days", days, "-extfile", `${name}.ext`, "-out", `${name}.pem`);
      return { key: await text(`${name}.key`), cert: await text(`${name}.pem`) };
    };
    await selfSigned(dir, "self", "/CN=self", `subjectAltName=${names.map((name) => `DNS:${name}`).join(",")}`);
    return {
      authority: await text("ca.pem"),
      good: await signed("good", names, "2"),
      otherName: await signed("other", ["another.example"], "2"),
      expired: await signed("expired", names, "-1"),
      selfSigned: { key: await text("self.key"), cert: await text("self.pem") },
    };
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

const EC = ["-pkeyopt", "ec_paramgen_curve:P-256"];

const named = (name: string, ending: string): string[] => ["-keyout", `${name}.key`, "-out", `${name}${ending}`];

async function selfSigned(dir: string, name: string, subject: string, extension: string): Promise<void> {
  const request = ["req", "-x509", "-newkey", "ec", ...EC, "-nodes", "-days", "2", "-subj", subject];
  await openssl(dir, ...request, "-addext", extension, ...named(name, ".pem"));
}
