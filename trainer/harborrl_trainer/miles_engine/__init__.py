"""What runs beside Miles, in Miles' own container: start it, seal what it saves, let it stop, say how it ended.

Python 3.10, the standard library and the few modules named in `export.PARTS`: nothing else of ours is in that image.
All decisions that need the job were made before, in `harborrl_trainer.miles_plan`, and lie in one plan file.
"""
