"""Redaction of free text: log lines, messages of events and conditions.

Text of other programs has no structure that could be trusted, so everything that looks like a credential is replaced: what follows
a word such as `password`, URLs' users and queries, mail addresses, PEM blocks, JWTs, known formats of tokens, and random-looking
runs of characters. A secret that looks like an ordinary word and follows no such word cannot be recognized; docs/diagnose.md says
so. Pure, in time linear in the text: tenants write parts of it. Called by redact_objects.py and collect.py.
"""

import re
from typing import Final

REDACTED: Final = "<redacted>"
LONGEST_LINE: Final = 4096
"""Characters of a line; the rest is removed."""

_SENSITIVE: Final = (
    r"pass(?:word|wd|phrase|code)|pwd|secret|token|credential|authorization|authentication|cookie|signature|salt|dsn|"
    r"(?:api|access|account|private|signing|encryption|shared|session|license|client)[ _-]?(?:key|id|secret)|"
    r"connection[ _-]?string|x-amz-[a-z-]{0,32}|bearer"
)
"""Parts of names whose values are credentials."""
_NAMED: Final = re.compile(
    rf"(?:{_SENSITIVE})[\w.\-\])]{{0,64}}[\"'\\]{{0,4}}\s{{0,8}}[:=]+>?\s{{0,8}}(?=\S)",
    re.IGNORECASE,
)
"""`password: …`, `"token": …`, `REDIS_PASSWORD=…`; the value may have spaces, so that the rest of the line goes."""
_OPTION: Final = re.compile(rf"--?[\w-]{{0,64}}(?:{_SENSITIVE})[\w-]{{0,64}}\s{{1,8}}(?=\S)", re.IGNORECASE)
"""`--redis-password …`."""
_SPOKEN: Final = re.compile(
    r"(?<![\w-])(?:passw(?:or)?d|passphrase|passcode|pwd|bearer|basic|authorization)\s{1,8}(?=\S)", re.IGNORECASE
)
"""`password hunter2`, `Authorization Basic …`."""
_PASS: Final = re.compile(r"pass[\"'\\]{0,4}\s{0,8}[:=]+\s{0,8}(?=\S)", re.IGNORECASE)
"""`DB_PASS=…`; our own log lines end in `pass=12`, the number of a pass."""
_PASS_NUMBER: Final = re.compile(r"\"?\d{1,12}\"?\}?\s*", re.ASCII)
_WORD_AFTER: Final = re.compile(
    r"(?<![\w-])(tokens?|secrets?|credentials?|keys?)(\s{1,8}(?:(?:is|was)\s{1,8})?)([^\s\"'<>]+)", re.IGNORECASE
)
"""`token abc`; a name in quotation marks is that of an object, as in `secret "redis" not found`."""
_PLAIN_WORDS: Final = """
a an and are at by cannot could data does exists expired for from has have in invalid is missing must need not of on or
reference references required should that the to value was were which will with
"""
_PLAIN: Final = frozenset(_PLAIN_WORDS.split())
"""Words after `token` that are no token."""
_USER: Final = re.compile(r"\b([Uu]ser)(\s{1,8}|=)\\?\"[^\"]{0,512}\"?")
"""`User "ada@example.com" cannot list …` of the API server."""
_CLIENT: Final = re.compile(r"system:serviceaccount:[\w.:-]+", re.ASCII)
_WORD: Final = re.compile(r"[^\s\"'<>`]+")
_RUN: Final = re.compile(r"[A-Za-z0-9+/=_.~%-]{8,}")
_SEPARATORS: Final = re.compile(r"[-_./=+~%]")
_DIGEST: Final = re.compile(r"@?sha256:[0-9a-f]{64}(?![0-9A-Za-z])")
_AWS_SECRET: Final = re.compile(r"(?<![A-Za-z0-9/+])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])")
_PADDED: Final = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{14,}={1,2}(?![A-Za-z0-9+/=_-])")
_KNOWN: Final = re.compile(
    r"(?:AKIA|ASIA|AGPA|AIDA|AROA|ANPA|ANVA|AIPA)[A-Z0-9]{8,}|eyJ[\w-]{5,}"
    r"|(?<![A-Za-z0-9])(?:gh[opsur]_[A-Za-z0-9]{8,}|github_pat_\w{8,}|glpat-[\w-]{8,}|xox[abeoprs]-[\w-]{8,}|hf_[A-Za-z0-9]{8,}"
    r"|sk-[\w-]{20,}|sk_(?:live|test)_\w{8,}|AIza[\w-]{16,}|npm_[A-Za-z0-9]{16,}|pypi-[\w-]{16,}|SG\.[\w.-]{16,}|ya29\.[\w-]{8,}"
    r"|hv[bsr]\.[\w-]{8,}|dop_v1_\w{8,})",
    re.ASCII,
)
"""Formats of AWS, GitHub, GitLab, Slack, Hugging Face, OpenAI, Stripe, Google, npm, PyPI, SendGrid, Vault, DigitalOcean; JWT."""
_PEM: Final = re.compile(r"-----BEGIN [A-Z0-9 ]{1,64}-----.*?(?:-----END [A-Z0-9 ]{1,64}-----|\Z)", re.DOTALL)
_END_OF_PEM: Final = re.compile(r"(?:-----END [A-Z0-9 ]{1,64}-----)+")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/=]*\s*")
_TIME: Final = re.compile(r"\d{8}T\d{6}Z?", re.ASCII)
_HEX: Final = re.compile(r"[0-9a-fA-F]{24,}")
_UPPER_AFTER_LOWER: Final = re.compile(r"[a-z][A-Z]")


