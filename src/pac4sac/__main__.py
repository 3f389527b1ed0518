"""Run the command line: python -m pac4sac."""

import sys

from pac4sac.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
