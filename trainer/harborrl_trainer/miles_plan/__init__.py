"""From the job document to the plan of one incarnation of Miles: where it begins, with which arguments, in which files.

Runs in our own image (the supervisor's), or in the one process of `python -m harborrl_trainer run`.
"""
