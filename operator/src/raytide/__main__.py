"""`python -m raytide` is the command `raytide`."""

from raytide.cli import main

if __name__ == "__main__":
    main()
