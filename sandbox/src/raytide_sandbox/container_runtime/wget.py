"""Stand-in for `wget`, which the probes of Ray pods call, on machines without it.

Supports what they use, `wget --tries 1 -T 2 -q -O- URL`, and nothing else: prints the body of a successful answer and
exits with 0, otherwise with 4 (no answer) or 8 (error status), as the real one does. Run as a separate program, see
images.py; it imports nothing of Raytide.
"""

import argparse
import http.client
import sys
import urllib.error
import urllib.request


def main(argv: list[str]) -> int:
    """Fetch one URL; returns the exit code."""
    parser = argparse.ArgumentParser(prog="wget", description="stand-in: prints what one address answers")
    parser.add_argument("-t", "--tries", type=int, default=1)
    parser.add_argument("-T", "--timeout", type=float, default=10.0)
    parser.add_argument("-q", "--quiet", action="store_true")
    parser.add_argument("-O", "--output-document", choices=["-"], required=True)
    parser.add_argument("url")
    options = parser.parse_args(argv)
    if not options.url.startswith(("http://", "https://")):
        options.url = "http://" + options.url
    last_error: Exception | None = None
    for _ in range(max(1, options.tries)):
        try:
            with urllib.request.urlopen(options.url, timeout=options.timeout) as answer:  # noqa: S310 - http by the lines above
                sys.stdout.buffer.write(answer.read())
        except urllib.error.HTTPError as error:
            return _fail(options.quiet, error, 8)
        except (OSError, http.client.HTTPException) as error:
            last_error = error
        else:
            return 0
    return _fail(options.quiet, last_error, 4)


def _fail(is_quiet: bool, last_error: object, code: int) -> int:  # noqa: FBT001 - private
    if not is_quiet:
        sys.stderr.write(f"wget: {last_error}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
