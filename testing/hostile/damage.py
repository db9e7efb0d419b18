"""Damage to bytes and to JSON, and values that programs stumble over."""

from __future__ import annotations

import json
from random import Random

# JSON texts, some of which JSON does not know.
VALUES = [
    "0", "-1", "1", "2", "3", "65536", "4294967295", "4294967296", "9223372036854775807", "18446744073709551615",
    "18446744073709551616", "1e308", "1e999", "-0.0", "1e-320", "0.5", "NaN", "-Infinity", "null", "true", "false",
    '""', '"a"', '"\\u001b[2J\\u001b]0;owned\\u0007"', '"\\u009b2J"', '"../../etc/passwd"', '"\\u0000"',
    '"\\n\\nerror: all is well"', "[]", "[0]", "[1, 2, 3]", "[18446744073709551615]", "[[[[]]]]", "{}", '{"a": 1}',
    "[64, 64]", "[-1, -1]",
    "1000000000", "1000000", "1024", "[" * 200 + "]" * 200, '"' + "x" * 5000 + '"',
    "[" + ", ".join(["32"] * 16) + "]", "[" + ", ".join(["1"] * 5000) + "]",
]  # fmt: skip


def damaged(content: bytes, random: Random) -> bytes:
    """Bytes with a few of them changed, moved, added or cut off."""
    result = bytearray(content)
    for _ in range(random.choice([1, 1, 1, 2, 4, 16])):
        at = random.randrange(len(result)) if result else 0
        match random.randrange(8):
            case 0:
                del result[at:]
            case 1:
                del result[at : at + random.choice([1, 2, 4, 8])]
            case 2:
                result[at:at] = random.randbytes(random.choice([1, 2, 4, 64]))
            case 3:
                result[at : at + 4] = random.choice([b"\xff" * 4, b"\0" * 4, b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f"])
            case 4:
                other = random.randrange(len(result)) if result else 0
                result[at : at + 16] = result[other : other + 16]
            case _:
                if result:
                    result[at] ^= 1 << random.randrange(8)
    return bytes(result)


def places(value: object, path: tuple = ()) -> list[tuple]:
    """The paths of all values in a JSON document."""
    found = [path]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += places(inner, (*path, index))
    return found


def hostile_json(text: bytes, random: Random, fields: tuple[str, ...] = ()) -> bytes:
    """A JSON text with one of its values, or one of some fields that it may not have, replaced by a hostile one."""
    document = json.loads(text)
    if fields and random.random() < 0.5 and isinstance(document, dict):
        document[random.choice(fields)] = "@hostile@"
    else:
        put(document, random.choice(places(document)), "@hostile@", random)
    return json.dumps(document).encode().replace(b'"@hostile@"', random.choice(VALUES).encode())


def put(document: object, path: tuple, value: object, random: Random) -> None:
    """Replaces a value within a document; now and then it is left out instead."""
    if not path:
        return
    for key in path[:-1]:
        document = document[key]
    if random.random() < 0.1:
        del document[path[-1]]
    else:
        document[path[-1]] = value
