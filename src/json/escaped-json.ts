/**
 * JSON whose control and formatting characters are escaped, so that it cannot control a terminal that shows it. They are all in strings, but
 * for line breaks between values, which stay. A parser gets the original text.
 */
export function escapedJson(json: string): string {
  return json.replace(/(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (character) =>
    // A character beyond the first 65,536 is two code units in JSON.
    Array.from({ length: character.length }, (_, index) => hex(character.charCodeAt(index))).join(""),
  );
}

function hex(code: number): string {
  return `\\u${code.toString(16).padStart(4, "0")}`;
}
