"""Java's properties format, which `server.properties` and `meta.properties` are written in.

A line is a key, then `=`, `:` or white space, then a value; `#` and `!` begin comments; a backslash at the end joins
the next line; `\\t \\n \\r \\f \\uXXXX` are escapes and any other escaped character stands for itself.
"""

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK = " \t\f"


def parse_properties(text: str) -> dict[str, str]:
    """The settings in `text`; of a key given twice the last counts, as in Java."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        key_end = _key_end(line)
        value = line[key_end:].lstrip(_BLANK)
        if value[:1] in ("=", ":"):
            value = value[1:].lstrip(_BLANK)
        found[_unescape(line[:key_end])] = _unescape(value)
    return found


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    joined: str | None = None
    for raw in text.splitlines():
        line = raw.lstrip(_BLANK)
        if joined is None:
            if not line or line[0] in "#!":
                continue
            joined = ""
        joined += line
        backslashes = len(joined) - len(joined.rstrip("\\"))
        if backslashes % 2:
            joined = joined[:-1]
        else:
            lines.append(joined)
            joined = None
    if joined is not None:
        lines.append(joined)
    return lines


def _key_end(line: str) -> int:
    escaped = False
    for at, char in enumerate(line):
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char in "=:" or char in _BLANK:
            return at
    return len(line)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\" or at == len(text):
            out.append(char)
            continue
        char = text[at]
        at += 1
        if char == "u":
            digits = text[at : at + 4]
            try:
                out.append(chr(int(digits, 16)))
            except ValueError:
                raise ValueError(f"\\u{digits} is not an escape: four hexadecimal digits must follow \\u") from None
            at += 4
        else:
            out.append(_ESCAPES.get(char, char))
    return "".join(out)


def escape_value(value: str) -> str:
    """`value` as Java writes it after the `=`."""
    out: list[str] = []
    for index, letter in enumerate(value):
        if letter in "=:#!\\" or (letter == " " and index == 0):
            out.append("\\" + letter)
        elif " " <= letter <= "~":
            out.append(letter)
        else:
            units = letter.encode("utf-16-be")
            out.extend(f"\\u{units[n] << 8 | units[n + 1]:04X}" for n in range(0, len(units), 2))
    return "".join(out)
