import type { ConsentNeed } from "../files/checked-access.ts";
import type { Expected } from "../files/model/files.ts";
import type { Effect, Intended } from "../files/model/foreseen.ts";
import type { HostExecuted } from "../sandbox/approval.ts";
import type { Hands } from "./hands.ts";
import { shownEffects } from "./shown-effects.ts";

/**
 * Asks for each operation whose consent is `ask`, one after another, and for what programs of the host would execute whatever
 * the consent is. What the operation would be refused for is refused first. Returns what was shown, so that nothing else is done; undefined
 * if no question was asked.
 */
export async function agreeTo(intended: Intended, hands: Hands, signal: AbortSignal): Promise<Expected | undefined> {
  const { operation, path } = intended;
  const needs = hands.files.needs(operation, path, "to" in intended ? intended.to : undefined);
  const isAsked = needs.some(({ consent }) => consent === "ask");
  // A directory may hold what the host executes; of any other change the path says it.
  if (!isAsked && !MAY_BE_DIRECTORIES.has(operation)) return undefined;
  const foreseen = await hands.files.foresee(intended, { signal });
  const inside = foreseen.effects.map((effect) => needOf(effect, hands)).filter(isApart);
  // A blocked operation is refused by the files themselves; no approval can allow it.
  const asked = needs.filter(({ operation: one, consent }) => {
    return consent === "ask" || (consent !== "blocked" && inside.some((need) => need.operation === one));
  });
  if (asked.length === 0) return undefined;
  const { diff, covered } = shownEffects(intended, foreseen);
  for (const need of asked) {
    const ofThis = covered.filter((one) => one.operation === need.operation);
    const apart = [...(isApart(need) ? [need] : []), ...inside.filter((one) => one.operation === need.operation)];
    await hands.agree({ ...need, diff, covered: ofThis, hostExecuted: distinct(apart) }, signal);
  }
  return foreseen.expected;
}

const MAY_BE_DIRECTORIES: ReadonlySet<Intended["operation"]> = new Set(["delete", "move", "copy"]);

type ApartNeed = ConsentNeed & { readonly hostExecuted: string };

function isApart(need: ConsentNeed): need is ApartNeed {
  return need.consent === "ask" && need.hostExecuted !== undefined;
}

function needOf(effect: Effect, { files }: Hands): ConsentNeed {
  if (effect.kind !== "delete")
    return files.needAt("write", effect.path, effect.kind === "folder" ? "directory" : "file");
  return files.needAt("delete", effect.path, effect.type === "other" ? "file" : effect.type);
}

function distinct(needs: readonly ApartNeed[]): HostExecuted[] {
  return [...new Map(needs.map(({ path, hostExecuted }) => [path, { path, why: hostExecuted }])).values()];
}
