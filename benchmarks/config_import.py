"""What `import harborrl_trainer.config` costs; prints JSON, and ends with 1 when the bound is missed.

PYTHONPATH=trainer python benchmarks/config_import.py

The bound is on the best processor time of a fresh interpreter with the import: other programs of a shared machine
lengthen the clock without end and the processor time a little, and only ever lengthen them. Compiled bytecode is
written and used whatever PYTHONDONTWRITEBYTECODE says: a package that is installed has it, and compiling pydantic at
every start is not what is bounded.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping

RUNS = 15
IMPORT = "import harborrl_trainer.config"
BOUND_MS = 150
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

type Figures = Mapping[str, float]


def measure(statement: str) -> Figures:
    """Milliseconds of a fresh interpreter running `statement`: median and best of the clock and of the processor."""
    clocks, processors = [], []
    for _ in range(RUNS):
        begun = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-c", statement], env=ENVIRONMENT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"`{statement}` ended with {process.returncode}")
        clocks.append(time.perf_counter() - begun)
        processors.append(used.ru_utime + used.ru_stime)
    figures = {
        "median_ms": statistics.median(clocks),
        "best_ms": min(clocks),
        "processor_median_ms": statistics.median(processors),
        "processor_best_ms": min(processors),
    }
    return {name: round(seconds * 1000, 1) for name, seconds in figures.items()}


def missed(with_import: Figures) -> list[str]:
    best = with_import["processor_best_ms"]
    if best < BOUND_MS:
        return []
    return [f"importing harborrl_trainer.config took {best} ms of processor time at best, the bound is {BOUND_MS} ms"]


def main() -> None:
    interpreter, whole = measure("pass"), measure(IMPORT)
    alone = {name: round(whole[name] - interpreter[name], 1) for name in whole}
    print(json.dumps({"interpreter": interpreter, "with_import": whole, "import_alone": alone}))
    if found := missed(whole):
        raise SystemExit("\n".join(found))


if __name__ == "__main__":
    main()
