"""The search: a space, a sampler, a race, a confirmation. Optuna is imported only in here."""
