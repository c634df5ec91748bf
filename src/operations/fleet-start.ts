import { resolve } from "node:path";
import type { NamedFleet } from "../declarations/fleet.ts";
import type { Project } from "../declarations/project.ts";
import { DeclarationError } from "../declarations/yaml/problem.ts";
import type { TemplateError } from "../fleet/items/item-fields.ts";
import type { SkippedEntry } from "../fleet/items/matching-files.ts";
import type { ItemSource } from "../fleet/items/read-items.ts";
import type { FleetSpec } from "../fleet/model/item.ts";
import type { RequestsOf } from "../fleet/running/item-result.ts";

/** Which fleet to run. */
export type FleetStart =
  /** A new one. `cwd`: absolute, where relative paths of the source begin; `leftOut`: files that cannot be items. */
  | {
      readonly kind: "new";
      readonly spec: FleetSpec;
      readonly requests: RequestsOf;
      readonly cwd: string;
      readonly leftOut?: (file: SkippedEntry) => void;
      /** What the user may not have meant with the items as a whole. */
      readonly note?: (text: string) => void;
      /** Absent: that there is no item is an error. */
      readonly allowEmpty?: boolean;
    }
  /** One that no process runs any more. */
  | { readonly kind: "resume"; readonly fleet: string }
  /** The failed items of one that has stopped: in the same fleet, or with `asNew` in another one with the same worker. */
  | { readonly kind: "retry"; readonly fleet: string; readonly asNew?: boolean };

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
