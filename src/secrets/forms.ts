/** A part of a base64 text that is shorter than this may be a part of any text. */
const MIN_INNER_CHARS = 8;

/** The secret in all the encodings in which programs repeat it. */
export function formsOf(secret: string): string[] {
  const json = JSON.stringify(secret).slice(1, -1);
  return [secret, json, encodeURIComponent(secret), Buffer.from(secret).toString("base64"), ...innerBase64(secret)];
}

/**
 * What every base64 text has in common that encodes the secret inside of a longer text, such as `user:secret`: three
 * texts, since three bytes become four characters.
 */
function innerBase64(secret: string): string[] {
  const bytes = Buffer.from(secret);
  return [0, 1, 2].flatMap((before) => {
    const text = Buffer.concat([Buffer.alloc(before), bytes]).toString("base64");
    const inner = text.slice(Math.ceil((before * 8) / 6), Math.floor(((before + bytes.length) * 8) / 6));
    return inner.length < MIN_INNER_CHARS ? [] : [inner, inner.replaceAll("+", "-").replaceAll("/", "_")];
  });
}
