"""Every metric that takes logits and labels and gives one number."""

from lates import metrics

METRICS = [
    metrics.accuracy,
    metrics.nll,
    metrics.brier,
    metrics.brier_paper,
    metrics.ece,
    metrics.classwise_ece,
    metrics.ece_debiased,
    metrics.ece_smooth,
    metrics.auc,
    metrics.auc_keras,
    metrics.aurc,
    metrics.coverage_at_risk,
]
