"""How long `import harborrl_trainer.config` takes, and which of its modules take longest; prints JSON.

PYTHONPATH=trainer python benchmarks/config_import.py
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import time

RUNS = 15
IMPORT = "import harborrl_trainer.config"


def measure(statement: str) -> dict[str, float]:
    """Milliseconds of a fresh interpreter running `statement`: median and best of the clock, mean of the processor."""
    clocks = []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(RUNS):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], check=True, env=os.environ)
        clocks.append(time.perf_counter() - begun)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / RUNS
    figures = {"median_ms": statistics.median(clocks), "best_ms": min(clocks), "processor_ms": processor}
    return {name: round(seconds * 1000, 1) for name, seconds in figures.items()}


def main() -> None:
    interpreter, whole = measure("pass"), measure(IMPORT)
    alone = {name: round(whole[name] - interpreter[name], 1) for name in whole}
    sys.stdout.write(json.dumps({"interpreter": interpreter, "with_import": whole, "import_alone": alone}) + "\n")


if __name__ == "__main__":
    main()
