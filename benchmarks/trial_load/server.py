"""The agent server with a probe in its event loop: `python -m benchmarks.trial_load.server PROBE_LOG FLAGS...`."""

import sys
from pathlib import Path

from benchmarks.trial_load.probe import Probe

from harborrl_agent_server.serve import run
from harborrl_agent_server.settings import settings_from

if __name__ == "__main__":
    sys.exit(run(settings_from(sys.argv[2:]), beat=Probe(Path(sys.argv[1]))))
