/** What a token permits. Each but `metrics` includes `read`, which includes `metrics`; `admin` includes all. */
export const ROLES = ["metrics", "read", "decide", "run", "admin"] as const;
export type Role = (typeof ROLES)[number];
