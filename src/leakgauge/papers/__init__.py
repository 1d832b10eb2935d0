"""Tables, figures and theorems of the papers, each as one value: what was printed, and how we measure it.

``contract`` says what a table is, ``running`` runs one on the audit's store, ``catalogue`` knows all of them: every
module of a folder here that has ``TABLES``. Their metric conventions live in ``conventions`` and nowhere else.
"""
