import { checkRead, checkWrite } from "../../sandbox/access.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { covers, parseVirtualPath, type VirtualPath } from "../../sandbox/virtual-path.ts";
import type { ItemTemplate } from "../model/item.ts";
import { TemplateError, type TemplateProblem } from "./item-fields.ts";
import { parseItemTemplate } from "./item-template.ts";
import { literalStart } from "./path-template.ts";

/** The literal beginning of a path of `allow_read` or `allow_write`: every item's path is at or below it. */
export interface TemplatePath {
  readonly about: string;
  readonly path: VirtualPath;
  readonly isWritten: boolean;
}

/** Templates that begin with a field have none. Throws a `TemplateError` if the template is invalid. */
export function pathsIn(template: ItemTemplate): TemplatePath[] {
  const { allowRead, allowWrite } = parseItemTemplate(template);
  const kinds = [
    { templates: allowRead ?? [], isWritten: false },
    { templates: allowWrite ?? [], isWritten: true },
  ];
  return kinds.flatMap(({ templates, isWritten }) =>
    templates.flatMap(({ about, template }) => {
      const parsed = parseVirtualPath(literalStart(template), {});
      return parsed.ok ? [{ about, path: parsed.path, isWritten }] : [];
    }),
  );
}

/** Throws a `TemplateError` for paths at which the worker has nothing, or may not write: no item could run. */
export function checkPaths(paths: readonly TemplatePath[], sandbox: Sandbox): void {
  const problems = paths.flatMap(({ about, path, isWritten }): TemplateProblem[] => {
    const fault = faultOf(path, isWritten, sandbox);
    return fault === null ? [] : [{ about, fault }];
  });
  if (problems.length > 0) throw new TemplateError(problems);
}

function faultOf(path: VirtualPath, isWritten: boolean, sandbox: Sandbox): string | null {
  const isAbove = sandbox.mounts.some((mount) => covers(path, mount.path) && (!isWritten || mount.mode === "rw"));
  if (isAbove) return null;
  const check = isWritten ? checkWrite : checkRead;
  return check(sandbox, path, { directory: true })?.message.replaceAll("\n", " ") ?? null;
}
