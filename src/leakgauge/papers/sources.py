"""The papers that tables stand in."""

from __future__ import annotations

from leakgauge.papers.contract import Paper

BAYES = Paper(
    "Balunović, Dimitrov, Staab, Vechev, Bayesian Framework for Gradient Leakage, 2022.",
    "https://arxiv.org/abs/2111.04706",
)
GRADATTACK = Paper(
    "Huang, Gupta, Song, Li, Arora, Evaluating Gradient Inversion Attacks and Defenses in Federated Learning, 2021.",
    "https://arxiv.org/abs/2112.00059",
)
CAPACITY = Paper(
    "Biswas et al., Bayes' capacity as a measure for reconstruction attacks in federated learning, 2024.",
    "https://arxiv.org/abs/2406.13569",
)
LRP = Paper("Wan et al., Enhancing Privacy Preservation in Federated Learning via Learning Rate Perturbation, 2023.")
PEELING = Paper("Shariati and Meybodi, Cascading Gradient Inversion via LT-Code Inspired Peeling, 2026.")
SPEAR = Paper(
    "Dimitrov, Baader, Müller, Vechev, SPEAR: Exact Gradient Inversion of Batches in Federated Learning, 2024.",
    "https://arxiv.org/abs/2403.03945",
)
