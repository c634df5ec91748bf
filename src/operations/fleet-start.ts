import { resolve } from "node:path";
import type { NamedFleet } from "../declarations/fleet.ts";
import type { Project } from "../declarations/project.ts";
import { DeclarationError } from "../declarations/yaml/problem.ts";
import type { TemplateError } from "../fleet/items/faults.ts";
import type { ItemSource } from "../fleet/items/source.ts";
import type { RequestsOf } from "../fleet/requests.ts";

/** The items of a fleet that a file of the project declares, and the errors of its templates, at their places. */
export function itemsOfNamed(
  fleet: NamedFleet,
  { dir }: Pick<Project, "dir">,
): {
  readonly requests: RequestsOf;
  readonly cwd: string;
  readonly mistakes: (error: TemplateError) => DeclarationError;
} {
  const { items, template } = fleet;
  const source: ItemSource =
    items.kind === "glob"
      ? items
      : { kind: "manifest", path: items.path, ...(items.format === null ? {} : { format: items.format }) };
  const within = items.kind === "glob" ? [] : items.within.map((folder) => resolve(dir, folder));
  return {
    requests: { source, template, within, templateDir: dir },
    cwd: dir,
    mistakes: ({ problems }) => new DeclarationError(problems.map(({ about, fault }) => fleet.problemOf(about, fault))),
  };
}
