"""Megatron's entry to its parser, which Miles extends: here Miles' part is all there is."""

import argparse
from collections.abc import Callable

Extend = Callable[[argparse.ArgumentParser], argparse.ArgumentParser]


def add_megatron_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    return parser


def parse_args(extra_args_provider: Extend) -> argparse.Namespace:
    return extra_args_provider(argparse.ArgumentParser(allow_abbrev=False)).parse_args()
