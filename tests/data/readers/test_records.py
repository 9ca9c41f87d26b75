"""One record per line: JSON objects, and Python literals, which are never run."""

from __future__ import annotations

import ast
import gzip
import json
import re
from collections import Counter

import numpy as np
import pytest

from lastitem.data.readers.records import parse_python_record
from tests import literal
from tests.data.readers.logs import (
    START,
    bad_lines,
    bad_rows,
    refusal,
)
from tests.literal import events, read_bytes


class TestJsonLines:
    @pytest.mark.parametrize(
        ("value", "identifier"),
        [
            *[
                ('"a"', "a"),
                ('"007"', "007"),
                ('"null"', "null"),
                ('"\\u00e9\\n\\""', 'é\n"'),
                ('"\\ud83d\\ude00"', "😀"),
            ],
            *[
                (number, number)
                for number in ("5", "1E5", "1.0", "-0", "1234567890123456789", "9" * 5000)
            ],
        ],
    )
    def test_ids_are_as_they_are_written(self, tmp_path, value, identifier):
        """Numbers of JSON are not computed with: neither 1E5, nor 1.0,
        nor many digits.
        """
        log = read_bytes(
            tmp_path, f'{{"time": "1000000000", "item": {value}, "user": {value}}}'.encode()
        )
        assert events(log) == [(identifier, identifier, START)]

    @pytest.mark.parametrize(
        "time", ["1000000000", "1e9", "1000000000.0", '"1000000000"', '"2001-09-09T01:46:40Z"']
    )
    def test_times_are_numbers_or_text(self, tmp_path, time):
        """One time in several ways."""
        assert events(
            read_bytes(tmp_path, f'{{"user": "x", "item": "a", "time": {time}}}'.encode())
        ) == [("x", "a", START)]

    def test_other_keys_may_hold_anything_and_the_last_of_equal_ones_counts(self, tmp_path):
        """Nested values, NaN and half a surrogate pair where they are not used."""
        unused = rb'"t": {"user": [1, {"a": null}]}, "n": NaN, "i": Infinity, "s": "\ud800"'
        record = b'{"user": "y", ' + unused + b', "item": "a", "user": "x", "time": 1000000000}'
        assert events(read_bytes(tmp_path, record)) == [("x", "a", START)]

    @pytest.mark.parametrize(
        ("line", "cause"),
        [
            ('{"item": "a", "time": 1000000000}', "empty user or item"),
            ('{"user": null, "item": "a", "time": 1000000000}', "empty user or item"),
            ('{"user": NaN, "item": "a", "time": 1000000000}', "empty user or item"),
            ('{"user": "", "item": "a", "time": 1000000000}', "empty user or item"),
            ('{"user": "x", "item": "a"}', "time cannot be read"),
            ('{"user": "x", "item": "a", "time": Infinity}', "time cannot be read"),
            (
                '{"user": "x", "item": ["a"], "time": 1000000000}',
                "id or time is neither text nor a number",
            ),
            (
                '{"user": {"id": 1}, "item": "a", "time": 1000000000}',
                "id or time is neither text nor a number",
            ),
            (
                '{"user": true, "item": "a", "time": 1000000000}',
                "id or time is neither text nor a number",
            ),
            ('{"user": "\\ud800", "item": "a", "time": 1000000000}', "id or time is not UTF-8"),
            ('["x", "a", 1000000000]', "not a JSON object"),
            ('"x"', "not a JSON object"),
            ("null", "not a JSON object"),
            ("{'user': 'x'}", "not a JSON object"),
            ('{"user": "x", "item": "a", "time": 1000000000} {}', "not a JSON object"),
            ('{"user": ' + "[" * 100_000, "not a JSON object"),
            ('{"user": "x", "item": "a", "ti', "not a JSON object"),
        ],
        ids=range(17),
    )
    def test_bad_lines_are_counted_and_quoted(self, tmp_path, line, cause):
        """The last of them also as the truncated end of a file."""
        good = '{"user": "x", "item": "a", "time": 1000000000}'
        for content in (f"{good}\n\n{line}\n{good}\n", f"{good}\n \n{line}"):
            assert bad_rows(tmp_path, content.encode()) == {cause: 1}
            assert [
                (number, said[: len(cause)])
                for number, said in bad_lines(tmp_path, content.encode())
            ] == [(3, cause)]

    @pytest.mark.parametrize(
        "content", [b'[{"user": "x"}]', b'\xef\xbb\xbf [\n {"user": "x"},\n', b"[[1, 2], [3, 4]]"]
    )
    def test_one_array_is_an_error_with_a_remedy(self, tmp_path, content):
        """On one line or on several."""
        assert re.match(
            r"is one JSON array; write one record per line, for example with jq -c '\.\[\]'",
            refusal(tmp_path, content),
        )


