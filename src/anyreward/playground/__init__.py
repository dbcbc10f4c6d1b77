"""The playground: a web page on which rewards are painted, and its server."""
