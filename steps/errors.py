"""The one kind of error that is the reader's to mend."""


class UserError(Exception):
    """What was asked for cannot be done; the message is one line and says what can."""
