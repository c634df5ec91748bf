import type { NetworkRule } from "../../sandbox/network/rule.ts";
import type { SecretSource } from "../../secrets/read-secret.ts";
import type { RawNetwork } from "../network/rule-terms.ts";
import { type SecretsYaml, secretNameFault, sourceOf } from "../terms/names.ts";
import { type Exposure, secretFault } from "../worker/exposure.ts";
import type { Checked } from "../yaml/check.ts";
import type { YamlDocument } from "../yaml/document.ts";
import type { Problem } from "../yaml/problem.ts";

/** The I/O step of the section `secrets`: what it names may not be where a worker reads or writes. */
export async function resolveSecrets(
  declared: SecretsYaml,
  exposure: Exposure,
  problemAt: YamlDocument["problemAt"],
): Promise<Checked<ReadonlyMap<string, SecretSource>>> {
  const problems: Problem[] = [];
  const sources = new Map<string, SecretSource>();
  for (const [name, yaml] of declared) {
    const source = sourceOf(yaml);
    const wrong = await secretFault(source, exposure);
    if (wrong !== null) problems.push(problemAt(["secrets", name, ...wrong.at], wrong.fault));
    if (source !== null) sources.set(name, source);
  }
  return problems.length > 0 ? { ok: false, problems } : { ok: true, value: sources };
}

/** Places of a network that name secrets which `corral.yaml` does not declare, below `network`. */
export function unknownSecrets(
  network: RawNetwork | undefined,
  known: Iterable<string>,
): { readonly at: readonly (string | number)[]; readonly fault: string }[] {
  const names = [...known];
  if (network === undefined || typeof network === "boolean") return [];
  return network.allow.flatMap(({ set = {} }: NetworkRule, index) =>
    Object.entries(set).flatMap(([header, { secret }]) => {
      const fault = secretNameFault(secret, names);
      return fault === null ? [] : [{ at: ["allow", index, "set", header, "secret"], fault }];
    }),
  );
}
