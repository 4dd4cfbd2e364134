#!/bin/sh
# Print the Python that creates .venv: the first argument if it is 3.11 to 3.14 with venv and pip, else another one on PATH that
# is. If there is none, print what to install. A shell script, because older versions of Python cannot parse our code.
# Called by the Makefile.

is_supported='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))'
has_venv='import venv, ensurepip'

for python in "$1" python3.14 python3.13 python3.12 python3.11; do
    "$python" -c "$is_supported" 2>/dev/null || continue
    "$python" -c "$has_venv" 2>/dev/null || { bare=${bare:-$python}; continue; }
    [ "$python" = "$1" ] || echo "$1 is not 3.11 to 3.14 with venv; using $python" >&2
    echo "$python"
    exit 0
done

if [ -n "$bare" ]; then
    minor=$("$bare" -c 'import sys; print(sys.version_info[1])')
    echo "raytide needs Python's venv and pip, which $bare does not have. Install them" \
        "(Debian, Ubuntu: apt install python3.$minor-venv; Fedora: dnf install python3-pip)." >&2
else
    found=$("$1" -c 'import platform; print("this is " + platform.python_version())' 2>/dev/null)
    echo "raytide needs Python 3.11 to 3.14 with venv and pip; ${found:-there is no $1 on PATH}. Install one" \
        "(Debian, Ubuntu: apt install python3 python3-venv; Fedora: dnf install python3.13) or set another one: make PYTHON=…" >&2
fi
exit 1
