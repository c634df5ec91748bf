/** `link`: one that cannot be followed. `other`: a FIFO, a socket or a device. */
export type EntryType = "file" | "directory" | "link" | "other";
