"""A study: from the text of a spec to values, checked before anything runs."""

from leakgauge.study.spec import Problem, Spec, SpecError, load, of, problems, sound

__all__ = ["Problem", "Spec", "SpecError", "load", "of", "problems", "sound"]