class TestPythonLiterals:
    GOOD = "{'user': 'x', 'item': 'a', 'time': 1000000000}"

    def test_rows_are_read_and_nothing_is_run(self, tmp_path, monkeypatch):
        """An apostrophe within double quotes, a call, and a
        truncated last line, gzipped.
        """
        monkeypatch.chdir(tmp_path)
        call = "__import__('os').system('touch pwned')"
        lines = [
            """{u'user_id': u'u1', u'item': 1, 'time': 1000000000, 'text': "it's"}""",
            f"{{'user_id': 'u2', 'item': 2, 'time': 1000000001, 'text': {call}}}",
            f"{{'user_id': {call}, 'item': 2, 'time': 1000000001}}",
            """{'user_id': "u'3", 'item': 3, 'time': 1000000002, 'text': 'it\\'s'}""",
            call,
            """{'user_id': 'u4', 'item': 4, 'ti""",
        ]
        content, columns = (
            gzip.compress("\n".join(lines).encode()),
            {
                **literal.FORM["columns"],
                "user": "user_id",
            },
        )
        log = read_bytes(tmp_path, content, columns=columns, maximum_bad_share=0.9)
        assert events(log) == [("u1", "1", START), ("u'3", "3", START + 2)]
        assert log.bad_rows == {"not a dictionary of Python literals": 4}
        assert [line for line, _ in bad_lines(tmp_path, content, columns=columns)] == [2, 3, 5, 6]
        assert not (tmp_path / "pwned").exists()

    @pytest.mark.parametrize(
        ("value", "identifier"),
        [
            *[
                ("'a'", "a"),
                ("u'é'", "é"),
                ('"it\'s"', "it's"),
                ("'say \"x\"'", 'say "x"'),
                (r"'\x41\n\\\''", "A\n\\'"),
                (r"'\u00e9'", "é"),
            ],
            *[
                ("5", "5"),
                ("-5", "-5"),
                ("1E5", "1E5"),
                ("1.0", "1.0"),
                ("9" * 25, "9" * 25),
                ("1e999999999", "1e999999999"),
                ("'a' 'b'", "ab"),
            ],
        ],
    )
    def test_ids_are_text_or_numbers_as_they_are_written(self, tmp_path, value, identifier):
        """By the pattern, and by Python's own parser, which a nested
        value brings in.
        """
        for nested in ("", ", 'more': [{'a': (1, 2.5)}, None, True]"):
            record = f"{{'user': {value}, 'item': {value}, 'time': 1000000000{nested}}}"
            assert events(read_bytes(tmp_path, record.encode())) == [
                (identifier, identifier, START)
            ]

    @pytest.mark.parametrize(
        "value",
        [
            *(
                "f()",
                "os",
                "[x for x in (1,)]",
                "f'{1}'",
                "().__class__",
                "9**9**9",
                "lambda: 1",
                "1 if 1 else 2",
                "(x := 1)",
                "x[0]",
                "{**{}}",
            ),
            *(
                "{[]: 1}",
                "'a",
                "'\\x'",
                "'\0'",
                "'a\rb'",
                "007",
                "-" * 20_000 + "1",
                "[" * 20_000,
                "a" + ".b" * 20_000,
                "1" + "+1" * 20_000,
                "",
            ),
        ],
        ids=range(22),
    )
    def test_nothing_else_is_evaluated(self, tmp_path, value):
        """Neither as an id nor, but for text, in an unused column; deep nesting and
        huge powers end at once.
        """
        for key in ("user", "more") if not value.startswith("'") else ("user",):
            record = f"{{'item': 'a', 'time': 1000000000, 'user': 'x', '{key}': {value}}}"
            content = f"{self.GOOD}\n{record}\n".encode()
            assert bad_rows(tmp_path, content) == {"not a dictionary of Python literals": 1}
            assert [line for line, _ in bad_lines(tmp_path, content)] == [2]

    @pytest.mark.parametrize("value", ["True", "[1]", "{'a': 1}", "(1, 2)", "b'x'", "..."])
    def test_other_literals_are_no_ids(self, tmp_path, value):
        """They are counted, None as a missing id."""
        record = f"{{'user': {value}, 'item': 'a', 'time': 1000000000}}"
        assert bad_rows(tmp_path, f"{self.GOOD}\n{record}".encode()) == {
            "id or time is neither text nor a number": 1
        }
        assert bad_rows(tmp_path, f"{self.GOOD}\n{record.replace(value, 'None')}".encode()) == {
            "empty user or item": 1
        }

    @staticmethod
    def random_value(generator, depth: int = 0) -> str:
        """A literal as Python or people write it."""
        text = "".join(generator.choice(list("ab'\"\\,:{} é\n1"), generator.integers(0, 6)))
        kinds = [
            repr(text),
            json.dumps(text),
            "u" + repr(text),
            str(int(generator.integers(-9, 10**12))),
            repr(float(generator.normal() * 10.0 ** generator.integers(-20, 20))),
            str(
                generator.choice(
                    [
                        "True",
                        "False",
                        "None",
                        "1e5",
                        "0x1F",
                        "1_000",
                        "+5",
                        "00",
                        "b'x'",
                        "'a' 'b'",
                        "-0.0",
                        "2j",
                    ]
                )
            ),
        ]
        if depth < 2 and generator.integers(4) == 0:
            inner = [TestPythonLiterals.random_value(generator, depth + 1) for _ in range(3)]
            return str(
                generator.choice(["[{}, {}, {}]", "({}, {}, {})", "{{'k': {}, 'l': [{}, {}]}}"])
            ).format(*inner)
        return kinds[generator.integers(len(kinds))]

    @pytest.mark.filterwarnings("ignore:invalid escape")
    def test_equals_literal_eval_on_random_and_mutated_records(self):
        """The same values of wanted keys, and the same acceptance but for unwanted text
        that is no literal.
        """
        generator = np.random.default_rng(1)
        wanted = frozenset(("user", "item", "time"))
        outcomes = Counter()
        for _ in range(3000):
            keys = generator.permutation(["user", "item", "time", "text", "more"])[
                : generator.integers(1, 6)
            ]
            space = ["", " ", "\t"][generator.integers(3)]
            pairs = [
                f"{generator.choice(['', 'u'])}'{key}'{space}:{space}{self.random_value(generator)}"
                for key in keys
            ]
            record = "{" + f"{space},{space}".join(pairs) + "}"
            for mutate in (False, True):
                if mutate:
                    place = int(generator.integers(len(record)))
                    record = (
                        record[:place]
                        + generator.choice(list("'\"\\{}[](),: 1ax"))
                        + record[place + int(generator.integers(2)) :]
                    )
                    record = record.strip()
                try:
                    expected = ast.literal_eval(record)
                except (ValueError, SyntaxError, TypeError):
                    expected = None
                try:
                    found = parse_python_record(record, wanted)
                except ValueError:
                    found = None
                if isinstance(expected, dict):
                    assert found is not None, record
                    assert {key for key in expected if isinstance(key, str)} == set(found)
                    assert all(
                        self.is_same(expected[key], found[key]) for key in wanted & set(found)
                    ), record
                elif found is not None:
                    assert any(self.is_malformed(found[key]) for key in set(found) - wanted), record
                outcomes[mutate, isinstance(expected, dict)] += 1
        assert min(outcomes[False, True], outcomes[True, True], outcomes[True, False]) > 300

    @staticmethod
    def is_same(expected, found) -> bool:
        """Whether a value is what it should be: text, nothing, a number as it is
        written, or something that is no id.
        """
        if expected is None or isinstance(expected, str):
            return found == expected
        if isinstance(expected, (int, float, complex)) and not isinstance(expected, bool):
            return found == (expected,) or ast.literal_eval(found) == expected
        return found is not None and not isinstance(found, str)

    @staticmethod
    def is_malformed(text) -> bool:
        try:
            ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return True
        return False
