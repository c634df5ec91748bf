/** In SQL: milliseconds since 1970 by the database's clock. The same as `corral.now_ms()`, whose call costs more than all of this. */
export const NOW_MS = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
