"""`python -m calibrant`."""

from calibrant.commands.root import main

if __name__ == "__main__":
    main()
