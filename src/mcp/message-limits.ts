/** Of a message, on stdio and over HTTP. */
export const MAX_MESSAGE_BYTES = 16 * 1024 ** 2;

/** The protocol checks every value of a message against its schemas, several times. */
export const MAX_MESSAGE_VALUES = 50_000;
