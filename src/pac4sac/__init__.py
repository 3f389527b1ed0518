"""PAC-Bayesian Soft Actor-Critic and its rivals, trained in batched cohorts."""
