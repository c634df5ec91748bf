import { rulesFor } from "../../sandbox/network/judge.ts";
import { type AllowedNetwork, isLookedInto } from "../../sandbox/network/rule.ts";
import { readAuthority } from "./request-head.ts";

/** `https://` URLs of hosts that are looked into, as the cell writes them; other texts as they are. */
export function insideUrls(network: AllowedNetwork, text: string): string {
  return text.replaceAll(/https:\/\/([^\s/?#"'<>,;]+)/gi, (url, rawAuthority: string) => {
    const target = readAuthority(rawAuthority, 443);
    if (target === null) return url;
    const rules = rulesFor(network, target.host, target.port);
    if (rules.length === 0 || !rules.every(isLookedInto)) return url;
    return `http://${target.host}${target.port === 443 ? "" : `:${target.port}`}`;
  });
}