_SEVERAL: Final = re.compile(rf"{REDACTED}(?:{REDACTED})+")


def redact_text(text: str) -> str:
    """The text without what looks like a credential, line by line."""
    if len(text) < 8 and text.isalnum():
        return text
    lines = _PEM.sub(REDACTED, text).split("\n")
    return _SEVERAL.sub(REDACTED, "\n".join(map(_line, _without_ends(lines))))


def _without_ends(lines: list[str]) -> list[str]:
    """Without the end of a PEM block whose beginning was cut off."""
    kept: list[str] = []
    for line in lines:
        end = _END_OF_PEM.search(line)
        if end is None:
            kept.append(line)
            continue
        while kept and _BASE64.fullmatch(kept[-1]):
            kept.pop()
        kept.append(REDACTED + line[end.end() :])
    return kept


def _line(line: str) -> str:
    """One line outside of PEM blocks."""
    ending = ""
    if len(line) > LONGEST_LINE:
        kept = line[:LONGEST_LINE]
        kept = kept[: max(kept.rfind(" "), 0)]  # half a token would not be recognized
        ending = f"{REDACTED} ({len(line) - len(kept)} more characters)"
        line = kept
    line = _USER.sub(rf"\1\2{REDACTED}", line)
    line = _CLIENT.sub(f"system:serviceaccount:{REDACTED}", line)
    cut = _first_named(line)
    if cut is not None:
        return _words(line[:cut]) + REDACTED
    line = _WORD_AFTER.sub(_word_after, line)
    return _words(line) + ending


def _first_named(line: str) -> int | None:
    """Where the first value begins that its name shows to be a credential."""
    found = [match.end() for each in (_NAMED, _OPTION, _SPOKEN) if (match := each.search(line))]
    for match in _PASS.finditer(line):
        is_ours = "controller" in line[: match.start()] and _PASS_NUMBER.fullmatch(line[match.end() :])
        if not is_ours:
            found.append(match.end())
            break
    return min(found, default=None)


def _word_after(match: re.Match[str]) -> str:
    word = match[3]
    return match[0] if word.strip(".,:;").lower() in _PLAIN else f"{match[1]}{match[2]}{REDACTED}"


def _words(text: str) -> str:
    return _WORD.sub(lambda match: _word(match[0]), text)


def _word(word: str) -> str:
    """A word without spaces and quotation marks; digests of images stay."""
    if _KNOWN.search(word):
        return REDACTED
    digest = _DIGEST.search(word)
    if digest is not None:
        return _word(word[: digest.start()]) + digest[0] + _word(word[digest.end() :])
    scheme, separator, rest = word.partition("://")
    if "@" in (rest or scheme):
        user, _, host = (rest or scheme).rpartition("@")
        begin = f"{_runs(scheme)}{separator}" if separator else ""
        return f"{begin}{REDACTED if user else ''}@{_word(host)}"
    if separator:
        path, mark, _ = _partition_any(rest, "?#")
        return f"{_runs(scheme)}{separator}{_runs(path)}{mark}{REDACTED if mark else ''}"
    return _runs(word)


def _partition_any(text: str, characters: str) -> tuple[str, str, str]:
    found = min((text.index(each) for each in characters if each in text), default=None)
    return (text, "", "") if found is None else (text[:found], text[found], text[found + 1 :])


def _runs(word: str) -> str:
    if len(word) < 8:
        return word
    word = _PADDED.sub(_if_mixed, _AWS_SECRET.sub(_if_mixed, word))
    return _RUN.sub(lambda match: REDACTED if _is_random(match[0]) else match[0], word)


def _if_mixed(match: re.Match[str]) -> str:
    return REDACTED if _classes(match[0]) == 3 else match[0]


def _is_random(run: str) -> bool:
    """Whether a part of it looks random: no name of Kubernetes and no word of a program does."""
    return any(_is_random_part(part) for part in _SEPARATORS.split(run))


def _is_random_part(part: str) -> bool:
    if len(part) < 8 or _TIME.fullmatch(part):
        return False
    if _HEX.fullmatch(part):
        return True
    classes, has_digits = _classes(part), any(character.isdigit() for character in part)
    if classes == 3:
        return True
    if classes == 2 and has_digits:
        return len(part) >= (16 if part.upper() == part else 20)
    return classes == 2 and len(part) >= 16 and len(_UPPER_AFTER_LOWER.findall(part)) * 5 > len(part)


def _classes(text: str) -> int:
    """How many of lower case, upper case and digits it has."""
    return (
        any(each.islower() for each in text)
        + any(each.isupper() for each in text)
        + any(each.isdigit() for each in text)
    )
