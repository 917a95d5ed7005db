"""Which of Kubernetes' own tests are run, and what is made of their results.

    results.py focus [PART…]            prints the regular expression for e2e.test
    results.py judge REPORT [PART…]     prints each test that did not do what is expected, and the counts
"""

import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).parent


def lines(name):
    """The lines of a file that are neither empty nor comments."""
    text = (HERE / name).read_text()
    return [line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def expected(parts):
    """The names of the tests to run."""
    excused = not_here()
    names = [name for name in lines("baseline.txt") if name not in excused]
    return [name for name in names if not parts or any(part in name for part in parts)]


def not_here():
    """Tests that are known not to pass: name to reason. A line is `NAME => REASON`."""
    return dict(line.split(" => ", 1) for line in lines("not-here.txt"))


def focus(parts):
    print("|".join(re.escape(name) for name in expected(parts)))


def judge(report, parts):
    outcome = {}
    for suite in json.loads(pathlib.Path(report).read_text()):
        for spec in suite["SpecReports"] or []:
            if spec["LeafNodeType"] != "It":
                if spec["State"] == "failed":
                    print(f"failed: {spec['LeafNodeType']}: {spec['Failure']['Message'][:2000]}")
                continue
            name = " ".join([*(spec["ContainerHierarchyTexts"] or []), spec["LeafNodeText"]])
            outcome[name] = (spec["State"], spec.get("Failure", {}).get("Message", ""), spec["RunTime"] / 1e9)
    faults, passed = 0, 0
    for name in expected(parts):
        state, message, seconds = outcome.get(name, ("not run", "", 0))
        if state == "passed":
            passed += 1
        else:
            faults += 1
            print(f"{state}: {name} ({seconds:.0f} s)\n    {message[:1500].strip()}")
    print(f"{passed} of {len(expected(parts))} passed; {len(not_here())} are known not to")
    return faults


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    if verb == "focus":
        focus(rest)
    else:
        sys.exit(1 if judge(rest[0], rest[1:]) else 0)
