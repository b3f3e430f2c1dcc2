"""The root command and the commands that compose several stages. Only this folder may see all of them."""
