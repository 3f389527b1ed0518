"""The storage of a search: a journal file, or a database."""

import optuna
from optuna.storages.journal import JournalFileBackend

from pac4sac.base.errors import UserError


def open_storage(place: str) -> optuna.storages.BaseStorage:
    """Return a storage of Optuna.

    Args:
        place: URL of a database, such as sqlite:///search.db, or the path of a journal file.

    Raises:
        UserError: If it cannot be opened.
    """
    try:
        if "://" in place:
            return optuna.storages.RDBStorage(place)
        return optuna.storages.JournalStorage(JournalFileBackend(place))
    except (ImportError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"The storage {place} cannot be opened ({reason}).") from error
    except Exception as error:  # any error of a driver of a database
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"The storage {place} is not a database that Optuna can use ({reason}); give a URL "
            "such as sqlite:///search.db, or the path of a journal file."
        ) from error
