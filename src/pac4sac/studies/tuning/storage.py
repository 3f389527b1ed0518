"""The storage of a search: a journal file, or a database."""

import optuna
from optuna.storages.journal import JournalFileBackend

from pac4sac.base.errors import UserError


def open_storage(place: str) -> optuna.storages.BaseStorage:
    """Return a storage of Optuna.

    Args:
        place: URL of a database, such as sqlite:///search.db, or the path of a journal file.

    Raises:
        UserError: If the storage cannot be opened.
    """
    try:
        if "://" in place:
            return optuna.storages.RDBStorage(place)
        return optuna.storages.JournalStorage(JournalFileBackend(place))
    except (ImportError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"The storage {place} cannot be opened ({reason}); choose another one with --storage."
        ) from error
    except Exception as error:  # database drivers can raise any exception
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"Optuna cannot use the storage {place} ({reason}); give a URL "
            "such as sqlite:///search.db, or the path of a journal file."
        ) from error
