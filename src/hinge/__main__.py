"""`python -m hinge` is the command `hinge`."""

from hinge.cli import main

if __name__ == "__main__":
    main()
