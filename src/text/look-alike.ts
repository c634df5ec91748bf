import { asciiOnly, visibleName, withoutHidden } from "./visible.ts";

/** Names that are compared for one question, and what that may cost, about one for a character of ASCII. What is beyond is said. */
const MAX_COMPARED = 10_000;
const MAX_COST = 2 * 1024 ** 2;
/** One character may become many when it is made plain, and each is looked up several times. */
const COST_OF_OTHERS = 8;
/** Texts for one question. What is beyond is counted. */
const MAX_TEXTS = 20;
const MAX_NAMED = 5;

/**
 * What of the names in these paths a person may take for something else, in words: names of one directory that look alike, and names that
 * mix letters of several alphabets within a word. Characters that are not ASCII are shown by their codes, so that the difference is seen.
 */
export function lookAlikeTexts(paths: readonly string[]): string[] {
  const found: string[] = [];
  /** By place and look, the names that have it. */
  const groups = new Map<string, Group>();
  const seen = new Set<string>();
  let [cost, isCut] = [0, false];
  for (const path of paths) {
    for (let to = path.length; to > 0 && !isCut; ) {
      const whole = path.slice(0, to);
      cost += to;
      if (seen.has(whole)) break;
      isCut = seen.size >= MAX_COMPARED || cost > MAX_COST;
      if (isCut) break;
      const end = path.lastIndexOf("/", to - 1);
      const [place, name] = [path.slice(0, Math.max(0, end)), path.slice(end + 1, to)];
      seen.add(whole);
      to = end;
      if (name === "") continue;
      const simple = plain(name);
      if (!ASCII.test(name)) cost += COST_OF_OTHERS * (name.length + simple.length);
      // One group for what looks the same, and for what differs in case alone.
      const [look, caseless] = [`${place}/${lookOf(simple)}`, `${place}//${caselessLookOf(simple)}`];
      const group = oneGroup(groups.get(look), groups.get(caseless)) ?? { place, names: [], into: null };
      group.names.push(name);
      groups.set(look, group).set(caseless, group);
      const mixed = mixedIn(name);
      if (mixed !== null) found.push(`a name${placeText(place)} ${mixed}: ${asciiOnly(visibleName(name))}`);
    }
    if (isCut) break;
  }
  for (const { place, names } of new Set(groups.values())) if (names.length > 1) found.push(alikeText(place, names));
  const more = found.length - MAX_TEXTS;
  const cut = isCut ? [`too many names to compare: only the first ${seen.size} were`] : [];
  return [...found.slice(0, MAX_TEXTS), ...(more > 0 ? [`${more} more names look like others`] : []), ...cut];
}

interface Group {
  readonly place: string;
  readonly names: string[];
  /** The group that has the names of this one since a name was found that looks like some of both. */
  into: Group | null;
}

function oneGroup(a: Group | undefined, b: Group | undefined): Group | undefined {
  const [one, other] = [rootOf(a), rootOf(b)];
  if (one === undefined || other === undefined || one === other) return one ?? other;
  const [large, small] = one.names.length < other.names.length ? [other, one] : [one, other];
  large.names.push(...small.names.splice(0));
  small.into = large;
  return large;
}

function rootOf(group: Group | undefined): Group | undefined {
  let root = group;
  while (root?.into) root = root.into;
  return root;
}

