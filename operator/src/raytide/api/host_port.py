"""Addresses with a port: `10.0.0.1:6379`, `[fd00::5]:6379`, `:8080` for all addresses.

The counterparts of Go's net.JoinHostPort and net.SplitHostPort: an address of IPv6 has brackets before a port, because it has
colons itself. Pure; used wherever an address is shown, listened on or connected to (FD:RC3-1).
"""


def join_host_port(host: str, port: int | str) -> str:
    """Host and port as in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_host_port(text: str) -> tuple[str, int]:
    """Host without brackets, empty for all addresses, and port; raises ValueError."""
    host, colon, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    is_port = port.isascii() and port.isdigit() and int(port) <= 65535
    if not colon or not is_port or (":" in host and not is_bracketed):
        raise ValueError(f"{text!r} is not an address such as :8080, 127.0.0.1:8080 or [::1]:8080")
    return host[1:-1] if is_bracketed else host, int(port)
