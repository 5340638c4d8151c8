"""Rules of Miles and Megatron that admission can judge as well: flags, numbers and the smallest change that helps.

Written once, for the trainer; the operator has a generated copy, as the parts share no modules (docs/decisions/0110).
Nothing here imports anything outside of this folder but the standard library.
"""
