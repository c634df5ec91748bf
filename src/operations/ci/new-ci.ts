import { githubAction, templateFiles } from "../../declarations/place/package-root.ts";
import { writeNewFiles } from "../../files/host/new-files.ts";

interface Kind {
  /** A folder with one of these has a project, which stays as it is. */
  readonly marks: readonly string[];
  /** Which of Corral's images its jobs need. */
  readonly image: string;
}

/** In the order in which a folder is looked at. Each has its folder below `templates/ci/`. */
const KINDS = {
  npm: { marks: ["package.json"], image: "node" },
  python: { marks: ["requirements.txt", "pyproject.toml"], image: "python" },
  go: { marks: ["go.mod"], image: "base" },
  make: { marks: ["Makefile"], image: "base" },
} as const satisfies Readonly<Record<string, Kind>>;

export type CiTemplate = keyof typeof KINDS;

export const CI_TEMPLATES = Object.keys(KINDS) as readonly CiTemplate[];

/**
 * Writes jobs and a workflow of GitHub into a folder that exists, and a small project that they test if it has none.
 *
 * @param asked null: what the folder has; in one without a project, npm
 * @param present the names in the folder
 * @throws NameTaken if one of its files is there already; then nothing was written
 */
export async function makeCi(
  asked: CiTemplate | null,
  dir: string,
  present: readonly string[],
): Promise<{ readonly files: readonly string[] }> {
  const has = (kind: CiTemplate): boolean => KINDS[kind].marks.some((name) => present.includes(name));
  const kind = asked ?? CI_TEMPLATES.find(has) ?? "npm";
  const all = [...(await templateFiles(`ci/${kind}`))];
  const workflow = (await templateFiles("ci/github")).get("workflow.yml") ?? "";
  // Two tools have projects of Python.
  if (kind === "python" && present.includes("uv.lock"))
    for (const [at, [path, text]] of all.entries())
      if (path === "ci.yaml") all[at] = [path, text.replace("pip #", "uv #").replace("requirements.txt", "uv.lock")];
  const files = new Map([
    ...(has(kind) ? all.filter(([path]) => path === "ci.yaml") : all),
    [".github/workflows/corral.yml", workflow.replace("IMAGE", KINDS[kind].image)] as const,
    [".github/corral/action.yml", await githubAction()] as const,
  ]);
  writeNewFiles(dir, files);
  return { files: [...files.keys()] };
}
