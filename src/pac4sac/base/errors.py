"""Mistakes of the user, told in one sentence. The command line prints the sentence and exits with 2."""


class UserError(Exception):
    """Something the user can mend; its text says what is wrong and what to do instead."""


def how_to_install(extra: str) -> str:
    """For a sentence about something that an extra brings."""
    return f"install pac4sac[{extra}], in a clone by pip install -c constraints.txt '.[{extra}]'"


class DamagedCheckpoint(Exception):
    """Why a checkpoint cannot be used."""
