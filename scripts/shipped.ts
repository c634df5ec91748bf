import { globSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** A package of which the program contains modules. */
interface Shipped {
  readonly name: string;
  readonly version: string;
  /** An SPDX expression. */
  readonly license: string;
  readonly texts: readonly string[];
  /** The digest of what npm installed; null if the lock file does not have this copy. */
  readonly sha512: string | null;
}

/** Writes what is in the program besides Corral's own code: `sbom.cdx.json` (CycloneDX) lists the packages, `THIRD-PARTY.txt` has their licences. */
export function writeShipped(root: string, modules: Iterable<string>): void {
  const shipped = packagesOf(root, modules);
  const texts = shipped.map(({ name, version, license, texts }) =>
    [`${name} ${version} (${license})`, ...texts].join("\n\n"),
  );
  writeFileSync(join(root, "dist/THIRD-PARTY.txt"), `${texts.join(`\n\n${"-".repeat(80)}\n\n`)}\n`);
  writeFileSync(join(root, "dist/sbom.cdx.json"), `${JSON.stringify(cycloneDx(root, shipped), null, 2)}\n`);
}

function packagesOf(root: string, modules: Iterable<string>): Shipped[] {
  const places = [...modules].flatMap((id) => /^(.*\/node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(id)?.[1] ?? []);
  const { packages } = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8")) as {
    packages: Readonly<Record<string, { readonly integrity?: string }>>;
  };
  return [...new Set(places)].sort().map((dir) => {
    const own = JSON.parse(readFileSync(join(dir, "package.json"), "utf8"));
    const { integrity = "" } = packages[dir.slice(dir.indexOf("/node_modules/") + 1)] ?? {};
    const sha512 = /^sha512-(\S+)$/.exec(integrity)?.[1];
    const { name, version, license } = own;
    const hash = sha512 === undefined ? null : Buffer.from(sha512, "base64").toString("hex");
    return { name, version, license, texts: licenceTexts(dir, own), sha512: hash };
  });
}

/** Of the package; if it has none, the text that its `package.json` names, with its author. @throws if that is unknown here */
function licenceTexts(
  dir: string,
  own: { name: string; license: string; author?: string | { name: string } },
): string[] {
  const files = globSync("{LICENSE,LICENCE,License,license,NOTICE}*", { cwd: dir }).sort();
  if (files.length > 0) return files.map((file) => readFileSync(join(dir, file), "utf8"));
  const text = STANDARD[own.license];
  if (text === undefined)
    throw new Error(`${own.name} has no text of its licence, ${own.license}: add it to ${import.meta.filename}`);
  const { author = `the authors of ${own.name}` } = own;
  return [`Copyright (c) ${typeof author === "string" ? author : author.name}\n\n${text}`];
}

const AS_IS = 'THE SOFTWARE IS PROVIDED "AS IS"';
const STANDARD: Readonly<Record<string, string>> = {
  "Apache-2.0": "Licensed under the Apache License, Version 2.0: its text is in the file LICENSE of this package.",
  ISC: `Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted, provided that the above
copyright notice and this permission notice appear in all copies.

${AS_IS} AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED WARRANTIES OF MERCHANTABILITY
AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT, INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING
FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT, NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE
OR PERFORMANCE OF THIS SOFTWARE.`,
  MIT: `Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the "Software"),
to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense,
and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

${AS_IS}, WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR
A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER
IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.`,
};

/** Version 1.6 of the format, without the time and the number of this build: the same sources give the same list. */
function cycloneDx(root: string, shipped: readonly Shipped[]): object {
  const { name, version, license } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const component = (one: { name: string; version: string; license: string }) => {
    const purl = `pkg:npm/${one.name.replace("@", "%40")}@${one.version}`;
    return { "bom-ref": purl, name: one.name, version: one.version, purl, licenses: licencesOf(one.license) };
  };
  const components = shipped.map((one) => ({
    type: "library",
    ...component(one),
    ...(one.sha512 === null ? {} : { hashes: [{ alg: "SHA-512", content: one.sha512 }] }),
  }));
  const program = { type: "application", ...component({ name, version, license }) };
  return {
    $schema: "http://cyclonedx.org/schema/bom-1.6.schema.json",
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    version: 1,
    metadata: { component: program },
    components,
    dependencies: [{ ref: program["bom-ref"], dependsOn: components.map((one) => one["bom-ref"]) }],
  };
}

const licencesOf = (license: string): object[] => [
  /[ (]/.test(license) ? { expression: license } : { license: { id: license } },
];
