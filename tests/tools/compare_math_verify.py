#!/usr/bin/env python3
"""The verdicts of the math reward beside those of math-verify, over tests/data/math-answers.tsv.

    python3 tests/tools/compare_math_verify.py build/tests/tools/test_score_math

prints every row on which the two differ, and the counts. It decides nothing: the differences that are meant stand in
tools/score/math.h. Needs the Python package math-verify. Rows with options are left out.
"""
import logging
import pathlib
import subprocess
import sys

from math_verify import parse, verify
from math_verify.parser import ExprExtractionConfig, LatexExtractionConfig

logging.disable(logging.CRITICAL)


MARKERS = ("\\boxed", "\\fbox", "####", "answer", "$", " it ", "nothing")


def theirs(gold, response):
    """As NeMo-RL asks it: the gold answer boxed and read as LaTeX, the response as LaTeX or a plain expression.
    A response that is nothing but an answer is boxed, too: math-verify reads LaTeX only within marks."""
    if not any(m in response for m in MARKERS):
        response = "\\boxed{" + response + "}"
    g = parse("\\boxed{" + gold + "}", [LatexExtractionConfig()])
    r = parse(response, [ExprExtractionConfig(), LatexExtractionConfig()])
    if not g:
        return "U"
    return "E" if verify(g, r) else "N"


def main():
    table = pathlib.Path(__file__).parents[1] / "data" / "math-answers.tsv"
    rows = [line.split("\t") for line in table.read_text().splitlines() if line.strip() and line[0] != "#"]
    rows = [r for r in rows if len(r) == 3]
    text = "".join(f"{r[0]}\t{r[1]}\n" for r in rows)
    ours = subprocess.run([sys.argv[1], "--judge"], input=text, capture_output=True, text=True, check=True).stdout.split()
    if len(ours) != len(rows):
        sys.exit(f"{len(ours)} verdicts for {len(rows)} rows")
    differ = 0
    for row, mine in zip(rows, ours):
        other = theirs(row[0], row[1])
        if other != mine:
            differ += 1
            print(f"gold {row[0]!r:32} response {row[1]!r:48} here {mine} math-verify {other}")
    print(f"{len(rows)} rows, {differ} differ")


if __name__ == "__main__":
    main()
