"""`python -m longtail.cli` is `longtail`."""

from longtail.cli.main import main

if __name__ == "__main__":
    main()
