"""Limits that both transports share."""

CONNECT_SECONDS = 10.0
MAX_HEAD_BYTES = 64 * 1024
READ_BYTES = 256 * 1024
MAX_JSON_BYTES = 512 * 1024**2
