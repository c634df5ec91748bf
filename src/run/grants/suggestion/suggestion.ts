import { type Document, parseDocument } from "yaml";
import type { Mount } from "../../../sandbox/mount.ts";
import type { GrantRecord } from "../../model/grant.ts";
import { type EditedFile, editedYaml, newYaml } from "./edited-yaml.ts";
import { allowHosts, declareRules, rulesGranted } from "./suggested-network.ts";
import { ProjectAdditions, type ProjectFile } from "./suggested-project.ts";
import { declareIn, type Wanted, wantedBy } from "./suggested-worker.ts";

export interface SuggestionRequest {
  readonly project: ProjectFile;
  /** What the project gives. */
  readonly mounts: readonly Mount[];
  /** The files of the workers, by name. */
  readonly workers: ReadonlyMap<string, { readonly file: string; readonly text: string }>;
  readonly grants: readonly GrantRecord[];
}

export interface Suggestion {
  /** The files as they would be: the project's first, if it has to give more. */
  readonly files: readonly EditedFile[];
  /** What no change of these files would give, and why. */
  readonly notes: readonly string[];
}

/** The configuration that would have made all questions unnecessary. Pure. */
export function suggestedConfiguration({ project, mounts, workers, grants }: SuggestionRequest): Suggestion {
  const notes: string[] = [];
  const files: EditedFile[] = [];
  const edited = (projectDocument: Document | null): EditedFile[] => {
    const additions = new ProjectAdditions(project.dir, projectDocument);
    return [...workers].flatMap(([name, { file, text }]) => {
      const wanted = wantedBy(name, grants);
      const rules = rulesGranted(grants, name);
      const parts = wanted.length + rules.length === 0 ? null : frontMatterOf(text);
      if (parts === null) return [];
      const context = { dir: project.dir, mounts, additions };
      let left: readonly Wanted[] = [];
      const made = editedYaml(file, parts, (document) => {
        left = declareIn(document, wanted, context);
        declareRules(document, rules);
      });
      notes.push(...left.map((want) => noteOn(name, want)));
      return made === null ? [] : [made];
    });
  };

  const hosts = rulesGranted(grants);
  if (project.text === null) {
    if (hosts.length > 0) files.push(newYaml(project.file, (document) => allowHosts(document, hosts)));
    files.push(...edited(null));
  } else {
    let ofWorkers: EditedFile[] = [];
    const whole = { before: "", yaml: project.text, after: "" };
    const made = editedYaml(project.file, whole, (document) => {
      ofWorkers = edited(document);
      allowHosts(document, hosts);
    });
    files.push(...(made === null ? [] : [made]), ...ofWorkers);
  }
  return { files, notes: [...new Set(notes)] };
}

function noteOn(worker: string, { host }: Wanted): string {
  return `The form of the project's sandbox has no place for ${host}: use \`mode: direct\` or \`paths\` there, for worker ${worker}.`;
}

function frontMatterOf(text: string): { before: string; yaml: string; after: string } | null {
  const found = /^(\uFEFF?---[ \t]*\r?\n)([\s\S]*?)(^---[ \t]*\r?$[\s\S]*)/m.exec(text);
  if (found === null || found.index !== 0) return null;
  const [, before = "", yaml = "", after = ""] = found;
  return parseDocument(yaml).errors.length > 0 ? null : { before, yaml, after };
}
