"""The HarborRLJob operator: kopf watches, one level-triggered reconcile decides, status conditions tell."""
