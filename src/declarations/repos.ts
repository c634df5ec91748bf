import { namesBeforeColon } from "../sandbox/access.ts";
import type { ProjectDeclaration } from "../sandbox/declare.ts";
import { covers, parseVirtualPath, type VirtualPath } from "../sandbox/virtual-path.ts";
import { type GitRepo, type GitYaml, parseGitUrl } from "./git/repo.ts";
import { sourceOf } from "./terms/names.ts";
import { type Exposure, exposureFault, secretFault, secretsPlace } from "./worker/exposure.ts";
import type { WorkerDefinition } from "./worker/worker.ts";
import type { Checked } from "./yaml/check.ts";
import type { KeyPath, YamlDocument } from "./yaml/document.ts";
import type { Problem } from "./yaml/problem.ts";

type ProblemAt = YamlDocument["problemAt"];

/**
 * The I/O step of the section `git`. A repository on this machine runs its hooks where it is pushed to, and a program that
 * prints a secret is run as it is: neither may be where a worker could change it.
 */
export async function resolveGitRepos(
  { repos }: GitYaml,
  declaration: ProjectDeclaration,
  exposure: Exposure,
  problemAt: ProblemAt,
): Promise<Checked<ReadonlyMap<string, GitRepo>>> {
  const problems: Problem[] = [];
  const resolved = new Map<string, GitRepo>();
  for (const [name, { url, branch, at, credentials = {}, author }] of repos) {
    const key = (...rest: KeyPath): KeyPath => ["git", "repos", name, ...rest];
    const address = parseGitUrl(url);
    const place = placeIn(declaration, at);
    if (!place.ok) problems.push(problemAt(key("at"), place.fault));
    if (!address.ok || !place.ok) continue;
    const twin = [...resolved.values()].find((other) => covers(other.at, place.path) || covers(place.path, other.at));
    if (twin !== undefined) problems.push(problemAt(key("at"), `overlaps with ${twin.at} of \`${twin.name}\``));
    const fault = address.protocol === "file" ? await exposureFault(address.url, exposure.writable) : null;
    if (fault !== null) problems.push(problemAt(key("url"), fault));
    const wrong = await secretFault(sourceOf(credentials), exposure);
    if (wrong !== null) problems.push(problemAt(key("credentials", ...wrong.at), wrong.fault));
    if (Object.keys(credentials).length > 0 && !address.protocol.startsWith("http"))
      problems.push(problemAt(key("credentials"), "are only for https: ssh uses its own keys, and a path needs none"));
    resolved.set(name, {
      name,
      url: address.url,
      protocol: address.protocol,
      branch,
      at: place.path,
      credentials: sourceOf(credentials),
      author: author ?? null,
    });
  }
  return problems.length > 0 ? { ok: false, problems } : { ok: true, value: resolved };
}

/** What Corral itself runs or pushes to on this machine: as much the project's own as `corral.yaml`. */
export function placesOnHost(repos: ReadonlyMap<string, GitRepo> | null, home: string | undefined): string[] {
  return [...(repos?.values() ?? [])].flatMap(({ protocol, url, credentials }) => [
    ...(protocol === "file" ? [url] : []),
    ...[secretsPlace(credentials, home)].filter((place) => place !== null),
  ]);
}

/** Workers that name a repository which the project does not have. */
export function unknownRepos(
  workers: ReadonlyMap<string, WorkerDefinition>,
  repos: ReadonlyMap<string, unknown>,
): Problem[] {
  return [...workers.values()].flatMap(({ file, git = [] }) =>
    git
      .filter((name) => !repos.has(name))
      .map((name) => {
        const known = repos.size === 0 ? "corral.yaml has none" : `there are: ${[...repos.keys()].join(", ")}`;
        return { file, line: 1, column: 1, path: "git", message: `there is no repository \`${name}\`; ${known}` };
      }),
  );
}

type VirtualPlace = { readonly ok: true; readonly path: VirtualPath } | { readonly ok: false; readonly fault: string };

function placeIn({ mounts }: ProjectDeclaration, raw: string): VirtualPlace {
  const parsed = parseVirtualPath(raw, { mountNames: namesBeforeColon(mounts) });
  return parsed.ok ? parsed : { ok: false, fault: parsed.reason };
}
