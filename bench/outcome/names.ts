/** The names of the rows that targets refer to. */
export const DOCKER_RUN = "docker run";
export const ENGINE_API = "Engine API";
export const ENGINE_API_DISABLED = "Engine API, network disabled";
export const FRESH = "Corral: fleet, fresh cells";
export const SCRUBBED = "Corral: fleet, scrubbed cells";
export const FIRST_BYTE = "Corral: warm claim to first byte";
export const WARM_RESULT = "Corral: warm claim to result";
export const DIRECT = "direct: the host's own network";
export const SIDECAR = "CONNECT proxy in a sidecar";
export const TUNNEL = "Corral: tunnel";
export const PROXY = "Corral: CONNECT, for wildcards";
export const LOOKED_INTO = "Corral: looked into";
export const CELL_ALONE = "Corral: no network";
export const CELL_LISTED = "Corral: an allow list of 1 host";
