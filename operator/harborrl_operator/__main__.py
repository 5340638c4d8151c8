"""`python -m harborrl_operator`: the operator for all namespaces, until SIGTERM."""

import logging

import kopf

from harborrl_operator import handlers

__all__ = ["handlers"]


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    kopf.run(clusterwide=True, standalone=True)


if __name__ == "__main__":
    main()
