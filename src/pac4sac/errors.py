"""Mistakes of the user, told in one sentence. The command line prints the sentence and exits with 2."""


class UserError(Exception):
    """Something the user can mend; its text says what is wrong and what to do instead."""