function alikeText(place: string, names: readonly string[]): string {
  const more = names.length - MAX_NAMED;
  const named = names.slice(0, MAX_NAMED).map((name) => asciiOnly(visibleName(name)));
  return `names${placeText(place)} look alike: ${named.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}

function placeText(place: string): string {
  return place === "" ? "" : ` in ${asciiOnly(visibleName(place))}`;
}

/**
 * Letters that look like those of ASCII: a letter, and after it the others. Compatibility forms (full width, mathematical, in circles) are
 * not in it: Unicode itself says what they are. Of a letter with marks, the letter counts.
 */
const LIKE = [
  "AᎪΑАᗅꓮ",
  "BΒВᏴᗷꓐ",
  "CϹСᏟⲤꓚ",
  "DᎠᗞꓓ",
  "EΕЕᎬꓰ",
  "FϜᖴꓝ",
  "GԌᏀꓖ",
  "HΗНᎻⲎꓧ",
  "JЈᎫꓙ",
  "KΚКᏦⲔꓗ",
  "LᏞᒪꓡ",
  "MΜМᎷⲘꓟ",
  "NΝⲚꓠ",
  "PΡРᏢⲢꓑ",
  "QԚ",
  "RᏒᖇꓣ",
  "SЅՏᏚꓢ",
  "TΤТᎢⲦꓔ",
  "UՍꓴ",
  "VѴᏙꓦ",
  "WԜᎳꓪ",
  "XΧХⲬꓫ",
  "YΥҮУⲨꓬ",
  "ZΖᏃꓜ",
  "aαаɑ",
  "bƄЬ",
  "cϲсᴄⲥ",
  "dԁ",
  "eеҽ",
  "fſẝ",
  "gɡցƍ",
  "hһհᏂ",
  "iіıɩιᎥ",
  "jϳјյ",
  "kκк",
  "lIӀ1|ǀߊاוןⵏꓲᛁІΙ",
  "nոռ",
  "oOΟОՕⲞꓳοоօσംဝഠ0೦০०੦૦௦౦ഠ๐໐٥۵〇סه",
  "pρрⲣ",
  "qԛզ",
  "rгᴦ",
  "sѕꜱ",
  "tτт",
  "uυսʋ",
  "vνѵᴠ",
  "wѡԝաᴡω",
  "xхχ×",
  "yуγүỿ",
  "zᴢ",
  "2Ƨ",
  "3ЗӠƷȜ",
  "6б",
  "8Ȣ",
  "-‐‑‒–—―−⁃˗ー",
  ".․‧·•٠۰。",
  "/∕⁄╱⧸〳",
  ":ː˸։׃∶",
  "'ʹʼˈ‘’‛′`´",
  '"“”‟″',
  "_ˍ",
  "~˜∼〜",
];
const LETTERS = new Map(LIKE.flatMap(([ascii = "", ...others]) => others.map((one) => [one, ascii] as const)));

const HAS_LETTER = new RegExp(`[${LIKE.flatMap(([, ...others]) => others).join("")}]`, "gu");
const ASCII = /^[\x20-\x7e]*$/;
/** A letter of ASCII beside one that is not; or what may look like the mark between two names. */
const MAY_MIX = /[A-Za-z]\p{M}*(?![A-Za-z])\p{L}|(?![A-Za-z])\p{L}\p{M}*[A-Za-z]|[^\x20-\x7e\p{L}\p{M}\p{N}]/u;

/** The same for plain names that look the same. */
function lookOf(name: string): string {
  return letters(name).replaceAll("rn", "m").replaceAll("vv", "w");
}

/** The same for names that also differ in case: some disks take them for one. */
function caselessLookOf(name: string): string {
  return (ASCII.test(name) ? name : name.replace(/[^\x20-\x7e]+/g, letters)).toLowerCase();
}

function plain(name: string): string {
  if (ASCII.test(name)) return name;
  return withoutHidden(name.normalize("NFKD")).replace(/(?<=[iıіjј])\u0307/g, "");
}

function letters(text: string): string {
  return text.replace(HAS_LETTER, (one) => LETTERS.get(one) ?? one);
}

/** A word with letters of ASCII, and others that only look so; or a character that looks like what parts names. */
function mixedIn(name: string): string | null {
  if (ASCII.test(name) || !MAY_MIX.test(name)) return null;
  for (const [word] of name.matchAll(/[\p{L}\p{M}\p{N}]+|[^\p{L}\p{M}\p{N}]/gu)) {
    for (const one of /[A-Za-z]/.test(word) ? word : [word]) {
      const like = ASCII.test(one) ? "" : letters(plain(one));
      if (like === "/" || (/^[A-Za-z]+$/.test(like) && word !== one))
        return `has ${asciiOnly(one)}, which looks like ${like}`;
    }
  }
  return null;
}
