import sys

from pac4sac.cli import main

if __name__ == "__main__":
    sys.exit(main())
