import type { HostExecuted } from "../sandbox/approval.ts";
import type { ConsentNeed } from "./checked-access.ts";
import type { GuardedFiles } from "./guarded.ts";
import type { Effect, ForeseenOperation, Intended } from "./model/files.ts";

/** One question before a change. */
export interface ConsentQuestion extends Pick<ConsentNeed, "operation" | "path"> {
  /** True: the consent of the mount asks. False: only what the host would execute does. */
  readonly ofMount: boolean;
  /** What of it programs of the host would execute. */
  readonly hostExecuted: readonly HostExecuted[];
}

/**
 * What a change has to be asked about, one question for each operation whose consent is `ask`, and for what programs of the host would execute
 * whatever the consent is. What it would be refused for is refused first. Null: nothing is asked.
 */
export async function consentQuestions(
  intended: Intended,
  files: GuardedFiles,
  signal: AbortSignal | undefined,
): Promise<{ readonly foreseen: ForeseenOperation; readonly questions: readonly ConsentQuestion[] } | null> {
  const { operation, path } = intended;
  const needs = files.needs(operation, path, "to" in intended ? intended.to : undefined);
  const isAsked = needs.some(({ consent }) => consent === "ask");
  // A directory may hold what the host executes; of any other change the path says it.
  if (!isAsked && !MAY_BE_DIRECTORIES.has(operation)) return null;
  const foreseen = await files.foresee(intended, { signal });
  const inside = foreseen.effects.map((effect) => needOf(effect, files)).filter(isApart);
  const questions = needs.flatMap((need): ConsentQuestion[] => {
    const own = isApart(need) ? [need] : [];
    const apart = [...own, ...inside.filter((one) => one.operation === need.operation)];
    // A blocked operation is refused by the files themselves; no approval can allow it.
    if (need.consent === "blocked" || (need.consent !== "ask" && apart.length === 0)) return [];
    const ofMount = need.consent === "ask" && own.length === 0;
    return [{ operation: need.operation, path: need.path, ofMount, hostExecuted: distinct(apart) }];
  });
  return questions.length === 0 ? null : { foreseen, questions };
}

const MAY_BE_DIRECTORIES: ReadonlySet<Intended["operation"]> = new Set(["delete", "move", "copy"]);

type ApartNeed = ConsentNeed & { readonly hostExecuted: string };

function isApart(need: ConsentNeed): need is ApartNeed {
  return need.consent === "ask" && need.hostExecuted !== undefined;
}

function needOf(effect: Effect, files: GuardedFiles): ConsentNeed {
  if (effect.kind !== "delete")
    return files.needAt("write", effect.path, effect.kind === "folder" ? "directory" : "file");
  return files.needAt("delete", effect.path, effect.type === "other" ? "file" : effect.type);
}

function distinct(needs: readonly ApartNeed[]): HostExecuted[] {
  return [...new Map(needs.map(({ path, hostExecuted }) => [path, { path, why: hostExecuted }])).values()];
}
