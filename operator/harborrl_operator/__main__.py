"""`python -m harborrl_operator`: one operator process, until SIGTERM."""

import sys

from harborrl_operator.process import main

if __name__ == "__main__":
    sys.exit(main())
