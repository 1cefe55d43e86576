"""Distillation: a teacher translates text, and a smaller student is trained on its translations (Kim and Rush 2016).

`plan` says what is wanted, `teachers` and `endpoint` translate, `selection` chooses the training text, `student` makes
its config, and `steps` does one step after the other.
"""
