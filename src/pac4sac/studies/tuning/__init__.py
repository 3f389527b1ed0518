"""Search of settings with Optuna, each trial with several seeds."""

from pac4sac.base.errors import import_extra

import_extra("tune", "A search of settings needs Optuna", "optuna")
