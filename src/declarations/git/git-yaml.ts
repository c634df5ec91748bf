import { z } from "zod";
import { repositoryNameFault } from "../terms/names.ts";
import { secretSource } from "../terms/secret-yaml.ts";
import { virtualPath } from "../terms/terms.ts";
import { map, namedMap } from "../yaml/shape.ts";
import { parseGitUrl } from "./repo.ts";

const MAX_REPOSITORIES = 100;

const checked = (fault: (raw: string) => string | null) =>
  z.string().superRefine((raw, context) => {
    const message = fault(raw);
    if (message !== null) context.addIssue({ code: "custom", message });
  });

const url = checked((raw) => {
  const parsed = parseGitUrl(raw);
  return parsed.ok ? null : parsed.fault;
});

/** Text that becomes one line of a commit's head. */
const headline = z
  .string()
  .trim()
  .min(1)
  .max(200)
  .regex(/^[^<>\p{Cc}\p{Cs}]*$/u, "must not contain `<`, `>` or control characters");

const repository = map({
  url,
  branch: checked(branchFault).default("main"),
  at: virtualPath,
  credentials: secretSource.optional(),
  author: map({ name: headline, email: headline }).optional(),
});

/** The section `git` of `corral.yaml`: repositories that outlive the sandbox. */
export const git = map({ repos: namedMap(repository, repositoryNameFault, MAX_REPOSITORIES) });

export type GitYaml = z.output<typeof git>;

/** Narrower than `git check-ref-format`: what it refuses is refused here as well. */
function branchFault(name: string): string | null {
  const sound =
    /^[A-Za-z0-9_][A-Za-z0-9._/+-]{0,199}$/.test(name) &&
    !name.includes("..") &&
    name.split("/").every((part) => part !== "" && !/^\.|\.$|\.lock$/.test(part));
  return sound ? null : "must be the name of a branch such as `main` or `release/1.0`";
}
